"""Bad rows: a run over a table with every kind of them ends well, each is counted by its reason, and who stands in for whom is fixed."""

from __future__ import annotations

import base64
import io
import json
import re
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from seegrad import images
from seegrad.config import Config, DataConfig
from seegrad.data.skipping import Fitting, Skipping, bad_rows_met, replaced_rows, skipped_rows
from seegrad.data.table import table
from seegrad.errors import DataError, UsageError
from seegrad.evaluate import evaluate
from seegrad.rundir import RunDir
from seegrad.types import Example
from seegrad.wiring import Parts
from tests import fakes
from tests.fakes import Quiet
from tests.runs import differences, fake_run

PICTURE = fakes.picture(3)
TEXT = base64.b64encode(PICTURE).decode()
GOOD: dict[str, Any] = {"id": "good", "question": "which digit?", "answer": 2, "image": TEXT, "kind": 0}


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in GOOD.items() if key != name}


def noisy_png() -> bytes:
    buffer = io.BytesIO()
    Image.effect_noise((40, 40), 90).save(buffer, "PNG")
    return buffer.getvalue()


# one row of each: what is in the line (a text is written as it is), and the reason that it must be counted by
BROKEN: list[tuple[str, Any, str]] = [
    ("no question", without("question"), "no question"),
    ("null question", {**GOOD, "question": None}, "empty question"),
    ("blank question", {**GOOD, "question": " \n"}, "empty question"),
    ("nothing but the mark", {**GOOD, "question": "<image> "}, "empty question"),
    ("question is a number", {**GOOD, "question": 7}, "question is not text"),
    ("messages without a user", {**GOOD, "question": [{"role": "system", "content": "x"}]}, "no question"),
    ("conversation", {**GOOD, "question": [{"role": role, "content": "x"} for role in ("user", "assistant", "user")]}, "several turns"),
    ("video in a message", {**GOOD, "question": [{"role": "user", "content": [{"type": "video"}]}]}, "unknown message part"),
    ("no answer", without("answer"), "no answer"),
    ("null answer", {**GOOD, "answer": None}, "empty answer"),
    ("blank answer", {**GOOD, "answer": " "}, "empty answer"),
    ("empty wrapper", {**GOOD, "answer": "<answer> </answer>"}, "empty answer"),
    ("answer is not a number", {**GOOD, "answer": float("nan")}, "answer is not a number"),
    ("answer is infinite", {**GOOD, "answer": float("inf")}, "answer is not a number"),
    ("answer is an object", {**GOOD, "answer": {"value": 2}}, "answer has a wrong type"),
    ("answer has an empty item", {**GOOD, "answer": [1, None]}, "answer has a wrong type"),
    ("label outside", {**GOOD, "choices": ["1", "2"], "answer": 2}, "answer is outside the choices"),
    ("label below", {**GOOD, "choices": ["1", "2"], "answer": -1}, "answer is outside the choices"),
    ("choices are text", {**GOOD, "choices": "1 or 2"}, "choices cannot be read"),
    ("choices without B", {**GOOD, "choices": {"A": "1", "C": "2"}}, "choices cannot be read"),
    ("a choice is null", {**GOOD, "choices": ["1", None, "2"]}, "choices cannot be read"),
    ("two marks, one picture", {**GOOD, "question": "<image><image>?"}, "wrong number of <image> marks"),
    ("one mark, two pictures", {**GOOD, "question": "<image>?", "image": [TEXT, TEXT]}, "wrong number of <image> marks"),
    ("one mark, no picture", {**GOOD, "question": "<image>?", "image": None}, "wrong number of <image> marks"),
    ("one of two pictures is null", {**GOOD, "image": [TEXT, None]}, "picture missing"),
    ("missing file", {**GOOD, "image": "absent.png"}, "picture missing"),
    ("file is a folder", {**GOOD, "image": "."}, "picture missing"),
    ("neither bytes nor path", {**GOOD, "image": {"bytes": None, "path": None}}, "picture missing"),
    ("picture is a number", {**GOOD, "image": 17}, "picture value not understood"),
    ("on the web", {**GOOD, "image": "https://example.org/a.png"}, "picture on the web"),
    ("file without bytes", {**GOOD, "image": "empty.png"}, "picture empty"),
    ("cut file", {**GOOD, "image": "cut.png"}, "picture damaged"),
    ("file of text", {**GOOD, "image": "text.png"}, "not a picture"),
    ("base64 of text", {**GOOD, "image": base64.b64encode(b"no picture " * 40).decode()}, "not a picture"),
    ("broken data URL", {**GOOD, "image": "data:image/png;base64,!!!"}, "picture damaged"),
    ("too many pixels", {**GOOD, "image": "huge.png"}, "picture too large"),
    ("long prompt", {**GOOD, "question": "w " * 60}, "prompt too long"),
    ("half a character", {**GOOD, "answer": "\ud83d"}, "text with half a character"),
    ("cut line", '{"question": "?", "ans', "line is not a JSON object"),
    ("line is a list", "[1, 2]", "line is not a JSON object"),
    ("line is no UTF-8", b'{"question": "\xff"}', "line is not a JSON object"),
]


