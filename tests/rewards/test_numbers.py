"""Exact values against floating point: what is equal is close, and what is close by construction is equal."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seegrad.rewards.decimals import decimal, same, sine, tangent
from seegrad.rewards.expression import evaluate
from seegrad.rewards.numbers import DEGREE, Unreadable, atom, multiply, power, rational, root

NUMBERS = st.one_of(
    st.integers(1, 60).map(lambda number: (str(number), float(number))),
    st.integers(1, 60).map(lambda number: (rf"\sqrt{{{number}}}", math.sqrt(number))),
    st.just(("π", math.pi)),
    st.integers(1, 999).map(lambda number: (f"{number / 100:.2f}", number / 100)),
)
OPERATIONS = {
    "+": (r"({}+{})", lambda a, b: a + b),
    "*": (r"{}*{}", lambda a, b: a * b),
    "/": (r"\frac{{{}}}{{{}}}", lambda a, b: a / b),
    "-": (r"({}-{}+100)", lambda a, b: a - b + 100),
}


def _joined(parts: tuple[tuple[str, float], tuple[str, float], str]) -> tuple[str, float]:
    (a, x), (b, y), sign = parts
    form, function = OPERATIONS[sign]
    return form.format(a, b), function(x, y)


EXPRESSIONS = st.recursive(NUMBERS, lambda inner: st.tuples(inner, inner, st.sampled_from(sorted(OPERATIONS))).map(_joined), max_leaves=5)


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS)
def test_values_are_those_of_floating_point(expression: tuple[str, float]) -> None:
    text, expected = expression
    value = evaluate(text)
    number = decimal(value)
    assert number is not None
    assert float(number) == pytest.approx(expected, rel=1e-9)
    assert same(value, evaluate(f"({text})+0")) is True
    assert same(value, evaluate(rf"\frac{{({text})*\sqrt{{12}}}}{{2\sqrt{{3}}}}")) is True
    assert same(value, evaluate(rf"({text})+10^{{-30}}")) is False, "the comparison notices a difference that floating point does not"


@given(st.integers(1, 10**6), st.integers(2, 5))
def test_roots_of_powers(number: int, index: int) -> None:
    assert root(rational(number**index), index).fraction() == number
    assert same(power(root(rational(number), index), rational(index)), rational(number)) is True
    assert same(root(rational(number**index + 1), index), rational(number)) is False


def test_sines_of_all_degrees() -> None:
    for degrees in range(-400, 400, 5):
        angle = multiply(rational(degrees), atom(DEGREE))
        number = decimal(sine(angle))
        assert number is not None and float(number) == pytest.approx(math.sin(math.radians(degrees)), abs=1e-12)
        if degrees % 180 != 90:
            slope = decimal(tangent(angle))
            assert slope is not None and float(slope) == pytest.approx(math.tan(math.radians(degrees)), abs=1e-9)


@pytest.mark.parametrize(
    ("text", "value"), [("2^{-2}", Fraction(1, 4)), ("8^{2/3}", Fraction(4)), ("(-8)^{1/3}", Fraction(-2)), ("0.5!", None), ("5!", Fraction(120))]
)
def test_powers(text: str, value: Fraction | None) -> None:
    if value is None:
        with pytest.raises(Unreadable):
            evaluate(text)
    else:
        assert evaluate(text).fraction() == value


@pytest.mark.parametrize(
    "text",
    ["1/0", "0^0", "0^{-1}", r"\sqrt{-1}", r"\tan 90°", r"\ln 0", "3001!", "1e99999", "9" * 5000, "2 3", "x2", "2\\frac{4}{3}", "", "+", "a b c red"],
)
def test_what_has_no_value(text: str) -> None:
    with pytest.raises(Unreadable):
        evaluate(text)
