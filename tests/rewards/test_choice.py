"""The strict rule: the last boxed letter, and nothing else in the box."""

from __future__ import annotations

import pytest

from seegrad.rewards.choice import choice
from seegrad.types import Example, Score


def row(answer: str = "B") -> Example:
    return Example("row-7", "?", answer)


@pytest.mark.parametrize("text", [r"\boxed{B}", r"so \boxed{b}.", r"\boxed { B }", r"\BOXED{B}", r"\boxed{A} no, \boxed{B}", r"\boxed{B} \boxed{E}"])
def test_right(text: str) -> None:
    assert choice(row(), text) == Score(1.0, "B", True)


@pytest.mark.parametrize("text", [r"\boxed{A}", r"\boxed{B} no, \boxed{A}"])
def test_wrong(text: str) -> None:
    assert choice(row(), text) == Score(0.0, "A", False)


@pytest.mark.parametrize(
    "text", ["", "B", r"\boxed{}", r"\boxed{E}", r"\boxed{(B)}", r"\boxed{B.}", r"\boxed{\text{B}}", r"\boxed{B", r"\boxed B", r"\boxed{BB}"]
)
def test_unparsable(text: str) -> None:
    assert choice(row(), text) == Score(0.0, None, False)


def test_every_gold_letter_is_right_only_for_itself() -> None:
    for gold in "ABCD":
        assert [choice(row(gold.lower()), rf"\boxed{{{letter}}}").value for letter in "ABCD"] == [float(letter == gold) for letter in "ABCD"]


@pytest.mark.parametrize("gold", ["", "E", "3", "AB"])
def test_a_gold_answer_that_is_no_letter_is_an_error_not_a_zero(gold: str) -> None:
    with pytest.raises(ValueError, match="expected A, B, C or D"):
        choice(row(gold), r"\boxed{A}")