def broken_table(folder: Path) -> Path:
    """All kinds of broken rows, a good row after each."""
    (folder / "empty.png").touch()
    (folder / "cut.png").write_bytes(noisy_png()[:-900])
    (folder / "text.png").write_text("not found")
    huge = bytearray(PICTURE)
    huge[16:24] = (90_000).to_bytes(4, "big") * 2  # the size in the header
    huge[29:33] = zlib.crc32(huge[12:29]).to_bytes(4, "big")
    (folder / "huge.png").write_bytes(bytes(huge))
    lines = []
    for number, (_, row, _) in enumerate(BROKEN):
        lines.append(row if isinstance(row, bytes) else (row if isinstance(row, str) else json.dumps(row)).encode())
        lines.append(json.dumps({**GOOD, "id": f"good-{number}", "kind": number % 4, "answer": number % 4 + 2}).encode())
    path = folder / "rows.jsonl"
    path.write_bytes(b"\n".join(lines))
    return path


def count(example: Example) -> int:
    return len(example.question.split())


def skipping(path: Path) -> Skipping:
    return Skipping(Fitting(table("train", DataConfig(name="table", path=str(path))), count, 50))


def config(**changes: Any) -> Config:
    return fakes.config(rollout={"questions_per_step": 10, "group_size": 2, "max_tokens": 3}, **changes)


def test_a_run_over_every_kind_of_broken_row_ends_well_and_counts_each(tmp_path: Path) -> None:
    rows, reporter = skipping(broken_table(tmp_path)), Quiet()
    assert len(BROKEN) >= 20 and len(rows) == 2 * len(BROKEN)
    settings = config(steps=8)  # 80 of 78 rows: each is asked for
    fake_run(tmp_path / "run", settings, reporter=reporter, examples=rows)
    expected = Counter(reason for _, _, reason in BROKEN)
    assert rows.tally == expected
    metrics = RunDir.open(tmp_path / "run").metrics()
    assert sum(line["data/replaced"] for line in metrics[:7]) <= len(BROKEN) <= sum(line["data/replaced"] for line in metrics)
    told = [note for note in reporter.notes if "is replaced by the next good one" in note]
    assert len(told) == len(expected) and all(sum(f"({reason})" in note for note in told) == 1 for reason in expected)
    assert skipped_rows(rows).startswith(f"{len(BROKEN)} of {len(rows)} rows were bad and replaced (")
    for reason, number in expected.items():
        assert f"{number} {reason}" in skipped_rows(rows)


@pytest.mark.parametrize("number", range(len(BROKEN)), ids=[name.replace(" ", "-") for name, _, _ in BROKEN])
def test_each_kind_names_its_row(tmp_path: Path, number: int) -> None:
    rows = skipping(broken_table(tmp_path)).rows
    with pytest.raises(DataError, match=f"row {2 * number}") as error:
        rows[2 * number]
    assert error.value.reason == BROKEN[number][2] and "\n" not in str(error.value)
    assert rows[2 * number + 1].id == f"good-{number}"


def test_a_continued_run_replaces_the_same_rows(tmp_path: Path) -> None:
    path = broken_table(tmp_path)
    whole, begun = config(steps=6), config(steps=6)
    fake_run(tmp_path / "whole", whole, examples=skipping(path))
    policy = fakes.FakePolicy()

    class Interrupted(Quiet):
        def step(self, step: int, metrics: Any) -> None:
            super().step(step, metrics)
            if step == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fake_run(tmp_path / "parts", begun, examples=skipping(path), reporter=Interrupted())
    fake_run(tmp_path / "parts", begun, examples=skipping(path), policy=policy, resume=True)
    assert differences(tmp_path / "whole", tmp_path / "parts") == []


def test_an_evaluation_records_bad_rows_as_items_with_an_error(tmp_path: Path) -> None:
    rows = table("train", DataConfig(name="table", path=str(broken_table(tmp_path))))
    result = evaluate(fakes.FakePolicy().sampler(), fakes.FakeRenderer(), fakes.rewards(), rows, name="x")
    assert len(result.items) == len(rows)
    assert result.summary["num_errors"] == sum(reason != "prompt too long" for _, _, reason in BROKEN)


class Flags:
    """Row n is good or bad as the flag says."""

    def __init__(self, good: list[bool]) -> None:
        self.good, self.reads = good, Counter[int]()

    def __len__(self) -> int:
        return len(self.good)

    def __getitem__(self, index: int) -> Any:
        self.reads[index] += 1
        if self.good[index]:
            return Example(str(index), "?", "1")
        raise DataError(f"row {index} is bad", reason=f"kind {index % 2}")


def flagged(good: list[bool]) -> Skipping:
    return Skipping(Flags(good))  # type: ignore[arg-type]


@given(st.lists(st.booleans(), min_size=1).filter(any), st.data())
def test_the_nearest_good_row_after_it_stands_in(good: list[bool], data: st.DataObject) -> None:
    order = data.draw(st.lists(st.integers(-len(good), len(good) - 1)))
    rows = flagged(good)
    for asked in order:
        index = asked % len(good)
        stand_in = next(position % len(good) for position in range(index, 2 * len(good)) if good[position % len(good)])
        assert rows[asked].id == str(stand_in)
        assert rows.is_bad(index) == (not good[index])
    assert rows.tally.total() <= good.count(False)


