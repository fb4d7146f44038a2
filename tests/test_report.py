"""Comparison and report: the numbers are those of the files, the refusals are one line, the page stands on its own."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from seegrad import page
from seegrad.compare import LengthBin, compare
from seegrad.errors import RunError, UsageError
from seegrad.evaluate import EvalItem, EvalResult, write_file
from seegrad.images import content_hash
from seegrad.report import report
from seegrad.statistics import NOTHING, Interval, wilson
from tests.reporting import answer, evaluation, examples, model, sampled, write_run


def shade(level: int) -> bytes:
    """A grey picture."""
    buffer = io.BytesIO()
    Image.new("RGB", (30, 30), (level, level, level)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def text(run: Path) -> str:
    path = report(run)
    assert path == run / "report" / "report.md"
    return path.read_text(encoding="utf-8")


def test_a_gain_of_form_alone_is_not_called_seeing() -> None:
    def right(n: int) -> bool:
        return n * 7 % 10 < 6

    found = compare(model(right, lambda n: n % 3 > 0, count=120), model(right, count=120, version=5))
    assert found.accuracy.difference.low > 0 and not found.accuracy_given_parsable.difference.excludes(0.0)
    assert found.parsable_in_both.difference == Interval(0.0, 0.0, 0.0)
    assert "That it sees better is not shown" in "\n".join(page.findings(found, {}))
    better = compare(model(right, lambda n: n % 3 > 0, count=120), model(lambda n: True, count=120, version=5))
    assert "It sees better, not only answers in a better form." in "\n".join(page.findings(better, {}))


def test_items_without_a_grade_are_left_out_and_counted() -> None:
    a, b = model(lambda n: True), model(lambda n: n > 0, version=1)
    broken = replace(b, items=(replace(b.items[0], error="grader raised"), *b.items[1:]))
    found = compare(a, broken)
    assert found.num_left_out == 1 and len(found.pairs) == 39 and found.accuracy.b.estimate == 1.0
    assert "1 items have no grade" in "\n".join(page.measured(found, page.name_models(a, broken)))
    with pytest.raises(UsageError, match="no item that is graded in both"):
        compare(a, replace(b, items=tuple(replace(one, error="x") for one in b.items)))


def test_the_first_line_says_what_happened(text: str) -> None:
    first = text.splitlines()[0]
    assert first.startswith("**The trained model answers 90.0 % of 40 test questions right, the base model 40.0 %: +50.0 points (95 % interval ")
    assert re.search(r" interval [\d.]+ to [\d.]+\)\.\*\*$", first)


def test_a_loss_and_a_draw_are_said_plainly() -> None:
    good, bad = model(lambda n: True), model(lambda n: n % 2 == 0, version=1)
    text = page.headline(compare(good, bad), page.name_models(good, bad))
    assert text.endswith("It got worse.") and "−50.0 points" in text
    same = replace(good, version=1)
    assert page.headline(compare(good, same), page.name_models(good, same)).endswith("The difference is within chance.")


def test_two_trained_models_are_not_called_base_and_trained() -> None:
    a, b = replace(model(lambda n: True), version=5, model="runs/a"), replace(model(lambda n: True), version=9, model="runs/b")
    assert page.name_models(a, b).long_b == "model B (runs/b, step 9)"
    assert page.name_models(b, a).short_a == "A"


def test_every_linked_figure_exists_and_is_a_picture(run: Path, text: str) -> None:
    links = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert {"rates.png", "form-and-sight.png", "examples.png", "splits.png", "lengths.png", "learning.png"} == set(links)
    for link in links:
        with Image.open(run / "report" / link) as picture:
            assert picture.width > 300 and len(picture.convert("RGB").getcolors(1 << 24) or ()) > 3


def test_the_page_follows_the_files(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("base-test", "trained-test"):
        tree = json.loads((run / "eval" / f"{name}.json").read_text())
        if name == "trained-test":
            tree["summary"] = {}  # not believed: recomputed from the items
            tree["items"] = [{**one, "correct": True} for one in tree["items"]]
        (copy / f"{name}.json").write_text(json.dumps(tree))
    text = report(copy).read_text()
    assert text.startswith("**The trained model answers 100.0 % of 40 test questions right, the base model 40.0 %")
    assert "learning.png" not in text and "The pictures were not found" in text  # no run around these files


def test_the_page_holds_both_splits_questions_and_chinese_answers(text: str) -> None:
    assert "Right on 40 `ood` questions:" in text and "## Beyond `test`" in text
    assert "圆形：共" in text and "By kind:" in text and "By gold answer:" in text
    assert "First tenth → last tenth" in text and "- reward: 0.575 → 1.48" in text


def test_files_run_directories_and_the_default_place(run: Path, tmp_path: Path) -> None:
    base, trained = run / "eval" / "base-test.json", run / "eval" / "trained-test.json"
    written = report(base, trained, tmp_path / "out")
    assert written == tmp_path / "out" / "report.md" and "learning.png" in written.read_text()
    backwards = report(run, base, tmp_path / "back").read_text()
    assert backwards.startswith("**Model B (tiny) answers 40.0 %")


def test_refusals_name_what_to_do(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        report(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="seegrad eval"):
        report(tmp_path)
    only = tmp_path / "only"
    only.mkdir()
    (only / "a.json").write_bytes((run / "eval" / "base-test.json").read_bytes())
    with pytest.raises(UsageError, match="no base and trained evaluation of the same items"):
        report(only)
    with pytest.raises(UsageError, match="0 of them the same"):
        report(run / "eval" / "base-test.json", run / "eval" / "base-ood.json", tmp_path / "x")
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run/eval/base-test.json").unlink()
    (tmp_path / "run/eval/base-ood.json").unlink()
    words = r"evaluate the base too: seegrad eval tiny --recipe \S+/run/config.toml --split test --num-items \d+ --out \S+/run/eval/base-test.json$"
    with pytest.raises(UsageError, match=words):
        report(tmp_path / "run")
    (only / "b.json").write_text("{")
    with pytest.raises(RunError, match=r"b\.json"):
        report(only)
    assert not (tmp_path / "x").exists()


def test_grounding_reports_the_mean_overlap(tmp_path: Path) -> None:
    rows = [EvalItem(str(n), "Where is the circle?", "1,2,30,40", parsed="1,2,30,40", scores={"iou": 0.2 + n / 100}, num_tokens=5) for n in range(40)]
    better = [replace(one, scores={"iou": one.scores["iou"] + (0.2, 0.4)[n % 2]}, correct=True) for n, one in enumerate(rows)]
    for name, items, version in (("base", rows, 0), ("trained", better, 9)):
        EvalResult(name, tuple(items), 1.0, version).to_json(tmp_path / f"{name}.json")
    text = report(tmp_path).read_text()
    assert "Mean overlap with the true box (IoU): 0.395 → 0.695, +0.300 (95 % interval 0.270 to 0.330)." in text


def test_nothing_readable_at_all_still_makes_a_page(tmp_path: Path) -> None:
    items = tuple(EvalItem(str(n), "图中有几个圆形？", "3", num_tokens=4) for n in range(20))
    for name, version in (("base", 0), ("trained", 9)):
        EvalResult(name, items, 1.0, version).to_json(tmp_path / f"{name}.json")
    text = report(tmp_path).read_text()
    assert "not to be compared" in text and "within chance" in text


def test_literal_text_survives_markdown() -> None:
    assert page.code("a `b` c") == "`` a `b` c ``" and page.code("") == "(empty)"
    assert page.fence("```x").startswith("````text\n") and page.table(["a"], [["x|y"]]).endswith("| x\\|y |")


def test_numbers_are_written_for_people() -> None:
    assert page.p_value(0.00001) == "< 0.0001" and page.p_value(0.0312) == "0.0312" and page.p_value(None) == "–"
    assert page.percent(NOTHING) == "none"


def test_several_answers_are_paired_with_several_and_drawn(tmp_path: Path) -> None:
    rows = examples(count=30)
    folder = tmp_path / "evals"
    for name, skill, version in (("base", 0.3, 0), ("trained", 0.6, 7)):
        sampled(rows, lambda n, skill=skill: skill, num_samples=4, seeds=(0, 1), name=f"{name}-k4", version=version).to_json(
            folder / f"{name}-k4.json"
        )  # type: ignore[misc]
        evaluation(rows, answer(rows, lambda n, every=version: n % 2 < every), name=name, version=version).to_json(folder / f"{name}.json")  # type: ignore[misc]
    text = report(folder).read_text(encoding="utf-8")
    assert text.startswith("**The trained model answers 100.0 % of 30 test questions right, the base model 0.0 %")  # once and greedily comes first
    assert "Right on 30 `test, 8 answers at 0.7` questions:" in text and "## Several answers to a question: `test, 8 answers at 0.7`" in text
    assert "| k | base, pass@k | trained, pass@k | base, maj@k | trained, maj@k |" in text and "standard deviation between seeds" in text
    assert "permutation p" in text and "McNemar p" in text and (folder / "report/passes.png").is_file()
    (folder / "base.json").unlink()
    (folder / "trained.json").unlink()
    text = report(folder).read_text(encoding="utf-8")
    assert "(exact permutation test)" in text and "from mostly wrong to mostly right" in text and "base mostly right" in text
    assert "seed 0, 1, 8 answers to each item" in text and "of 8 answers right" in text and "effective number of answers" in text


def test_once_against_several_answers_is_a_comparison_too(tmp_path: Path) -> None:
    rows = examples(count=20)
    evaluation(rows, answer(rows, lambda n: n % 2 == 0), name="base").to_json(tmp_path / "base.json")
    sampled(rows, lambda n: 0.9, name="trained", version=7).to_json(tmp_path / "trained.json")
    text = report(tmp_path).read_text(encoding="utf-8")
    assert "n = 20 items, 1 and 4 answers" in text and "| 4 | none |" in text
    across = report(tmp_path / "base.json", tmp_path / "trained.json", tmp_path / "out").read_text(encoding="utf-8")
    assert across.splitlines()[0] == text.splitlines()[0]


def test_flips_with_several_pictures_and_with_none(tmp_path: Path) -> None:
    pictures = [shade(level) for level in (10, 120, 230)]
    for data in pictures:
        write_file(tmp_path / "images" / f"{content_hash(data)}.png", data)
    shown = [tuple(content_hash(data) for data in pictures), (), (content_hash(pictures[0]),)]
    for name, version in (("base", 0), ("trained", 3)):
        items = tuple(
            EvalItem(str(n), "这些图中一共有几个圆形？", "3", images, parsed="3" if version else "2", correct=bool(version))
            for n, images in enumerate(shown)
        )
        EvalResult(name, items, 1.0, version).to_json(tmp_path / "eval" / f"{name}.json")
    text = report(tmp_path).read_text(encoding="utf-8")
    assert "**`0`**, gold answer `3`, 3 pictures" in text and "**`1`**, gold answer `3`, no picture" in text and "**`2`**, gold answer `3`\n" in text
    assert "examples.png" in text and "not found" not in text
    colors = {color for _, color in Image.open(tmp_path / "report/examples.png").convert("RGB").getcolors(1 << 24) or []}
    assert {(level, level, level) for level in (10, 120, 230)} <= colors
    for name in ("base", "trained"):
        result = EvalResult.from_json(tmp_path / "eval" / f"{name}.json")
        replace(result, items=tuple(replace(one, images=()) for one in result.items)).to_json(tmp_path / "text" / f"{name}.json")
    text = report(tmp_path / "text").read_text(encoding="utf-8")
    assert "examples.png" not in text and "not found" not in text and "### From wrong to right" in text


def test_faults_are_told_by_reason(tmp_path: Path) -> None:
    rows = examples(count=20)
    base, trained = evaluation(rows, answer(rows, lambda n: n % 2 == 0), name="base"), evaluation(rows, answer(rows, lambda n: True), version=2)
    broken = [replace(one, error="e", reason="grader failed" if n else "damaged picture") if n < 4 else one for n, one in enumerate(trained.items)]
    base.to_json(tmp_path / "base.json")
    replace(trained, name="trained", items=tuple(broken)).to_json(tmp_path / "trained.json")
    text = report(tmp_path).read_text(encoding="utf-8")
    assert "trained: 4 of 20 answers have no grade and count in no rate: 3 `grader failed`, 1 `damaged picture`" in text
    assert "of 16 test questions (4 more have no grade and do not count) right" in text.partition("\n")[0]


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ((0.1, 0.9, 0.1), "an inverted U: 90.0 % right at 10–19 tokens, 10.0 % for the shortest, 10.0 % for the longest."),
        ((0.9, 0.5, 0.1), "no inverted U is shown; the longest answers are right less often"),
        ((0.1, 0.5, 0.9), "no inverted U is shown; the longest answers are right more often"),
        ((0.5, 0.52, 0.5), "no dependence on length is shown"),
        ((0.1, 0.9, 0.1, 0.9, 0.1), "no inverted U is shown; it goes up and down more than once"),
        ((0.1, 0.5, 0.9, 0.5, 0.1), "an inverted U"),
        ((0.1, 0.9), "too alike in length"),
    ],
)
def test_the_shape_over_length_is_said_only_where_it_is_shown(rates: tuple[float, ...], said: str) -> None:
    bins = [LengthBin(10 * n, 10 * n + 9, 10 * n + 5, 100, 0, wilson(round(100 * rate), 100)) for n, rate in enumerate(rates)]
    assert said in page.arc(bins)


def test_what_is_missing_is_asked_for_in_the_same_way(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    for path in (tmp_path / "run/eval").glob("*.json"):
        path.unlink()
    sampled(examples(count=10), lambda n: 0.5, seeds=(0, 1), version=20).to_json(tmp_path / "run/eval/test-k4.json")
    with pytest.raises(UsageError, match=r"--num-items 10 --samples 4 --temperature 0\.7 --seeds 2 --out"):
        report(tmp_path / "run")


def test_other_json_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", num_items=10)
    (run / "eval" / "lab.json").write_text('{"model": "x", "items": []}')
    assert report(run).is_file()
    (run / "eval" / "broken.json").write_text("{")
    with pytest.raises(RunError, match=r"broken\.json cannot be read"):
        report(run)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "lab.json").write_text("{}")
    with pytest.raises(UsageError, match="holds no evaluation"):
        report(tmp_path / "other")


def test_a_damaged_picture_is_not_shown(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", num_items=10)
    for path in (run / "images").iterdir():
        path.write_bytes(path.read_bytes()[:50])
    text = report(run).read_text(encoding="utf-8")
    assert "The pictures were not found" in text and not (run / "report" / "examples.png").exists()


def test_the_command_for_the_missing_base_can_be_typed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", num_items=10)
    for path in (run / "eval").glob("*.json"):
        path.unlink()
    rows = examples(count=4)
    evaluation(rows, answer(rows, lambda n: True), version=3, split="train[12:]").to_json(run / "eval" / "x.json")
    with pytest.raises(UsageError) as raised:
        report(run)
    words = shlex.split(str(raised.value).partition("evaluate the base too: ")[2])
    assert words[:3] == ["seegrad", "eval", "tiny"] and words[words.index("--split") + 1] == "train[12:]"
    assert words[-1] == str(run / "eval" / "base-train-12.json") and "'train[12:]'" in str(raised.value)


def test_long_and_turning_texts_are_tamed() -> None:
    text = page.fence("a" * 3000 + "\u202e" + "b" * 3000)
    assert len(text) < page.MAX_TEXT + 200 and "characters left out" in text and text.count("a") < 3000
    assert page.fence("x\u202ey\u2067z") == "```text\nx\\u202ey\\u2067z\n```"


def test_a_gain_on_few_questions_is_not_called_one() -> None:
    rows = examples(count=3)
    for right, verdict in ((3, " The difference is within chance."), (0, " The difference is within chance.")):
        pair = [evaluation(rows, answer(rows, lambda n, upto=k: n < upto), version=v) for k, v in ((0, 0), (right, 9))]
        comparison = compare(pair[0], pair[1])
        said = page.headline(comparison, page.name_models(*pair))
        assert "(no interval)" in said and "interval 0.0" not in said and said.endswith(verdict)
    rows = examples(count=12)
    pair = [evaluation(rows, answer(rows, lambda n, upto=k: n < upto), version=v) for k, v in ((0, 0), (12, 9))]
    assert page.headline(compare(pair[0], pair[1]), page.name_models(*pair)).endswith("+100.0 points (no interval).")
