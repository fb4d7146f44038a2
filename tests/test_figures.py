"""Figures: what is asked for is drawn, no window is opened, and no letter becomes an empty box."""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
from dataclasses import replace

import pytest
from PIL import Image

from seegrad import figures
from seegrad.compare import compare, length_bins, pass_curve
from seegrad.evaluate import EvalItem, EvalResult
from seegrad.statistics import NOTHING, Interval
from tests.reporting import examples, sampled


def png(width: int, height: int, color: str = "white") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), color).save(buffer, "PNG")
    return buffer.getvalue()


def count(data: bytes, color: str) -> int:
    """Pixels of exactly that colour."""
    wanted = tuple(int(color[i : i + 2], 16) for i in (1, 3, 5))
    colors = Image.open(io.BytesIO(data)).convert("RGB").getcolors(1 << 24) or []
    return {shade: number for number, shade in colors}.get(wanted, 0)


def test_boxes_are_drawn_where_the_answers_are() -> None:
    plain = figures.strip([figures.Shown((png(40, 40),), "t", ("l",))])
    boxed = figures.strip([figures.Shown((png(40, 40),), "t", ("l",), ((figures.COLOR_GOLD, (10, 10, 29, 29)),))])
    assert count(plain, figures.COLOR_GOLD) == 0 and count(boxed, figures.COLOR_GOLD) > 100


def test_figures_open_no_window() -> None:
    script = "import sys, seegrad.report; sys.exit('pyplot' if 'matplotlib.pyplot' in sys.modules or 'torch' in sys.modules else 0)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_learning_curves_take_missing_values_and_two_runs() -> None:
    records = [{"step": 1, "reward": 0.5, "trainer/kl": None}, {"step": 2, "reward": None}, {"step": 3, "reward": 0.7}]
    assert figures.learning_curves({}) is None
    assert figures.learning_curves({"a": records, "b": records}, [(0, 0.1), (1, 0.5), (2, 0.6)]) is not None


def test_pictures_of_one_item_stand_in_cells_of_one_size() -> None:
    sheet = figures._side_by_side([png(40, 40, "#ff0000"), png(20, 80, "#00ff00"), png(10, 10, "#0000ff")])
    assert sheet.size == (2 * 40 + 2, 2 * 80 + 2)
    colors = [sheet.getpixel(place) for place in ((20, 20), (50, 40), (20, 100), (70, 130))]
    assert colors == [(255, 0, 0), (0, 255, 0), (0, 0, 255), (0xC3, 0xC7, 0xCD)]  # the last cell is not filled
    alone = figures._side_by_side([png(40, 30)])
    assert alone.size == (40, 30)
    many = figures.Shown(tuple(png(30, 30, color) for color in ("#ff0000", "#00ff00")), "t", ("l",), ((figures.COLOR_GOLD, (2, 2, 20, 20)),))
    drawn = figures.strip([many])
    assert count(drawn, "#ff0000") > 100 and count(drawn, "#00ff00") > 100 and count(drawn, figures.COLOR_GOLD) == 0  # whose box would it be?
    figures.strip([figures.Shown(tuple(png(30, 30) for _ in range(9)), "t", ("l",))])


@pytest.mark.parametrize(
    "text", ["图中有几个圆形？", "角 ∠ABC = 30°", "√3 π ½ ①", "ＡＢＣ１２", "кириллица", "🔺", "$x_1$ \\frac{1}{2}", "", "\u200b\n\t"]
)
def test_no_letter_becomes_an_empty_box(text: str) -> None:
    plain = figures.plain(text)
    assert plain.isascii() and plain.isprintable()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns of every missing glyph
        figures.strip([figures.Shown((png(20, 20),), text, (text, f"gold: {text}"))])
        figures.splits({text or "x": (Interval(0.5, 0.4, 0.6), Interval(0.6, 0.5, 0.7))}, text, text)


def test_plain_keeps_what_it_can() -> None:
    assert figures.plain("√3 + ２π") == "sqrt3 + 2pi" and figures.plain("30°") == "30 deg" and figures.plain("圆 3") == "? 3"
    assert figures.plain("x" * 60) == "x" * 39 + "..."


def test_several_answers_are_drawn_as_two_curves() -> None:
    rows = examples(count=30)
    a, b = sampled(rows, lambda n: 0.3, num_samples=8), sampled(rows, lambda n: 0.6, num_samples=8, version=1)
    data = figures.passes({"base": pass_curve(a), "trained": pass_curve(b)})
    assert count(data, figures.COLOR_A) > 200 and count(data, figures.COLOR_B) > 200
    single = figures.passes({"base": pass_curve(sampled(rows, lambda n: 0.3, num_samples=1)), "trained": pass_curve(b)})
    assert 0 < count(single, figures.COLOR_A) < count(data, figures.COLOR_A)


def test_form_and_sight_are_steps_from_one_accuracy_to_the_other() -> None:
    base = [EvalItem(str(n), "q", "1", parsed="1" if n < 75 else None, correct=n < 71) for n in range(100)]
    trained = [EvalItem(str(n), "q", "1", parsed="1" if n < 91 else None, correct=n < 87) for n in range(100)]
    found = compare(EvalResult("a", tuple(base), 1.0), EvalResult("b", tuple(trained), 1.0, 1))
    data = figures.decomposition(found, "base", "trained")
    assert data is not None
    assert count(data, figures.COLOR_GOLD) > 5 * count(data, figures.COLOR_OTHER) > 0  # nearly all of it is form
    assert figures.decomposition(replace(found, decomposition=None), "base", "trained") is None


def test_a_rate_of_nothing_leaves_a_gap() -> None:
    data = figures.splits({"test": (NOTHING, Interval(0.5, 0.4, 0.6))}, "a", "b")
    assert count(data, figures.COLOR_B) > 1000 > count(data, figures.COLOR_A)


def test_lengths_of_one_answer_are_drawn() -> None:
    one = EvalResult("a", (EvalItem("1", "q", "1", parsed="1", num_tokens=4),), 1.0)
    assert figures.accuracy_by_length({"a": length_bins(one), "b": []}) is not None