def test_a_row_that_was_found_bad_is_not_read_again() -> None:
    rows = flagged([False, False, True])
    for _ in range(3):
        rows[0]
    assert rows.rows.reads == Counter({0: 1, 1: 1, 2: 3})  # type: ignore[attr-defined]
    with pytest.raises(IndexError):
        rows[3]
    assert [row.id for row in rows[:2]] == ["2", "2"]


def test_when_no_row_is_good_the_counts_are_the_error() -> None:
    rows = flagged([False] * 5)
    for _ in range(2):
        with pytest.raises(DataError, match="none of the 5 rows can be used: 3 kind 0, 2 kind 1; the first: row 2 is bad"):
            rows[2]


def test_news_are_told_once_and_numbers_are_of_one_step() -> None:
    rows = flagged([False, True, False, False, True])
    assert bad_rows_met(rows) == [] and skipped_rows(rows) == ""
    rows[0], rows[1]
    assert bad_rows_met(rows) == ["a bad row (kind 0) is replaced by the next good one: row 0 is bad"] and bad_rows_met(rows) == []
    assert replaced_rows(rows, [0, 1]) == {"data/replaced": 1.0}
    rows[3], rows[2]
    assert bad_rows_met(rows) == ["a bad row (kind 1) is replaced by the next good one: row 3 is bad"]
    assert replaced_rows(rows, [4, 2, 2, 3]) == {"data/replaced": 3.0}
    assert skipped_rows(rows).startswith("3 of 5 rows were bad and replaced (2 kind 0, 1 kind 1)")
    assert replaced_rows(fakes.examples(), [0]) == {} and bad_rows_met(fakes.examples()) == [] and skipped_rows(fakes.examples()) == ""


def test_long_prompts_are_bad_rows_and_never_cut() -> None:
    rows = [Example("a", "one two", "1"), Example("b", "one two three", "1")]
    fitting = Fitting(rows, count, 2)
    assert fitting[0] is rows[0] and fitting[:1][0] is rows[0] and Fitting(rows, count)[1] is rows[1]
    with pytest.raises(DataError, match=r"row 1 \(b\): the prompt has 3 tokens, data.max_prompt_tokens is 2") as error:
        fitting[-1]
    assert error.value.reason == "prompt too long"


def parts(folder: Path, **data: Any) -> Parts:
    return Parts(Config(data=DataConfig.model_validate({"name": "table", "path": str(folder / "rows.jsonl"), **data})))


def test_wiring_skips_rows_of_training_only(tmp_path: Path) -> None:
    broken_table(tmp_path)
    rows = parts(tmp_path).examples("train", train=True)
    assert isinstance(rows, Skipping) and isinstance(rows.rows, Fitting) and rows[0].id == "good-0"
    assert not isinstance(parts(tmp_path).examples("train"), Skipping | Fitting)
    stop = parts(tmp_path, bad_rows="stop").examples("train", train=True)
    assert stop[1].id == "good-0"
    with pytest.raises(DataError, match="there is no 'question'"):
        stop[0]
    limited = parts(tmp_path, max_prompt_tokens=3).examples("train")
    with pytest.raises(DataError, match=r"the prompt has [0-9]+ tokens, data\.max_prompt_tokens is 3"):
        limited[1]


def test_drawn_rows_are_handed_on_as_they_are() -> None:
    drawn = Parts(Config()).examples("train", train=True)
    assert not isinstance(drawn, Skipping | Fitting)
    assert isinstance(Parts(Config(data=DataConfig(max_prompt_tokens=9))).examples("train", train=True), Skipping)


def test_a_row_that_cannot_be_rendered_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "half a character: \\ud83d", "answer": "1"}\n{"question": "whole", "answer": "1"}\n')
    rows = parts(tmp_path).examples("train", train=True)
    assert rows[0].question == "whole"
    assert isinstance(rows, Skipping) and rows.is_bad(0) and not rows.is_bad(1)


def test_every_reason_is_in_the_documents() -> None:
    root = Path(__file__).parents[2]
    documents = "".join((root / "docs" / name).read_text(encoding="utf-8") for name in ("data.md", "images.md"))
    modules = ("cells", "formats", "parquet", "pictures", "rows", "skipping", "table")
    source = "".join((root / "seegrad" / "data" / f"{name}.py").read_text(encoding="utf-8") for name in modules)
    reasons = set(re.findall(r'reason="([^"{]+)"', source)) - {"file cannot be read", "no rows", "no good row"}  # those of no row
    assert len(reasons) > 15
    assert [reason for reason in sorted(reasons | set(images.REASONS)) if reason not in documents] == []


def test_a_missing_path_is_a_mistake_not_a_bad_row() -> None:
    with pytest.raises(UsageError, match=r"data set 'table' needs data\.path"):
        Parts(Config(data=DataConfig(name="table"))).examples("train", train=True)
