"""docs/graders.md says what each grader accepts and rejects: every row of it is graded, and the published rows are all there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.graders import accepted, right, wrong
from seegrad import registry
from seegrad.types import Example, Score
from tests.rewards.golds import golds

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "graders.md").read_text(encoding="utf-8")
Row = tuple[str, str, str, str]  # grader, answer, gold, verdict

ACCEPTED = [
    *[("140°", answer) for answer in ("140", r"140^\circ", "140°", "140 degrees")],
    *[("√{3}", r"\sqrt{3}"), ("2√{3}", r"2\sqrt{3}"), (r"\frac{√{3}}{2}", r"\frac{\sqrt3}{2}")],
    *[("8cm", answer) for answer in ("8", "8 cm", r"8\text{ cm}", r"8\mathrm{cm}")],
    *[(r"\frac{12}{5}", "2.4"), ("2.4", r"\frac{12}{5}"), ("3", "x=3")],
    *[("A", answer) for answer in ("A", "(A)", r"\text{A}", "a", "A.", "A. 45")],
    *[(r"2 \sqrt { 221 }", r"2\sqrt{221}"), (r"5 \sqrt { 3 }", "5√3")],
]
COUNTED = ["three", "3 shapes", r"\text{3 red circles}"]


def rows(section: str) -> list[Row]:
    """Every (grader, answer, gold, verdict) of a table of the page."""
    found = re.search(rf"<!-- {section} -->\n(.*?)<!-- end -->", PAGE, re.DOTALL)
    assert found is not None, section
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()[2:]]
    return [(grader, answer.strip("`"), gold.strip("`"), verdict) for names, answer, gold, verdict, *_ in lines for grader in names.split(", ")]


def verdict(grader: str, answer: str, gold: str) -> str:
    text = "no answer" if answer == "no box" else f"so \\boxed{{{answer}}}"
    score = registry.load("reward", grader)(Example("row", "?", gold), text)
    assert isinstance(score, Score) and score.correct is not None
    assert score.correct == (score.value >= 0.5)
    return "accept" if score.correct else "reject"


ROWS = [row for section in ("published", "others", "neighbours") for row in rows(section)]


@pytest.mark.parametrize("row", ROWS, ids=[f"row-{place}" for place in range(len(ROWS))])
def test_every_row_of_the_page(row: Row) -> None:
    grader, answer, gold, expected = row
    assert verdict(grader, answer, gold) == expected


@pytest.mark.parametrize(("gold", "answer"), ACCEPTED)
def test_the_published_rows_that_are_right(gold: str, answer: str) -> None:
    assert verdict("math", answer, gold) == "accept"
    assert ("math", answer, gold, "accept") in rows("published")
    if gold == "A":
        assert verdict("choice_tolerant", answer, gold) == "accept"


@pytest.mark.parametrize(
    ("gold", "answer"), [(r"\frac{√{3}}{2}", "√{3}"), ("8cm", "8m"), ("140°", "14°"), ("A", "B. 45"), ("3", "x=4"), ("50", r"50\%")]
)
def test_rows_next_to_the_published_ones_that_are_wrong(gold: str, answer: str) -> None:
    assert verdict("math", answer, gold) == "reject"


@pytest.mark.parametrize("answer", COUNTED)
def test_number_words_count_for_counting_only(answer: str) -> None:
    assert verdict("count", answer, "3") == "accept"
    assert verdict("math", answer, "3") == "reject"


def test_no_box_is_never_right() -> None:
    for grader in ("math", "choice", "choice_tolerant", "count", "iou"):
        gold = {"math": "None", "count": "3", "iou": "0,0,1,1"}.get(grader, "A")
        score = registry.load("reward", grader)(Example("row", "?", gold), "None")
        assert score == Score(0.0, None, False)


def test_as_many_neighbours_as_published_rows_and_both_verdicts() -> None:
    assert len(rows("neighbours")) + len(rows("others")) >= 2 * len(rows("published"))
    assert {row[3] for row in rows("published")} == {row[3] for row in rows("neighbours")} == {"accept", "reject"}


def test_the_measured_table_is_what_the_bench_prints() -> None:
    found = re.search(r"<!-- measured -->\n(.*?)\n<!-- end -->", PAGE, re.DOTALL)
    assert found is not None
    assert found[1] == accepted(golds())
    assert wrong().splitlines()[-1] == "| all | 800 | 0 |"
    assert right("8cm", "8") and not right("8cm", "9"), "the bench tells right from wrong"
