"""Numbers in boxes, and words that say what was counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seegrad.rewards.counting import count, description, number
from seegrad.types import Example, Score


def row(answer: str = "3", kind: str = "circle") -> Example:
    return Example("row-7", "?", answer, meta={"kind": kind})


SAME_AS_THREE = [
    *[
        "3",
        "３",
        " 3 ",
        "3.0",
        "3.00",
        "+3",
        "＋３",
        "+ 3",
        "03",
        "3.",
        "3。",
        "$3$",
        r"\text{3}",
        "three",
        "Three",
        "三",
        "三个",
        "3个",
        "3 个圆形",
        "3 shapes",
    ],
    *[r"\text{3 red circles}", "three circles", r"3\text{ circles}", "\u30003\n", r"\mathrm{3}"],
]
NOT_THREE = ["2", "-3", "−3", "30", "3.5", "4.0", "two", "二", "十三", "thirteen", "3,000", "33"]
NO_NUMBER = [
    "",
    " ",
    "x",
    "3x",
    "3 x",
    "x=3",
    "3 or 4",
    "3, 4",
    "3-4",
    "3/1",
    "3%",
    "3²",
    "½",
    "1e3",
    "three or four",
    "三四",
    "三个或四个",
    "3 or four",
    "十十",
    "-",
    "٣",
]


@pytest.mark.parametrize("inside", SAME_AS_THREE)
def test_the_same_number(inside: str) -> None:
    assert count(row(), f"so \\boxed{{{inside}}}") == Score(1.0, "3", True)


@pytest.mark.parametrize("inside", NOT_THREE)
def test_another_number(inside: str) -> None:
    score = count(row(), f"so \\boxed{{{inside}}}")
    assert score.value == 0 and score.correct is False
    assert score.parsed != "3"


@pytest.mark.parametrize("inside", NO_NUMBER)
def test_no_number(inside: str) -> None:
    assert count(row(), f"so \\boxed{{{inside}}}") == Score(0.0, None, False)


@pytest.mark.parametrize("text", ["", "3", r"\boxed{3} no, \boxed{x}", r"\boxed{3", "so 3."])
def test_the_last_box_decides_and_without_one_there_is_no_answer(text: str) -> None:
    assert count(row(), text) == Score(0.0, None, False)


def test_the_last_of_several_boxes_counts() -> None:
    assert count(row(), r"\boxed{2} no, \boxed{3}").correct is True
    assert count(row(), r"\boxed{3} no, \boxed{2}").correct is False


@given(st.integers(-(10**12), 10**12))
def test_every_integer_is_read_in_each_of_its_forms(value: int) -> None:
    wide = str(value).translate({ord(digit): ord(digit) + 0xFEE0 for digit in "0123456789-"})
    assert [number(form) for form in (str(value), f"{value}.0", f" {value} ", wide, f"{value:,}")] == [str(value)] * 5
    assert number(str(value + 1)) != str(value)


def test_chinese_numerals_to_ninety_nine() -> None:
    digits = "零一二三四五六七八九"
    for value in range(100):
        tens, ones = divmod(value, 10)
        word = digits[ones] if not tens else (digits[tens] if tens > 1 else "") + "十" + (digits[ones] if ones else "")
        assert number(word) == str(value), word


def test_english_numerals_to_twenty() -> None:
    assert [number(word) for word in ("zero", "twelve", "thirteen", "sixteen", "twenty", "Six circles")] == ["0", "12", "13", "16", "20", "6"]
    assert number("twenty-one") is None and number("sixty") is None


def test_thousands_of_digits_do_no_harm() -> None:
    assert number("9" * 10_000) == "9" * 10_000


def test_a_gold_answer_that_is_no_number_is_an_error_not_a_zero() -> None:
    with pytest.raises(ValueError, match="expected a number"):
        count(row("many"), r"\boxed{3}")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("circle", r"圆形：上1，中2，下0。\boxed{3}"),
        ("circle", r"Circles: 1+2. \boxed{3}"),
        ("triangle", r"三角形有3个。\boxed{3}"),
        ("square", r"正方形：3。\boxed{3}"),
        ("square", "there are 3 squares"),
        ("Star", r"two stars \boxed{2}"),
    ],
)
def test_a_description_names_the_kind(kind: str, text: str) -> None:
    assert description(row(kind=kind), text) == 1


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("circle", r"\boxed{3}"),
        ("circle", ""),
        ("circle", r"三角形：3。\boxed{3}"),
        ("circle", r"\boxed{3} circles"),
        ("circle", r"\boxed{3 circles}"),
        ("square", "3 circles"),
    ],
)
def test_no_description(kind: str, text: str) -> None:
    assert description(row(kind=kind), text) == 0


def test_a_row_without_a_kind_is_an_error_not_a_zero() -> None:
    with pytest.raises(ValueError, match="kind"):
        description(Example("a", "?", "3"), "circles")
