"""Finding boxes, and the reward for the right form."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seegrad.rewards.format import ascii_forms, boxes, format, last_box
from seegrad.types import Example

ROW = Example("row-7", "?", "3")


@pytest.mark.parametrize(
    "text",
    [
        r"1+2=3, so \boxed{3}",
        r"圆形：上1，中2，下0。1+2+0=3。\boxed{3}",
        r"so $\boxed{3}$",
        "so \\boxed{3}.\n",
        r"so \boxed {3}",
        r"so \boxed{\text{3}}。",
    ],
)
def test_the_right_form(text: str) -> None:
    assert format(ROW, text) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        r"\boxed{3}",
        "  $\\boxed{3}$",
        r"so \boxed{}",
        r"so \boxed{ }",
        r"so \boxed{3",
        r"so \boxed 3",
        r"so \boxed{3} and more",
        r"so \boxed{3} or \boxed{4}",
        r"so \boxed{3} or \boxed{4",
        r"so \boxed{\boxed{3}}",
        r"so boxed{3}",
    ],
)
def test_a_wrong_form(text: str) -> None:
    assert format(ROW, text) == 0


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        ("", []),
        (r"\boxed{1}\boxed{2}", ["1", "2"]),
        (r"\boxed{\frac{1}{2}} x", [r"\frac{1}{2}"]),
        (r"\boxed{a \boxed{b} c}", [r"a \boxed{b} c"]),
        (r"\boxed{1 \boxed{2}", ["2"]),
        (r"{ \boxed{1}", ["1"]),
        (r"} \boxed{1}}", ["1"]),
        (r"\boxed{\{1\}}", [r"\{1\}"]),
        ("\\\\boxed{1}", ["1"]),
        ("\\boxed{1\n2}", ["1\n2"]),
        (r"\boxed", []),
        (r"\boxed{", []),
    ],
)
def test_boxes(text: str, contents: list[str]) -> None:
    assert [box.content for box in boxes(text)] == contents
    last = last_box(text)
    assert (None if last is None else last.content) == (contents[-1] if contents else None)


@pytest.mark.parametrize("text", [r"\boxed{3} or \boxed{4", r"\boxed{3}, \boxed 4", r"\boxed{3} \boxed{"])
def test_a_box_before_one_that_is_cut_off_is_not_the_last(text: str) -> None:
    assert [box.content for box in boxes(text)] == ["3"] and last_box(text) is None


@given(st.lists(st.sampled_from(["\\boxed{", "\\boxed", "{", "}", "\\", "\\{", "x"]), max_size=30).map("".join))
def test_boxes_are_where_they_say(text: str) -> None:
    previous = 0
    for box in boxes(text):
        assert previous <= box.start < box.end <= len(text)
        assert text[box.start : box.end].startswith("\\boxed") and text[box.end - 1] == "}"
        assert text[box.start : box.end].endswith("{" + box.content + "}")
        previous = box.end


def test_a_text_made_to_be_slow_is_not() -> None:
    started = time.process_time()
    boxes("\\boxed{" * 100_000 + "}" * 100_000)
    assert time.process_time() - started < 2


def test_full_width_forms() -> None:
    assert ascii_forms("－３．５，（Ａ）\u3000−1、2") == "-3.5,(A) -1,2"
