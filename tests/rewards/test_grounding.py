"""Intersection over union against counting pixels, and what is no rectangle."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from seegrad.rewards.grounding import iou, overlap, rectangle
from seegrad.types import Example, Score

SIDES = st.integers(-3, 12)
RECTANGLES = st.tuples(SIDES, SIDES, SIDES, SIDES)


def row(answer: str = "0,0,10,10") -> Example:
    return Example("row-7", "?", answer)


def counted(a: tuple[int, ...], b: tuple[int, ...]) -> float:
    """The slow way: unit squares that lie in both, by those that lie in either."""
    xs, ys = np.meshgrid(np.arange(-5, 15) + 0.5, np.arange(-5, 15) + 0.5)
    inside_a, inside_b = ((xs > box[0]) & (xs < box[2]) & (ys > box[1]) & (ys < box[3]) for box in (a, b))
    return float((inside_a & inside_b).sum() / (inside_a | inside_b).sum()) if inside_a.any() and inside_b.any() else 0.0


@given(RECTANGLES, RECTANGLES)
def test_overlap_is_the_share_of_pixels(a: tuple[int, int, int, int], b: tuple[int, int, int, int]) -> None:
    assert overlap(a, b) == pytest.approx(counted(a, b), abs=1e-12)
    assert overlap(a, b) == overlap(b, a)


def test_the_comparison_notices_a_box_off_by_one() -> None:
    assert counted((0, 0, 4, 4), (1, 0, 4, 4)) != pytest.approx(overlap((0, 0, 4, 4), (0, 0, 4, 4)))


@pytest.mark.parametrize(
    ("inside", "value", "parsed"),
    [
        ("0,0,10,10", 1.0, "0,0,10,10"),
        ("[0, 0, 10, 10]", 1.0, "0,0,10,10"),
        ("(0,0),(10,10)", 1.0, "0,0,10,10"),
        ("０，０，１０，１０", 1.0, "0,0,10,10"),
        ("5 0 10 10", 0.5, "5,0,10,10"),
        ("0,0,10,5.0", 0.5, "0,0,10,5"),
        ("-10,0,10,10", 0.5, "-10,0,10,10"),
        ("20,20,30,30", 0.0, "20,20,30,30"),
        ("10,10,0,0", 0.0, "10,10,0,0"),
        ("10,0,0,10", 0.0, "10,0,0,10"),
        ("5,5,5,5", 0.0, "5,5,5,5"),
        ("5,0,5,10", 0.0, "5,0,5,10"),
    ],
)
def test_values(inside: str, value: float, parsed: str) -> None:
    assert iou(row(), f"so \\boxed{{{inside}}}") == Score(value, parsed, value >= 0.5)


@pytest.mark.parametrize(
    "text",
    ["", "0,0,10,10", r"\boxed{}", r"\boxed{0,0,10}", r"\boxed{0,0,10,10,3}", r"\boxed{0,0,10,10} \boxed{no}", r"\boxed{0,0,10,1" + "0" * 400 + "}"],
)
def test_not_exactly_four_numbers_is_no_answer(text: str) -> None:
    assert iou(row(), text) == Score(0.0, None, False)


def test_enormous_coordinates_overlap_nothing_and_stay_finite() -> None:
    huge = "9" * 300
    assert iou(row(), f"\\boxed{{-{huge},-{huge},{huge},{huge}}}").value == 0


def test_half_is_correct_and_less_is_not() -> None:
    assert iou(row("0,0,100,10"), r"\boxed{0,0,50,10}").correct is True
    assert iou(row("0,0,100,10"), r"\boxed{0,0,49,10}").correct is False


@pytest.mark.parametrize("gold", ["", "1,2,3", "10,10,0,0", "5,5,5,5", "3"])
def test_a_gold_answer_that_is_no_rectangle_is_an_error_not_a_zero(gold: str) -> None:
    with pytest.raises(ValueError, match="x1 < x2"):
        iou(row(gold), r"\boxed{0,0,10,10}")


@pytest.mark.parametrize(("text", "numbers"), [("12-25,3,4", (12, 25, 3, 4)), ("1.5,+2,-3,4", (1.5, 2, -3, 4)), ("a1b2c3d4", (1, 2, 3, 4))])
def test_signs_and_separators(text: str, numbers: tuple[float, ...]) -> None:
    assert rectangle(text) == numbers


def picture(width: int, height: int) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (width, height)).save(data, format="PNG")
    return data.getvalue()


def test_relative_coordinates_are_declared() -> None:
    example = Example("row-7", "?", "20,10,100,50", images=(picture(200, 100),))
    inside = r"\boxed{100,100,500,500}"
    assert iou(example, inside, relative=1000) == Score(1.0, "100,100,500,500", True)
    assert iou(example, inside).value == 0.0
    assert iou(example, r"\boxed{20,10,100,50}").value == 1.0
    assert iou(example, r"\boxed{20,10,100,50}", relative=1000).correct is False


@pytest.mark.parametrize("relative", [-1.0, float("inf"), float("nan"), 1000.0])
def test_relative_coordinates_need_a_number_and_an_image(relative: float) -> None:
    with pytest.raises(ValueError, match="relative is"):
        iou(row(), r"\boxed{0,0,10,10}", relative=relative)


@pytest.mark.parametrize("content", ['{"bbox_2d": [0, 0, 10, 10], "label": "circle"}', '[{"bbox_2d": [0, 0, 10, 10]}]', "<box>(0,0),(10,10)</box>"])
def test_the_names_that_models_give_a_rectangle_are_no_coordinates(content: str) -> None:
    assert iou(row(), f"so \\boxed{{{content}}}").value == 1.0


@pytest.mark.parametrize("gold", ["None", "null", "no box"])
def test_two_times_nothing_is_not_right(gold: str) -> None:
    with pytest.raises(ValueError, match="x1 < x2"):
        iou(row(gold), "None")
