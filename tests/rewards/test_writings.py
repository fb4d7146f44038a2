"""Writings of answers, with verdicts that were decided before anything was graded: `= gold`, `+ right`, `- wrong`, one a line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from seegrad.rewards.math import math
from seegrad.rewards.phrases import bare
from seegrad.types import Example


def rows() -> Iterator[tuple[str, str, bool]]:
    """(gold, content of the box, whether it is right)."""
    gold = ""
    for line in Path(__file__).with_name("writings.txt").read_text(encoding="utf-8").splitlines():
        sign, text = line[0], line[2:]
        if sign == "=":
            gold = text
        else:
            yield gold, text, {"+": True, "-": False}[sign]


def accepted(gold: str, content: str) -> bool:
    return math(Example("row-7", "?", gold), f"so \\boxed{{{content}}}").correct is True


@pytest.mark.parametrize("right", [True, False], ids=["right", "wrong"])
def test_every_writing_gets_its_verdict(right: bool) -> None:
    asked = [(gold, content) for gold, content, verdict in rows() if verdict is right]
    assert len(asked) > 700
    assert [pair for pair in asked if accepted(*pair) is not right] == []


def test_a_name_that_both_sides_give_must_be_the_same() -> None:
    for gold, wrong in [
        (r"\sin A=0.6", r"\cos A=0.6"),
        ("AB:BC=1:2", "BC:AB=1:2"),
        (r"\angle1=30^\circ", r"\angle2=30^\circ"),
        ("面积为12", "周长为12"),
    ]:
        assert accepted(gold, gold) and accepted(gold, wrong.partition("=")[2] or "12") and not accepted(gold, wrong)


def test_words_that_change_an_answer_stay() -> None:
    for text in ("不为24", "小于24", "至少24", "24以上", "非24", "比24大"):
        assert bare(text) == text and not accepted("24", text)


def test_ranges_are_intervals_but_points_are_not() -> None:
    assert accepted("1<x<5", "(1,5)") and not accepted("(1,5)", "1<x<5") and accepted("(2,+∞)", "x>2")
    assert not accepted("1<x≤5", r"y\in(1,5]") and not accepted("x<1或x>5", "x<1且x>5")
