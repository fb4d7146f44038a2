"""Penalties for length and for repetition, against slow and obvious references."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seegrad.rewards.base import Rewards
from seegrad.rewards.length import length, repetition
from seegrad.types import Answer, Example

ROW = Example("row-7", "?", "3")


def published(tokens: int, longest: int, cache: int) -> float:
    """Equation 13 of the DAPO paper, case by case."""
    if tokens <= longest - cache:
        return 0.0
    if tokens <= longest:
        return ((longest - cache) - tokens) / cache
    return -1.0


@given(st.integers(1, 50), st.integers(1, 30), st.integers(1, 30))
def test_length_is_the_published_penalty(tokens: int, longest: int, cache: int) -> None:
    if cache <= longest:
        assert length(ROW, "", tokens, max_tokens=longest, buffer=cache) == pytest.approx(published(tokens, longest, cache))


def test_the_reference_notices_an_error_of_one_token() -> None:
    assert length(ROW, "", 91, max_tokens=100, buffer=20) != pytest.approx(published(90, 100, 20))


def test_without_a_buffer_it_falls_at_once() -> None:
    assert [length(ROW, "", tokens, max_tokens=100, buffer=0) for tokens in (1, 100, 101)] == [0, 0, -1]


@pytest.mark.parametrize("limits", [{"max_tokens": 0}, {"max_tokens": 10, "buffer": 11}, {"buffer": -1}])
def test_limits_that_mean_nothing(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="0 ≤ buffer ≤ max_tokens"):
        length(ROW, "", 5, **limits)


def test_an_unknown_length_is_an_error_and_not_a_zero() -> None:
    settings = {"length": {"max_tokens": 100, "buffer": 20}}
    grades = Rewards({"length": 0.5}, settings=settings).grade_groups([(ROW, [Answer("a", 90), Answer("b", 200, truncated=True), "c"])])[0]
    assert [grade.reward for grade in grades] == [-0.25, -0.5, 0] and [grade.error is None for grade in grades] == [True, True, False]
    assert "the number of tokens of the answer is not known" in str(grades[2].error)


@pytest.mark.parametrize(
    ("text", "n", "value"),
    [
        ("", 3, 0),
        ("one two", 3, 0),
        ("one two three", 3, 0),
        ("one two three four five", 3, 0),
        ("One two, one TWO", 2, -1 / 4),  # the comma is a word: (one two) (two ,) (, one) (one two)
        ("a a a a", 1, -0.75),
        ("a a a a", 2, -2 / 3),
        ("数一数数一数", 3, -1 / 4),
        ("3 个圆，3 个圆", 2, -2 / 6),
    ],
)
def test_repetition(text: str, n: int, value: float) -> None:
    assert repetition(ROW, text, n=n) == pytest.approx(value)


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=12), st.integers(1, 4))
def test_repetition_is_the_share_of_runs_that_were_there_before(words: list[str], n: int) -> None:
    runs = [words[start : start + n] for start in range(len(words) - n + 1)]
    seen = sum(run in runs[:position] for position, run in enumerate(runs))
    assert repetition(ROW, " ".join(words), n=n, penalty=2.0) == pytest.approx(-2 * seen / len(runs) if runs else 0)


def test_an_endless_answer_is_near_the_whole_penalty_and_a_varied_one_is_not() -> None:
    generator = random.Random(0)
    assert repetition(ROW, "so the angle is 40 degrees. " * 500) < -0.99
    assert repetition(ROW, " ".join(str(generator.randrange(10**9)) for _ in range(3000))) == 0


@pytest.mark.parametrize("settings", [{"n": 0}, {"penalty": -1.0}])
def test_settings_that_mean_nothing(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="n ≥ 1 and penalty ≥ 0"):
        repetition(ROW, "a", **settings)  # type: ignore[arg-type]
