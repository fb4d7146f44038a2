"""Wrong answers are not accepted, and no text makes the grader raise, hang or recurse without end."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seegrad.rewards.choice import choice_tolerant
from seegrad.rewards.math import math
from seegrad.types import Example, Score
from tests.rewards.golds import golds, wrong_answers

FALSE_ACCEPTS = [
    *[(r"\frac{1}{2006!}", r"\frac{1}{2004!}"), ("2021", "±2021"), ("±2021", "2021"), ("1:00", "12:00"), (r"1+\frac{1}{e}", r"1-\frac{1}{e}")],
    *[(r"4\sqrt(2)", "4"), ("4", r"4\sqrt(2)"), ("50", r"50\%"), (r"50\%", "50"), ("3.5", "35"), ("-3", "3"), (r"2 \sqrt { 221 }", r"7\sqrt{221}")],
    *[
        (r"\frac{20}{3}", "3"),
        ("48", "0.48"),
        ("48", "4800"),
        ("x+y=3", "x+y=4"),
        ("x=1,y=2", "x=2,y=1"),
        ("y=x", "y=-x"),
        ("1+1/2004!", "1+1/2006!"),
    ],
    *[
        ("2", "we get 48 in step 2"),
        ("8cm", "8m"),
        ("8cm²", "8cm"),
        ("8cm", "8cm^3"),
        ("90°", r"\frac{\pi}{2}"),
        ("90°", r"90\text{ rad}"),
        ("π", "3.14"),
    ],
    *[("3.14", "22/7"), ("π", "3.14159265358979323846264338327950288"), (r"\sqrt{2}", "1.4142"), ("1/3", "0.333"), ("1.5", "1,5"), ("12", "1 2")],
    *[
        ("(1,2)", "(2,1)"),
        ("(1,2)", "[1,2]"),
        ("(1,2]", "[1,2)"),
        ("x<3", "x≤3"),
        ("x<3", "x>3"),
        ("1:2", "2:1"),
        ("12:30", "2:5"),
        ("10^{10^{10}}", "10^{10^{9}}"),
    ],
    *[
        ("A", "B"),
        ("A", "AB"),
        ("A", "A, B"),
        ("A", "A or B"),
        ("5", r"5 \text{ or } 6"),
        ("5", "5, 6"),
        ("①②", "12"),
        ("60°30′", "60.3°"),
        ("x", "y"),
    ],
    *[
        ("∞", r"-\infty"),
        ("3", "three"),
        ("3", "3 red circles"),
        ("1/2a", "1/(2a)"),
        ("2^{10}", "210"),
        ("√{12}", "√12/2"),
        (r"\sin 30°", r"\sin 30"),
    ],
]

HARD = [
    *[
        "{" * 5000 + "5" + "}" * 5000,
        "(" * 190 + "5" + ")" * 190,
        r"\frac{1}{" * 40 + "1" + "}" * 40,
        r"\sqrt{" * 60 + "2" + "}" * 60,
        r"\sin" * 90,
        "-" * 390,
    ],
    *[
        "9" * 5000,
        "9" * 390,
        "1e400",
        "1e-400",
        "1e99999999999",
        "10^{10^{10}}",
        "9^{9^{9^9}}",
        "2^{99999}",
        "3000!" * 70,
        r"\sqrt{3000!}",
        "2000!!!!",
        "e^{e^{e^{e}}}",
    ],
    *[
        "(a+b+c+d)^{32}",
        "(a+b)^{32}*(c+d)^{32}",
        "(x+y)" * 70,
        "(π+1)" * 70,
        r"\sqrt{2+\sqrt{3}}" * 20,
        "+".join(rf"\sqrt{{{number}}}" for number in range(40)),
    ],
    *[
        "+".join(rf"\sin {number}°" for number in range(40)),
        r"\sin(10^{50}°)",
        r"\sin 10^{9}",
        r"\ln(\ln(\ln 2))",
        r"\sqrt{" + "7" * 380 + "}",
        "7^{" + "7" * 300 + "}",
    ],
    *[
        "±" * 300,
        "1," * 190,
        "(1,2)," * 60,
        "[" * 190 + "1,2" + "]" * 190,
        r"\{" * 90 + "1" + r"\}" * 90,
        "x=" * 190 + "3",
        "5 cm/" + "s/" * 180,
        "平方" * 190,
        "选" * 390,
    ],
    *[
        "\x00",
        "\ud800",
        "\u202e5",
        "٣",
        "𝟓",
        "",
        "\\",
        "^",
        "_",
        "{",
        "}",
        "$",
        r"\frac",
        r"\sqrt[",
        r"\log_",
        "1/0",
        "0^0",
        "1..2",
        "=",
        "≈",
        ":",
        ",",
        "±",
        "°",
        "%",
        "!",
    ],
    *[
        r"\int_0^1 x dx",
        r"\sum_{n=1}^{99999999} n",
        r"\begin{pmatrix}1\\2\end{pmatrix}",
        r"\binom{99999}{5000}",
        "|" * 300,
        r"\arctan" * 50,
        r"\exp\exp\exp\exp 9",
    ],
]
GOLDS = [
    "3",
    "140°",
    "8cm",
    "√{3}",
    r"\frac{12}{5}",
    "3.14",
    "(3,4)",
    r"\{1,2\}",
    "1:2",
    "x<3",
    "100sin35°",
    "A",
    "相等",
    "None",
    "60°或120°",
    "2π-√{3}",
]


def grade(gold: str, content: str) -> Score:
    return math(Example("row-7", "?", gold), f"so \\boxed{{{content}}}")


def test_no_changed_gold_is_accepted() -> None:
    pairs = wrong_answers()
    assert len(pairs) >= 500 and len({kind for kind, _, _ in pairs}) >= 7
    assert [pair for pair in pairs if grade(pair[1], pair[2]).value] == []
    unread = Counter(kind for kind, gold, content in pairs if grade(gold, content).parsed is None)
    assert not unread, "they are rejected for their value, not because nothing was read"


def test_the_wrong_answers_are_wrong_only_by_the_change() -> None:
    """The same writing of the gold itself is right: what rejects the pairs is not their form."""
    for gold in golds():
        assert grade(gold.text, f"{{({gold.value.write()})}}").value == 1


@pytest.mark.parametrize(("gold", "content"), FALSE_ACCEPTS)
def test_no_known_false_accept(gold: str, content: str) -> None:
    assert grade(gold, content).value == 0
    assert grade(gold, gold).value == 1


@pytest.mark.parametrize("content", HARD, ids=[f"hard-{place}" for place in range(len(HARD))])
def test_hard_texts_are_wrong_answers_and_nothing_else(content: str) -> None:
    started = time.process_time()
    for gold in GOLDS:
        assert grade(gold, content).value == 0
    assert choice_tolerant(Example("row-7", "?", "A", choices=("1/0", "2", "3", "4")), f"so \\boxed{{{content}}}").parsed in (None, "A")
    assert time.process_time() - started < 10


PIECES = [
    *[
        r"\boxed{",
        "{",
        "}",
        r"\frac",
        r"\sqrt",
        "√",
        "π",
        "°",
        "1",
        "23",
        "4.5",
        ",",
        "=",
        "<",
        "±",
        ":",
        "(",
        ")",
        "[",
        "]",
        r"\{",
        r"\}",
        "cm",
        "米",
    ],
    *[
        "x",
        r"\text{",
        "^",
        "_",
        "!",
        "%",
        "/",
        "*",
        "-",
        "+",
        r"\sin ",
        r"\ln ",
        "e",
        " or ",
        "$",
        "\\",
        "'",
        "或",
        "≈",
        "∞",
        "1e9",
        r"\log_",
        "½",
        "²",
        "|",
        "A",
    ],
]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([*PIECES, " "]), max_size=16).map("".join), st.sampled_from(GOLDS))
def test_any_text_is_graded_and_a_gold_that_can_be_read_is_right_for_itself(text: str, gold: str) -> None:
    assert grade(gold, text).value in (0.0, 1.0)
    if text.count("{") - text.count(r"\{") != text.count("}") - text.count(r"\}") or "\\boxed" in text or text.endswith("\\"):
        return
    try:
        score = grade(text, text)
    except ValueError:
        return
    assert score.value == 1 or score.parsed is None
