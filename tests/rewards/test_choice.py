"""The strict rule: the last boxed letter, and nothing else in the box."""

from __future__ import annotations

import pytest

from seegrad.rewards.choice import choice, choice_tolerant, letter
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


CHOICES = ("45°", "60°", "75°", "90°")
NAMES_B = [
    *[
        "B",
        "b",
        "(B)",
        "（Ｂ）",
        "Ｂ",
        r"\text{B}",
        r"\textbf{B}",
        r"\mathrm{(B)}",
        r"\mathbf{B}.",
        "B.",
        "B．",
        "B、",
        "[B]",
        "B)",
        "选B",
        "选项B",
        "答案：B",
        "故选B",
    ],
    *[
        "Answer: B",
        "The answer is B",
        "option (B)",
        "正确答案是B",
        "$B$",
        r"\boxed{B}",
        "B. 60",
        "B. 60°",
        r"(B) 60^\circ".replace(") ", ")."),
        "B: 60 degrees",
        "60",
        r"60^\circ",
    ],
]


@pytest.mark.parametrize("content", NAMES_B)
def test_the_tolerant_rule_reads_what_models_write(content: str) -> None:
    example = Example("row-7", "?", "B", choices=CHOICES)
    assert choice_tolerant(example, f"so \\boxed{{{content}}}") == Score(1.0, "B", True)
    assert choice_tolerant(Example("row-7", "?", "C", choices=CHOICES), f"so \\boxed{{{content}}}") == Score(0.0, "B", False)


@pytest.mark.parametrize(
    "content", ["", " ", "AB", "A, B", "B, A", "A or B", "A和B", "B. A", "B. 45", "B. 45 or C", "E", "61", "45, 60", "B60", "BB", "Bob", "{B"]
)
def test_two_letters_or_none_are_no_answer(content: str) -> None:
    score = choice_tolerant(Example("row-7", "?", "B", choices=CHOICES), f"so \\boxed{{{content}}}")
    assert score == Score(0.0, None, False)


def test_the_content_must_belong_to_one_choice_only() -> None:
    assert letter("60", "ABCD", ("60°", "60cm", "1", "2")) is None
    assert letter("1", "ABCD", ("60°", "60cm", "1", "2")) == "C"
    assert letter("60°", "ABCD", ("60°", "60cm", "1", "2")) == "A", "the same text goes before the same value"
    assert letter(r"\frac{1}{2}", "ABCD", ("0.5", "1", "2", "3")) == "A"
    assert letter("相切", "ABCD", ("相交", "相切", "相离", "无法确定")) == "B"
    assert letter("60", "ABCD") is None


def test_as_many_letters_as_choices() -> None:
    example = Example("row-7", "?", "F", choices=tuple("123456"))
    assert choice_tolerant(example, r"\boxed{(f)}").correct is True
    assert choice_tolerant(example, r"\boxed{6}").correct is True
    assert choice_tolerant(example, r"\boxed{G}") == Score(0.0, None, False)
    assert choice_tolerant(row("A"), r"\boxed{E}") == Score(0.0, None, False)
    for gold in ("", "G", "7", "AB"):
        with pytest.raises(ValueError, match="expected a letter from A to F"):
            choice_tolerant(Example("row-7", "?", gold, choices=tuple("123456")), r"\boxed{A}")


@pytest.mark.parametrize("text", ["", "B", r"\boxed{B} or \boxed{C", r"\boxed{B", r"\boxed B"])
def test_the_tolerant_rule_needs_a_finished_box(text: str) -> None:
    assert choice_tolerant(row(), text) == Score(0.0, None, False)


def test_the_strict_rule_is_the_published_one() -> None:
    """Every form that only the tolerant rule reads."""
    for content in NAMES_B:
        if content.strip().upper() != "B" and content != r"\boxed{B}":
            assert choice(Example("row-7", "?", "B", choices=CHOICES), f"so \\boxed{{{content}}}") == Score(0.0, None, False)
