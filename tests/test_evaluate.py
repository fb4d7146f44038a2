"""Evaluation: every item once, graded, kept; nothing half-written; damage is named."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from seegrad.errors import DataError, RewardError, RunError, SamplerError, UsageError
from seegrad.evaluate import GREEDY, EvalItem, EvalResult, check_place, check_sampling, evaluate, write_images
from seegrad.images import content_hash
from seegrad.rewards.base import Rewards
from seegrad.types import Completion, Example, ModelInput, SamplingParams
from tests.fakes import OneByOne
from tests.reporting import ChanceSampler, NumberingRenderer, RuleSampler, answer, chancy, evaluation, examples, number, sampled

REWARDS = Rewards({"count": 1.0, "format": 0.2})


def test_every_item_is_asked_once_in_order_and_kept() -> None:
    rows = examples(count=20)
    sampler = RuleSampler(answer(rows, lambda n: n % 2 == 0, lambda n: n % 4 != 3), version=7)
    seen: list[tuple[int, int]] = []
    result = evaluate(sampler, NumberingRenderer(), REWARDS, rows, batch_size=8, name="n", progress=lambda done, total: seen.append((done, total)))
    assert [n for asked, _, _ in sampler.calls for n in asked] == list(range(20))
    assert seen == [(8, 20), (16, 20), (20, 20)]
    assert [item.id for item in result.items] == [row.id for row in rows]
    assert [item.correct for item in result.items] == [n % 2 == 0 and n % 4 != 3 for n in range(20)]
    assert [item.parsed is not None for item in result.items] == [n % 4 != 3 for n in range(20)]
    first = result.items[0]
    assert first.question == rows[0].question and first.images == (content_hash(rows[0].images[0]),)
    assert first.tags["kind"] == rows[0].meta["kind"] and first.tags["language"] == rows[0].meta["language"]
    assert first.scores == {"count": 1.0, "format": 1.0} and first.reward == pytest.approx(1.2)
    assert first.num_tokens == len(first.text) and not first.truncated
    assert result.version == 7


def test_greedy_by_default_with_the_renderers_stops_and_a_seed_per_item() -> None:
    rows = examples(count=6)
    sampler = RuleSampler(answer(rows, lambda n: True))
    evaluate(sampler, NumberingRenderer(), REWARDS, rows, batch_size=4, name="n")
    assert [params.temperature for _, params, _ in sampler.calls] == [0.0, 0.0]
    seeds = [seed for _, _, seeds_P in sampler.calls for seed in seeds_P]
    assert sampler.calls[0][1].stop_token_ids == (9,) and len(set(seeds)) == 6
    evaluate(sampler, NumberingRenderer(), REWARDS, rows, replace(GREEDY, stop_token_ids=(3, 9)), batch_size=6, name="n")
    assert sampler.calls[-1][1].stop_token_ids == (3, 9) and sampler.calls[-1][2] == seeds  # the batch does not matter
    evaluate(sampler, NumberingRenderer(), REWARDS, rows, replace(GREEDY, seed=1), batch_size=6, name="n")
    assert not set(sampler.calls[-1][2]) & set(seeds)


def test_batch_size_changes_nothing() -> None:
    rows = examples(count=11)
    say = answer(rows, lambda n: n % 3 > 0, lambda n: n % 4 > 0)
    results = [evaluate(RuleSampler(say), NumberingRenderer(), REWARDS, rows, batch_size=size, name="n") for size in (1, 4, 11, 100)]
    assert all(result.items == results[0].items for result in results)


def test_summary_rates_are_those_of_the_items() -> None:
    rows = examples(count=40)
    result = evaluation(rows, answer(rows, lambda n: n % 2 == 0, lambda n: n % 4 != 0))
    summary = result.summary
    assert summary["num_items"] == 40 and summary["num_errors"] == 0
    assert summary["accuracy"]["estimate"] == 10 / 40  # right and readable: n % 4 == 2
    assert summary["format_rate"]["estimate"] == 30 / 40
    assert summary["accuracy_given_parsable"]["estimate"] == 10 / 30
    assert summary["accuracy"]["low"] < 0.25 < summary["accuracy"]["high"]
    assert summary["scores"]["format"]["estimate"] == pytest.approx(0.75)
    assert summary["reward"]["estimate"] == pytest.approx(0.25 + 0.2 * 0.75)
    assert summary["mean_length"]["estimate"] == pytest.approx(sum(len(item.text) for item in result.items) / 40)
    assert summary["samples_per_second"] == pytest.approx(40 / result.total_seconds)


def test_nothing_readable_has_no_conditional_rate() -> None:
    rows = examples(count=5)
    assert evaluation(rows, lambda n: "?").summary["accuracy_given_parsable"] is None


def test_cut_answers_are_counted() -> None:
    rows = examples(count=4)
    result = evaluate(RuleSampler(lambda n: "x" * 30 if n < 3 else "x"), NumberingRenderer(), REWARDS, rows, replace(GREEDY, max_tokens=30), name="n")
    assert result.summary["truncated_fraction"]["estimate"] == 0.75


def test_a_grader_that_raises_and_a_row_that_cannot_be_read_are_counted_facts() -> None:
    class Broken(Sequence[Example]):
        rows = examples(count=5)

        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> Example:  # type: ignore[override]
            if index == 1:
                raise DataError("picture of 12 bytes is damaged")
            return self.rows[index]

    class Grader(OneByOne):
        def grade(self, example: Example, text: str) -> tuple[dict[str, float], float, str | None, bool, str | None]:
            if number(example) == 3:
                return {}, 0.0, None, False, "reward 'mine' raised ValueError (mine.py:3)"
            return {"a": math.nan if number(example) == 4 else 1.0}, 1.0, text, True, None

    result = evaluate(RuleSampler(lambda n: "3"), NumberingRenderer(), Grader(), Broken(), name="n")
    assert [item.error is not None for item in result.items] == [False, True, False, True, True]
    assert "12 bytes" in str(result.items[1].error) and "mine.py:3" in str(result.items[3].error) and "not finite" in str(result.items[4].error)
    summary = result.summary
    assert (summary["num_items"], summary["num_errors"], summary["accuracy"]["estimate"]) == (5, 3, 1.0)

    class Never(OneByOne):
        def grade(self, example: Example, text: str) -> tuple[dict[str, float], float, None, bool, str]:
            return {}, 0.0, None, False, "always"

    with pytest.raises(RewardError, match="none of 5 items could be graded; the first: always"):
        evaluate(RuleSampler(lambda n: "3"), NumberingRenderer(), Never(), examples(count=5), name="n")


def test_no_items_is_an_error() -> None:
    with pytest.raises(UsageError, match="no items"):
        evaluate(RuleSampler(lambda n: ""), NumberingRenderer(), REWARDS, [], name="n")


def test_json_gives_back_the_result(tmp_path: Path) -> None:
    rows = examples(count=12)
    result = evaluation(rows, answer(rows, lambda n: n > 5), name="trained-test", version=3, model="runs/a")
    path = tmp_path / "deep" / "x.json"
    result.to_json(path)
    assert EvalResult.from_json(path) == result
    tree = json.loads(path.read_text(encoding="utf-8"))
    assert tree["summary"] == result.summary and "圆形" in path.read_text(encoding="utf-8")
    assert EvalResult.from_json(path) != replace(result, version=4)


@pytest.mark.parametrize("damage", ["absent", "cut", "other", "list", "field"])
def test_damaged_files_are_named_in_one_line(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "x.json"
    EvalResult("x", (EvalItem("1", "q", "a"),), 1.0).to_json(path)
    text = path.read_text()
    if damage == "absent":
        path.unlink()
    else:
        texts = {"cut": text[:-30], "other": '{"seegrad_eval": 99}', "list": "[]", "field": text.replace('"truncated"', '"oops"')}
        path.write_text(texts[damage])
    with pytest.raises(RunError, match=r"x\.json") as caught:
        EvalResult.from_json(path)
    assert "\n" not in str(caught.value)


def test_an_interruption_leaves_the_old_file_and_no_part(tmp_path: Path) -> None:
    rows = examples(count=30)
    path = tmp_path / "x.json"
    evaluation(rows, answer(rows, lambda n: True)).to_json(path)
    before = path.read_bytes()

    class Interrupted(RuleSampler):
        def sample(self, prompts_P: Sequence[ModelInput], *rest: object, **more: object) -> list[list[Completion]]:
            if self.calls:
                raise KeyboardInterrupt
            return super().sample(prompts_P, *rest, **more)  # type: ignore[arg-type]

    with pytest.raises(KeyboardInterrupt):
        evaluate(Interrupted(lambda n: "1"), NumberingRenderer(), REWARDS, rows, batch_size=8, name="x").to_json(path)
    assert path.read_bytes() == before and [entry.name for entry in tmp_path.iterdir()] == ["x.json"]


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        EvalResult("x", (EvalItem("1", "q", "a"),), 1.0).to_json(tmp_path / "file" / "x.json")


def test_a_place_is_checked_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, message in ((tmp_path, "is a folder"), (Path(), "is a folder"), (tmp_path / "file/x.json", "is a file")):
        with pytest.raises(RunError, match=message):
            check_place(path)
    check_place(tmp_path / "new/er/x.json")
    check_place(tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_pictures_are_written_once_by_content(tmp_path: Path) -> None:
    rows = examples(count=6)
    assert write_images(rows, tmp_path) == 6 and write_images(rows, tmp_path) == 0
    for row in rows:
        assert (tmp_path / f"{content_hash(row.images[0])}.png").read_bytes() == row.images[0]


def test_sampled_evaluation_is_allowed() -> None:
    rows = examples(count=3)
    sampler = RuleSampler(answer(rows, lambda n: True))
    result = evaluate(sampler, NumberingRenderer(), REWARDS, rows, SamplingParams(temperature=0.7, seed=5), name="n")
    assert sampler.calls[0][1].temperature == 0.7 and result.params["temperature"] == 0.7


def test_evaluation_needs_neither_torch_nor_matplotlib() -> None:
    script = "import sys, seegrad.evaluate; sys.exit(' '.join(sorted({'torch', 'transformers', 'matplotlib'} & set(sys.modules))) or 0)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


WARM = SamplingParams(temperature=0.7)


def test_several_answers_share_a_prompt_and_are_kept_in_order() -> None:
    rows = examples(count=5)
    sampler = ChanceSampler(chancy(rows, lambda n: 0.5))
    seen: list[tuple[int, int]] = []
    result = evaluate(
        sampler, NumberingRenderer(), REWARDS, rows, WARM, num_samples=6, batch_size=2, name="n", progress=lambda *counts: seen.append(counts)
    )
    assert [asked for asked, _, _ in sampler.calls] == [[0, 1], [2, 3], [4]]  # once each: the six answers are one request
    assert seen == [(12, 30), (24, 30), (30, 30)]
    assert [(item.id, item.attempt, item.seed) for item in result.items] == [(row.id, attempt, 0) for row in rows for attempt in range(6)]
    assert len({item.text for item in result.items if item.id == rows[0].id}) > 1
    assert result.params["num_samples"] == 6 and result.params["seeds"] == [0] and "seed" not in result.params
    for size in (1, 5):
        again = evaluate(ChanceSampler(sampler._say), NumberingRenderer(), REWARDS, rows, WARM, num_samples=6, batch_size=size, name="n")
        assert again.items == result.items


def test_each_seed_of_several_is_the_evaluation_with_that_seed() -> None:
    rows = examples(count=6)
    both = sampled(rows, lambda n: 0.5, num_samples=3, seeds=(4, 9))
    assert [item.attempt for item in both.items[:6]] == [0, 1, 2, 3, 4, 5] and [item.seed for item in both.items[:6]] == [4] * 3 + [9] * 3
    for seed in (4, 9):
        alone = sampled(rows, lambda n: 0.5, num_samples=3, seeds=(seed,))
        part = [item for item in both.items if item.seed == seed]
        assert [(item.id, item.text, item.correct) for item in part] == [(item.id, item.text, item.correct) for item in alone.items]
    assert [item.text for item in both.items if item.seed == 4] != [item.text for item in both.items if item.seed == 9]


def test_several_greedy_answers_are_refused_before_anything_is_asked() -> None:
    rows = examples(count=2)
    sampler = RuleSampler(answer(rows, lambda n: True))
    with pytest.raises(UsageError, match=r"^3 answers to each item at temperature 0 are the same answer each time; give --temperature 0\.7"):
        evaluate(sampler, NumberingRenderer(), REWARDS, rows, num_samples=3, name="n")
    with pytest.raises(UsageError, match=r"^2 seeds at temperature 0"):
        evaluate(sampler, NumberingRenderer(), REWARDS, rows, seeds=(0, 1), name="n")
    assert not sampler.calls
    for wrong in ((0.7, 0, (0,)), (0.7, 1, (3, 3)), (0.7, 1, (-1,))):
        with pytest.raises(UsageError):
            check_sampling(*wrong)


def test_a_sampler_that_leaves_answers_out_is_named() -> None:
    class Short(RuleSampler):
        def sample(self, prompts_P: Sequence[ModelInput], *rest: object, **more: object) -> list[list[Completion]]:
            return [completions_G[:1] for completions_G in super().sample(prompts_P, *rest, **more)]  # type: ignore[arg-type]

    rows = examples(count=3)
    with pytest.raises(SamplerError, match=r"answered 3 of 3 prompts \[1\] times, asked for 4 times each"):
        evaluate(Short(lambda n: "1"), NumberingRenderer(), REWARDS, rows, WARM, num_samples=4, name="n")


def test_faults_are_counted_by_reason() -> None:
    class Rows(Sequence[Example]):
        rows = examples(count=6)

        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> Example:  # type: ignore[override]
            if index in (1, 4):
                raise DataError(f"row {index}: the picture is damaged", reason="damaged picture")
            return self.rows[index]

    class Grader(Rewards):
        def grade_groups(self, groups: Sequence[tuple[Example, Sequence[object]]]) -> list[list[object]]:  # type: ignore[override]
            pairs = zip(groups, super().grade_groups(groups), strict=True)  # type: ignore[arg-type]
            return [[grade if number(example) else grade._replace(error="it raised") for grade in row] for (example, _), row in pairs]

    sampler = ChanceSampler(chancy(examples(count=6), lambda n: 0.5))
    result = evaluate(sampler, NumberingRenderer(), Grader({"count": 1.0}), Rows(), WARM, num_samples=3, name="n")
    assert [item.id for item in result.items if item.reason == "damaged picture"] == ["row 1", "row 4"]  # once each: nothing was asked
    summary = result.summary
    assert summary["errors"] == {"grader failed": 3, "damaged picture": 2} and summary["num_errors"] == 5
    assert (summary["num_items"], summary["num_answers"], summary["answers_per_item"]) == (6, 14, 3)
    assert (summary["accuracy"]["num_items"], summary["accuracy"]["num_answers"]) == (3, 9)


def test_an_id_that_occurs_again_is_told_apart() -> None:
    rows = [replace(row, id="same-0") for row in examples(count=3)]
    result = evaluate(RuleSampler(lambda n: "1"), NumberingRenderer(), REWARDS, rows, name="n")
    assert [item.id for item in result.items] == ["same-0", "same-0 (2)", "same-0 (3)"] and result.summary["num_items"] == 3


def test_files_of_format_1_are_read(tmp_path: Path) -> None:
    rows = examples(count=8)
    result = evaluation(rows, answer(rows, lambda n: n % 2 == 0))
    path = tmp_path / "x.json"
    result.to_json(path)
    tree = json.loads(path.read_text(encoding="utf-8"))
    tree["seegrad_eval"] = 1
    tree["params"] = {**{key: value for key, value in tree["params"].items() if key not in ("seeds", "num_samples")}, "seed": 0}
    tree["items"] = [{key: value for key, value in item.items() if key not in ("attempt", "seed", "reason")} for item in tree["items"]]
    (tmp_path / "old.json").write_text(json.dumps(tree), encoding="utf-8")
    old = EvalResult.from_json(tmp_path / "old.json")
    assert old.items == result.items and old.summary == result.summary
    tree["seegrad_eval"] = 3
    path.write_text(json.dumps(tree))
    with pytest.raises(RunError, match="format 1 or 2"):
        EvalResult.from_json(path)


def test_several_answers_come_back_from_a_file_an_item_a_line(tmp_path: Path) -> None:
    result = sampled(examples(count=5), lambda n: 0.5, seeds=(0, 1))
    path = tmp_path / "x.json"
    result.to_json(path)
    assert EvalResult.from_json(path) == result
    lines = path.read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith('{"id"') for line in lines) == 40


@pytest.mark.parametrize(
    ("place", "key", "value"),
    [
        ("item", "num_tokens", "x"),
        ("item", "num_tokens", 10**400),
        ("item", "num_tokens", -1),
        ("item", "reward", math.nan),
        ("item", "scores", {"a": "b"}),
        ("item", "scores", [1]),
        ("item", "id", 7),
        ("item", "answer", None),
        ("item", "parsed", 3),
        ("item", "correct", "no"),
        ("item", "images", ["../../secret"]),
        ("item", "images", "abc"),
        ("item", "tags", ["a"]),
        ("item", "unknown", 1),
        ("head", "params", None),
        ("head", "params", {"seeds": 3}),
        ("head", "params", {"temperature": "hot"}),
        ("head", "version", "new"),
        ("head", "total_seconds", None),
        ("head", "name", None),
        ("head", "items", {"a": 1}),
        ("head", "seegrad_eval", True),
    ],
)
def test_a_value_of_another_kind_is_named_when_the_file_is_read(tmp_path: Path, place: str, key: str, value: object) -> None:
    path, rows = tmp_path / "x.json", examples(count=3)
    evaluation(rows, answer(rows, lambda n: True)).to_json(path)
    tree = json.loads(path.read_text(encoding="utf-8"))
    (tree["items"][0] if place == "item" else tree)[key] = value
    path.write_text(json.dumps(tree), encoding="utf-8")
    with pytest.raises(RunError, match=re.escape(str(path))) as raised:
        EvalResult.from_json(path)
    assert "\n" not in str(raised.value) and (key in str(raised.value) or key in ("items", "seegrad_eval"))


def test_a_file_of_brackets_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[" * 100_000)
    with pytest.raises(RunError, match="cannot be read as an evaluation"):
        EvalResult.from_json(tmp_path / "x.json")


def test_rows_that_cannot_be_used_are_the_datas_fault() -> None:
    class Lost(Sequence[Example]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: object) -> Example:  # type: ignore[override]
            raise DataError("there is no file 'a.png'", reason="picture missing")

    with pytest.raises(DataError, match=r"none of 2 items can be used; the first: there is no file") as raised:
        evaluate(RuleSampler(lambda n: ""), NumberingRenderer(), Rewards({"count": 1.0}), Lost(), name="x")
    assert raised.value.reason == "picture missing"
