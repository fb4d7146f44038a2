"""Units at the end of a text: what is cut off, what it measures, what agrees."""

from __future__ import annotations

from fractions import Fraction

import pytest

from seegrad.rewards.units import UNITS, split, variables


@pytest.mark.parametrize(
    ("text", "rest", "same_as"),
    [
        ("8cm", "8", "cm"),
        ("8 centimetres", "8", "cm"),
        ("8厘米", "8", "cm"),
        ("20\\sqrt{2}海里", "20\\sqrt{2}", "nautical miles"),
        ("(\\sqrt{3}+1)小时", "(\\sqrt{3}+1)", "hours"),
        ("3 个小时", "3", "h"),
        ("3个", "3", "个"),
        ("140度", "140", "degrees"),
        ("¤18", "18", "dollars"),
        ("-¥5", "-5", "元"),
        ("5 nautical miles", "5", "海里"),
    ],
)
def test_one_unit(text: str, rest: str, same_as: str) -> None:
    assert split(text) == (rest, UNITS[same_as])


@pytest.mark.parametrize(
    ("text", "base", "exponent"),
    [
        *[(f"8{unit}", "cm", 2) for unit in ("cm^{2}", "cm^2", " cm ^ { 2 }", "平方厘米", " square centimeters", " sq cm", "cm2")],
        *[("8立方米", "m", 3), ("8 m^3", "m", 3), ("8 cubic meters", "m", 3), ("8 square units", "unit", 2)],
    ],
)
def test_areas_and_volumes(text: str, base: str, exponent: int) -> None:
    assert split(text) == ("8", UNITS[base].power(exponent))


def test_speeds() -> None:
    found = {split(text) for text in ("60km/h", "60千米/时", "60 千米每小时", "60 kilometers per hour")}
    assert found == {("60", UNITS["km"].times(UNITS["h"].power(-1)))}


@pytest.mark.parametrize("text", ["8", "x", "cm", "m", "8x", "2am", "\\sin", "\\alpha", "8cmx", "8 apples", "", "10^{3}", "8 cm^{4}", "A"])
def test_no_unit(text: str) -> None:
    assert split(text) == (text, None)


def test_what_agrees() -> None:
    cm, unit, degree, radian, square = UNITS["cm"], UNITS["units"], UNITS["度"], UNITS["rad"], UNITS["cm"].power(2)
    assert cm.agrees(UNITS["米"]) and square.agrees(UNITS["公顷"]) and UNITS["升"].agrees(cm.power(3))
    assert cm.agrees(unit) and unit.agrees(cm) and square.agrees(unit.power(2))
    for one, another in [
        (cm, square),
        (degree, radian),
        (cm, degree),
        (square, unit),
        (cm, UNITS["小时"]),
        (UNITS["元"], UNITS["dollar"]),
        (unit, UNITS["kg"]),
    ]:
        assert not one.agrees(another) and not another.agrees(one)


def test_scales_are_exact() -> None:
    assert UNITS["公顷"].scale == 10_000 and UNITS["毫升"].scale == UNITS["cm"].power(3).scale
    assert 60 * UNITS["km"].scale / UNITS["h"].scale == Fraction(1000, 60) * UNITS["m"].scale / UNITS["s"].scale


def test_letters_of_the_question() -> None:
    assert variables("AB=5m，BC=3 m，速度 5m/s，(单位:m)") == frozenset()
    assert variables("若 m+1=3，求 m") == {"m"}
    assert split("2m", frozenset("m")) == ("2m", None)
    assert split("2cm", frozenset("m")) == ("2", UNITS["cm"])
