"""`math` on golds in the forms of real data sets, on golds that cannot be read, and with and without math-verify."""

from __future__ import annotations

import importlib.util
import threading
from collections import Counter

import pytest

from seegrad.rewards import library
from seegrad.rewards.math import math
from seegrad.rewards.numbers import Unreadable
from seegrad.rewards.reading import read, same
from seegrad.types import Example, Score
from tests.rewards.golds import FORMS, golds

needs_package = pytest.mark.skipif(importlib.util.find_spec("math_verify") is None, reason="math-verify is not installed")


def grade(gold: str, content: str, question: str = "?", tolerance: float = 0.0) -> Score:
    return math(Example("row-7", question, gold), f"so \\boxed{{{content}}}", tolerance=tolerance)


def test_right_answers_are_accepted_in_every_writing() -> None:
    """At least 97 % is promised, of every form and every writing; what the data set itself writes is always right."""
    total: Counter[tuple[str, str]] = Counter()
    good: Counter[tuple[str, str]] = Counter()
    for gold in golds():
        for name, content in gold.writings():
            total[gold.form, name] += 1
            good[gold.form, name] += grade(gold.text, content).correct is True
    assert sum(count for (_, name), count in total.items() if name == "LaTeX") >= 750
    assert {form for form, _ in total} == set(FORMS)
    assert all(good[key] >= 0.97 * total[key] for key in total)
    assert all(good[key] == total[key] for key in total if key[1] in ("verbatim", "LaTeX"))


@pytest.mark.parametrize(
    "gold",
    [
        *["48", "-3", "0", "2 \\sqrt { 221 }", "\\frac { 20 } { 3 }", "\\frac { 12 \\sqrt { 3 } } { 5 }", "\\boxed{32.5}", "$5$", "270", "1,234"],
        *["90°-α", "180°-2α", "100sin35°", "\\frac{5}{\\cos\\alpha}米", "6\\tan50°", "60°30′", "30°或150°", "60度", "1:2", "1:√{3}", "(3,-4)"],
        *["y=2x+1", "5<x<7", "x≥2", "\\frac{1}{2}ab", "a^2+b^2", "√{a^2+b^2}", "2π-√{3}", "(√{3}+1)小时", "20√{2}海里", "60千米/时", "不变", "①③④"],
        *[
            "等腰直角三角形",
            "Yes",
            "no",
            "x",
            "C",
            "None",
            "75%",
            "3.0×10^{8}",
            "\\{1,2\\}",
            "[1,2)",
            "(-∞,3]",
            "2±√{3}",
            "\\$18",
            "½",
            "3½",
            "12:30",
        ],
        *["\\sqrt{2+\\sqrt{5}}", "\\log_2 3", "e^2", "10^{10^{10}}", "1/2004!", "\\frac{√{3}}{3}m²", "8厘米", "3个", "15元"],
    ],
)
def test_a_gold_is_right_when_it_is_copied(gold: str) -> None:
    assert grade(gold, gold).value == 1
    assert grade(gold, f"${gold}$").value == 1 or "$" in gold


@pytest.mark.parametrize("gold", ["", " ", "$$", "\\frac{1}{", "3x2", "2\\frac{4}{3}", "1/0", "3 red circles", "#", "\\foo", "-", "1..2", "x" * 500])
def test_a_gold_that_cannot_be_read_is_an_error_not_a_zero(gold: str) -> None:
    for text in ("nothing", "so \\boxed{3}"):
        with pytest.raises(ValueError, match="cannot be read"):
            math(Example("row-7", "?", gold), text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "\\boxed{}",
        "\\boxed{ }",
        "\\boxed 3",
        "\\fbox{3}",
        "\\boxed{3",
        "\\boxed{3} or \\boxed{4",
        "\\boxed{3} or \\boxed 4",
        "\\boxed{\\foo}",
        "None",
    ],
)
def test_no_answer(text: str) -> None:
    assert math(Example("row-7", "?", "3"), text) == Score(0.0, None, False)


def test_the_last_box_decides_and_parsed_is_what_it_holds() -> None:
    assert math(Example("a", "?", "3"), "\\boxed{2}, no, \\boxed{ x =\n3 }") == Score(1.0, "x = 3", True)
    assert math(Example("a", "?", "3"), "\\boxed{3}, no, \\boxed{2}") == Score(0.0, "2", False)
    assert math(Example("a", "?", "B"), "so \\boxed{(b)}") == Score(1.0, "B", True)
    assert math(Example("a", "?", "B", choices=("1", "2", "3", "4")), "so \\boxed{2}") == Score(1.0, "B", True)


