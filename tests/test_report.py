"""Comparison and report: the numbers are those of the files, the refusals are one line, the page stands on its own."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from seegrad import figures, page
from seegrad.compare import compare, length_bins, slices
from seegrad.errors import RunError, UsageError
from seegrad.evaluate import EvalItem, EvalResult
from seegrad.report import report
from seegrad.statistics import NOTHING, Interval
from tests.reporting import answer, evaluation, examples, write_run

Rule = Callable[[int], bool]


def model(right: Rule, readable: Rule = lambda n: True, *, count: int = 40, version: int = 0) -> EvalResult:
    rows = examples(count=count)
    return evaluation(rows, answer(rows, right, readable), name=f"v{version}", version=version)


def result(*items: EvalItem, version: int = 0) -> EvalResult:
    return EvalResult(f"v{version}", items, 2.0, version, split="test")


def item(name: str, parsed: str | None, correct: bool, **more: object) -> EvalItem:
    return EvalItem(name, "q", "1", parsed=parsed, correct=correct, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def text(run: Path) -> str:
    path = report(run)
    assert path == run / "report" / "report.md"
    return path.read_text(encoding="utf-8")


def test_comparison_counts_by_hand() -> None:
    # a: right on 1, 2; readable on 1, 2, 3.   b: right on 2, 3, 4, 5; readable everywhere.
    a = result(item("1", "1", True), item("2", "1", True), item("3", "2", False), item("4", None, False), item("5", None, False))
    b = result(item("1", "2", False), item("2", "1", True), item("3", "1", True), item("4", "1", True), item("5", "1", True), version=3)
    found = compare(a, b)
    assert (found.accuracy.a.estimate, found.accuracy.b.estimate) == (0.4, 0.8)
    assert found.accuracy.difference.estimate == pytest.approx(0.4)
    assert [pair.a.id for pair in found.improved] == ["3", "4", "5"] and [pair.a.id for pair in found.worsened] == ["1"]
    assert found.accuracy.p == 10 / 16  # three against one: 2 · (1 + 4) / 2⁴
    assert found.format_rate.difference.estimate == pytest.approx(0.4)
    assert found.accuracy_given_parsable.a.estimate == 2 / 3 and found.accuracy_given_parsable.b.estimate == 4 / 5
    assert found.accuracy_given_parsable.difference.estimate == pytest.approx(4 / 5 - 2 / 3)
    assert found.num_parsable_in_both == 3 and found.parsable_in_both.difference.estimate == 0.0


def test_a_gain_of_form_alone_is_not_called_seeing() -> None:
    def right(n: int) -> bool:
        return n * 7 % 10 < 6

    found = compare(model(right, lambda n: n % 3 > 0, count=120), model(right, count=120, version=5))
    assert found.accuracy.difference.low > 0 and not found.accuracy_given_parsable.difference.excludes(0.0)
    assert found.parsable_in_both.difference == Interval(0.0, 0.0, 0.0)
    assert "That it sees better is not shown" in "\n".join(page.findings(found, {}))
    better = compare(model(right, lambda n: n % 3 > 0, count=120), model(lambda n: True, count=120, version=5))
    assert "It sees better, not only answers in a better form." in "\n".join(page.findings(better, {}))


def test_items_are_paired_by_id_not_by_place() -> None:
    a, b = model(lambda n: n < 20), model(lambda n: n < 30, version=1)
    mixed = replace(b, items=b.items[::-1])
    assert compare(a, mixed).accuracy == compare(a, b).accuracy
    assert len(compare(a, mixed).improved) == 10 and not compare(a, mixed).worsened
    renamed = [replace(one, id=other.id, question=other.question, answer=other.answer) for one, other in zip(mixed.items, a.items, strict=True)]
    by_place = replace(b, items=tuple(renamed))
    assert compare(a, by_place).worsened  # the planted error is noticed


def test_other_items_are_refused_with_both_counts() -> None:
    with pytest.raises(UsageError, match="'v0' has 40 items and 'v1' has 30, 30 of them the same") as caught:
        compare(model(lambda n: True), model(lambda n: True, count=30, version=1))
    assert "\n" not in str(caught.value)
    same = model(lambda n: True)
    with pytest.raises(UsageError, match="asks something else"):
        compare(same, replace(same, items=(replace(same.items[0], answer="99"), *same.items[1:])))
    with pytest.raises(UsageError, match="2 items with the id"):
        compare(same, replace(same, items=(*same.items, same.items[0])))


def test_items_without_a_grade_are_left_out_and_counted() -> None:
    a, b = model(lambda n: True), model(lambda n: n > 0, version=1)
    broken = replace(b, items=(replace(b.items[0], error="grader raised"), *b.items[1:]))
    found = compare(a, broken)
    assert found.num_left_out == 1 and len(found.pairs) == 39 and found.accuracy.b.estimate == 1.0
    assert "1 items have no grade" in "\n".join(page.measured(found, page.name_models(a, broken)))
    with pytest.raises(UsageError, match="no item that is graded in both"):
        compare(a, replace(b, items=tuple(replace(one, error="x") for one in b.items)))


def test_slices_split_all_items_and_keep_numbers_in_order() -> None:
    found = slices(compare(model(lambda n: n % 2 == 0), model(lambda n: True, version=1)))
    assert {"answer", "kind", "language"} <= set(found) and "task" not in found  # one value is no category
    assert all(sum(row.num_items for row in rows) == 40 for rows in found.values())
    assert [row.value for row in found["answer"]] == sorted((row.value for row in found["answer"]), key=float)


def test_length_bins_hold_every_answer_once() -> None:
    one = model(lambda n: n % 4 == 0)
    bins = length_bins(one)
    assert sum(row.num_items for row in bins) == 40
    assert sum(row.accuracy.estimate * row.num_items for row in bins) == pytest.approx(10)
    assert all(row.low <= row.mean_length <= row.high for row in bins)


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
    assert {"rates.png", "examples.png", "splits.png", "lengths.png", "learning.png"} == set(links)
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
    assert "Right on 40 `ood` questions:" in text and "## Beyond the test split" in text
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


def test_boxes_are_drawn_where_the_answers_are(tmp_path: Path) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (40, 40), "white").save(picture, "PNG")
    plain = figures.strip([figures.Shown((picture.getvalue(),), "t", ("l",))])
    boxed = figures.strip([figures.Shown((picture.getvalue(),), "t", ("l",), ((figures.COLOR_GOLD, (10, 10, 29, 29)),))])
    gold = tuple(int(figures.COLOR_GOLD[i : i + 2], 16) for i in (1, 3, 5))

    def count(data: bytes) -> int:
        colors = Image.open(io.BytesIO(data)).convert("RGB").getcolors(1 << 24) or []
        return {color: number for number, color in colors}.get(gold, 0)

    assert count(plain) == 0 and count(boxed) > 100


def test_grounding_reports_the_mean_overlap(tmp_path: Path) -> None:
    rows = [EvalItem(str(n), "Where is the circle?", "1,2,30,40", parsed="1,2,30,40", scores={"iou": 0.2 + n / 100}, num_tokens=5) for n in range(40)]
    better = [replace(one, scores={"iou": one.scores["iou"] + 0.3}, correct=True) for one in rows]
    for name, items, version in (("base", rows, 0), ("trained", better, 9)):
        EvalResult(name, tuple(items), 1.0, version).to_json(tmp_path / f"{name}.json")
    text = report(tmp_path).read_text()
    assert "Mean overlap with the true box (IoU): 0.395 → 0.695, +0.300 (95 % interval 0.300 to 0.300)." in text


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


def test_figures_open_no_window() -> None:
    script = "import sys, seegrad.report; sys.exit('pyplot' if 'matplotlib.pyplot' in sys.modules or 'torch' in sys.modules else 0)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_learning_curves_take_missing_values_and_two_runs() -> None:
    records = [{"step": 1, "reward": 0.5, "trainer/kl": None}, {"step": 2, "reward": None}, {"step": 3, "reward": 0.7}]
    assert figures.learning_curves({}) is None
    assert figures.learning_curves({"a": records, "b": records}, [(0, 0.1), (1, 0.5), (2, 0.6)]) is not None