def test_a_letter_that_the_question_uses_is_no_unit() -> None:
    assert grade("2m", "2").correct is True
    assert grade("2m", "2", "长为 5m，求宽").correct is True
    assert grade("2m", "2", "若直线 y=mx 过点 A").correct is False
    assert grade("2m", "2m", "若直线 y=mx 过点 A").correct is True


def test_the_tolerance_is_asked_for() -> None:
    assert grade("100", "101").correct is False
    assert grade("100", "101", tolerance=0.01).correct is True
    assert grade("100", "101.1", tolerance=0.01).correct is False
    assert grade("π", "3.14", tolerance=0.001).correct is True
    assert grade("(3,4)", "(3,4.001)", tolerance=0.001).correct is True
    assert grade("100cm", "1.01m", tolerance=0.01).correct is False, "the tolerance is for the number, in the unit of the gold"
    for tolerance in (-0.1, 1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="tolerance"):
            grade("3", "3", tolerance=tolerance)


@needs_package
@pytest.mark.parametrize(
    ("gold", "content", "right"),
    [
        ("10", r"\binom{5}{2}", True),
        (r"\binom{5}{2}", "10", True),
        (r"\frac{π}{4}", r"\arctan 1", True),
        (r"\frac{π}{4}", r"\arctan 2", False),
        ("3", "|-3|", True),
        (r"\sin 36°\cos 36°", r"\frac{1}{2}\sin 72°", False),  # equal, but the package knows no degrees: rejected in doubt
        (r"\sqrt{2+\sqrt{5}}\sqrt{2+\sqrt{5}}", r"2+\sqrt{5}", True),
        (r"\sqrt{a^2}", "a", False),
        (r"\binom{5}{2}", "11", False),
        (r"\binom{5}{2}", "x2", False),
    ],
)
def test_the_library_is_asked_last(gold: str, content: str, right: bool) -> None:
    assert grade(gold, content).correct is right


def test_without_the_library_the_reader_decides_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_package", lambda: None)
    library._expression.cache_clear()
    try:
        assert grade("8cm", "8").correct is True
        assert grade("10", r"\binom{5}{2}") == Score(0.0, None, False)
        with pytest.raises(ValueError, match=r"pip install 'seegrad\[math\]'"):
            grade(r"\binom{5}{3}", "10")
    finally:
        library._expression.cache_clear()


@needs_package
def test_it_works_off_the_main_thread() -> None:
    found: list[Score] = []
    thread = threading.Thread(target=lambda: found.append(grade(r"\frac{π}{4}", r"\arctan{1}")))
    thread.start()
    thread.join()
    assert found[0].correct is True


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ("1/2", "0.5", True),
        (r"\sqrt{8}", r"2\sqrt{2}", True),
        (r"\sqrt{4+2\sqrt{3}}", r"1+\sqrt{3}", True),
        (r"\frac{1}{\sqrt{5}+2}", r"\sqrt{5}-2", True),
        (r"\sin 30°", "1/2", True),
        (r"\cos\frac{\pi}{3}", "1/2", True),
        (r"\cos 55°", r"\sin 35°", True),
        (r"\tan 150°", r"-\frac{\sqrt{3}}{3}", True),
        (r"\sin 30", "1/2", False),
        (r"\log_2 8", "3", True),
        (r"\ln 6", r"\ln 2+\ln 3", True),
        ("(a+b)^2", "a^2+2ab+b^2", True),
        (r"\frac{x^2-1}{x-1}", "x+1", True),
        ("2^{10}", "1024", True),
        ("10^{10^{10}}", "10^{10^{11}}", None),
        (r"\tan 20°", r"\frac{\sin 20°}{\cos 20°}", None),
        (r"\sin 20°", r"\sin 21°", False),
        (r"\sqrt{2}", "1.41421356237309504880168872420969807856967187537694", False),
        (r"\pi", r"\frac{355}{113}", False),
    ],
)
def test_values_are_compared_exactly(a: str, b: str, verdict: bool | None) -> None:
    assert same(read(a), read(b)) is verdict
    assert same(read(b), read(a)) is verdict


def test_what_could_not_be_read_is_remembered_as_that() -> None:
    for _ in range(2):
        with pytest.raises(Unreadable):
            read("2\\frac{4}{3}")
