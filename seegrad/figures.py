"""The pictures of a report, drawn straight onto Agg: no window, no global state. Labels are English: the bundled font has no Chinese glyphs."""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from PIL import Image

from seegrad.compare import Comparison, LengthBin
from seegrad.statistics import Interval

COLOR_A, COLOR_B, COLOR_GOLD, COLOR_OTHER = "#8a8f98", "#0072b2", "#009e73", "#d55e00"  # told apart by the colour-blind, and in print
COLOR_GAP = "#c3c7cd"
CURVES = (
    ("reward", "reward"),
    ("accuracy", "accuracy while sampling (%)"),
    ("format_rate", "readable answers while sampling (%)"),
    ("degenerate_fraction", "groups without signal (%)"),
    ("rollout/completion_tokens_mean", "answer length (tokens)"),
    ("rollout/truncated_fraction", "answers cut at the limit (%)"),
    ("trainer/kl", "KL to the reference (nats)"),
    ("trainer/entropy", "entropy (nats)"),
    ("trainer/grad_norm", "gradient norm"),
)
SYMBOLS = str.maketrans(
    {"√": "sqrt", "π": "pi", "°": " deg", "×": "x", "÷": "/", "−": "-", "≤": "<=", "≥": ">=", "∠": "angle ", "△": "triangle ", "→": "->"}
)
MAX_PICTURES = 4  # of one item in the strip
MAX_SMOOTH = 10  # steps of the running mean
PANELS_PER_ROW = 4


@dataclass(frozen=True, slots=True)
class Shown:
    """One item for the strip: its pictures as PNG bytes (at least one), a title, caption lines, and boxes by colour as (x1, y1, x2, y2) in pixels,
    which are drawn when there is one picture."""

    images: tuple[bytes, ...]
    title: str
    lines: tuple[str, ...]
    boxes: tuple[tuple[str, tuple[float, float, float, float]], ...] = ()


def learning_curves(runs: Mapping[str, Sequence[Mapping[str, Any]]], greedy: Sequence[tuple[int, float]] = ()) -> bytes | None:
    """One panel per metric against the step, one line per run: faint raw values under a running mean.

    `greedy` is (step, accuracy 0 to 1) of evaluations along the way. None when there is nothing to draw.
    """
    panels = [(key, label) for key, label in CURVES if any(_is_number(record.get(key)) for records in runs.values() for record in records)]
    total = len(panels) + bool(greedy)
    if not total:
        return None
    columns = min(PANELS_PER_ROW, total)
    rows = -(-total // columns)
    figure = Figure(figsize=(3.3 * columns, 2.5 * rows), layout="constrained")
    for place, (key, label) in enumerate(panels):
        axes = _axes(figure, rows, columns, place + 1)
        scale = 100.0 if label.endswith("(%)") else 1.0
        for (name, records), color in zip(runs.items(), (COLOR_B, COLOR_OTHER), strict=False):
            points = [(record["step"], record[key]) for record in records if _is_number(record.get(key))]
            steps, values = [point[0] for point in points], [point[1] * scale for point in points]
            axes.plot(steps, values, color=color, alpha=0.3, linewidth=1)
            axes.plot(steps, _smooth(values), color=color, linewidth=1.8, label=_named(name))
        _label_panel(axes, label)
        if place == 0 and len(runs) > 1:
            axes.legend(fontsize=7, frameon=False)
    if greedy:
        axes = _axes(figure, rows, columns, total)
        axes.plot([step for step, _ in greedy], [100 * value for _, value in greedy], color=COLOR_B, marker="o", markersize=4)
        _label_panel(axes, "accuracy, greedy (%)")
    return _png(figure)


def rates(comparison: Comparison, name_a: str, name_b: str) -> bytes:
    """Accuracy, readable answers and accuracy among readable answers of both models, in percent with 95 % intervals."""
    groups = [
        ("accuracy", comparison.accuracy),
        ("readable answers", comparison.format_rate),
        ("accuracy among\nreadable answers", comparison.accuracy_given_parsable),
    ]
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    _bars(_axes(figure, 1, 1, 1), {label: (measure.a, measure.b) for label, measure in groups}, name_a, name_b, "% of answers")
    return _png(figure)


def decomposition(comparison: Comparison, name_a: str, name_b: str) -> bytes | None:
    """Accuracy of a, the steps that lead to that of b, and b (%): more readable answers, and readable answers that are right more often."""
    parts, accuracy = comparison.decomposition, comparison.accuracy
    if parts is None:
        return None
    after_form = accuracy.a.estimate + parts.form.estimate
    bars = [
        (plain(name_a), 0.0, accuracy.a.estimate, accuracy.a, COLOR_A, f"{100 * accuracy.a.estimate:.1f}"),
        ("from readable\nanswers (form)", accuracy.a.estimate, after_form, parts.form, COLOR_GOLD, f"{100 * parts.form.estimate:+.1f}"),
        ("from right among\nreadable (sight)", after_form, accuracy.b.estimate, parts.sight, COLOR_OTHER, f"{100 * parts.sight.estimate:+.1f}"),
        (plain(name_b), 0.0, accuracy.b.estimate, accuracy.b, COLOR_B, f"{100 * accuracy.b.estimate:.1f}"),
    ]
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = _axes(figure, 1, 1, 1)
    for place, (_, start, end, interval, color, text) in enumerate(bars):
        axes.bar(place, 100 * (end - start), 0.6, bottom=100 * start, color=color)
        axes.errorbar([place], [100 * end], _whiskers([interval]), fmt="none", ecolor="#222222", capsize=3, linewidth=1)
        top = max(start, end) + max(0.0, interval.high - interval.estimate)
        axes.text(place, 100 * top + 1.5, text, ha="center", fontsize=8)
    for place, (_, _, end, *_) in enumerate(bars[:-1]):
        axes.plot([place, place + 1], [100 * end, 100 * end], color="#222222", linewidth=0.8, linestyle=":")
    axes.set_xticks(range(len(bars)), [bar[0] for bar in bars], fontsize=9)
    _percent_axis(axes, "accuracy (%)")
    return _png(figure)


def passes(curves: Mapping[str, Sequence[tuple[int, Interval, Interval]]]) -> bytes:
    """pass@k (%, with 95 % intervals) and maj@k against the number of answers k, for each model: (k, pass@k, maj@k)."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = _axes(figure, 1, 1, 1)
    for (name, points), color in zip(curves.items(), (COLOR_A, COLOR_B), strict=False):
        steps = [k for k, _, _ in points]
        passed, voted = [one for _, one, _ in points], [one for _, _, one in points]
        heights = [100 * one.estimate for one in passed]
        axes.errorbar(steps, heights, _whiskers(passed), color=color, marker="o", markersize=4, capsize=3, label=f"{_named(name)}, pass@k")
        if len(points) > 1:
            axes.plot(
                steps, [100 * one.estimate for one in voted], color=color, marker="s", markersize=3.5, linestyle="--", label=f"{_named(name)}, maj@k"
            )
    ticks = sorted({k for points in curves.values() for k, _, _ in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(k) for k in ticks])
    axes.set_xlabel("answers to a question, k", fontsize=9)
    _percent_axis(axes, "solved (%)")
    axes.legend(fontsize=8, frameon=False, loc="lower right", ncols=2)
    return _png(figure)


def accuracy_by_length(bins: Mapping[str, Sequence[LengthBin]]) -> bytes:
    """Accuracy (%) against the mean answer length (tokens) of each bin; the number of answers stands at each point."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = _axes(figure, 1, 1, 1)
    for (name, rows), color, lift in zip(bins.items(), (COLOR_A, COLOR_B), (-11, 6), strict=False):
        lengths, heights = [row.mean_length for row in rows], [100 * row.accuracy.estimate for row in rows]
        axes.errorbar(
            lengths, heights, _whiskers([row.accuracy for row in rows]), color=color, marker="o", markersize=4, capsize=3, label=_named(name)
        )
        for row, x, y in zip(rows, lengths, heights, strict=True):
            axes.annotate(f"n={row.num_answers}", (x, y), (4, lift), textcoords="offset points", fontsize=7, color=color)
    axes.set_xlabel("answer length (tokens)", fontsize=9)
    _percent_axis(axes, "accuracy (%)")
    axes.set_ylim(-3, 108)
    axes.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.14), ncols=2)
    return _png(figure)


def splits(accuracies: Mapping[str, tuple[Interval, Interval]], name_a: str, name_b: str) -> bytes:
    """Accuracy (%) of both models on each split, with 95 % intervals: does the gain carry over?"""
    figure = Figure(figsize=(max(3.6, 1.6 * len(accuracies) + 1.2), 3.4), layout="constrained")
    groups = {plain(name).replace(", ", "\n"): pair for name, pair in accuracies.items()}
    _bars(_axes(figure, 1, 1, 1), groups, name_a, name_b, "accuracy (%)")
    return _png(figure)


def strip(shown: Sequence[Shown], columns: int = 3) -> bytes:
    """The items side by side, `columns` in a row, each with its title above its pictures and its captions below."""
    rows = -(-len(shown) // columns)
    height = 2.8 + 0.19 * (1 + max(len(one.lines) for one in shown))  # inches: a picture and its lines of text
    figure = Figure(figsize=(2.7 * min(columns, len(shown)), height * rows), layout="constrained")
    for place, one in enumerate(shown):
        axes: Axes = figure.add_subplot(rows, min(columns, len(shown)), place + 1)
        picture = _side_by_side(one.images[:MAX_PICTURES])
        axes.imshow(picture, interpolation="nearest")
        for color, (x1, y1, x2, y2) in one.boxes if len(one.images) == 1 else ():
            axes.add_patch(Rectangle((x1 - 0.5, y1 - 0.5), x2 - x1 + 1, y2 - y1 + 1, fill=False, edgecolor=color, linewidth=1.6))
        axes.set_anchor("N")
        axes.set_xlim(-0.5, picture.width - 0.5)
        axes.set_ylim(picture.height - 0.5, -0.5)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_title(plain(one.title), fontsize=9, loc="left")
        more = [f"{MAX_PICTURES} of {len(one.images)} pictures"] if len(one.images) > MAX_PICTURES else []
        axes.set_xlabel("\n".join(plain(line) for line in (*one.lines, *more)), fontsize=8, loc="left")
    return _png(figure)


def plain(text: str, limit: int = 42) -> str:
    """Text that the figure font can show: printable ASCII, not mathematics, at most `limit` characters. What has no such form becomes `?`.

    >>> plain("圆形 ３ √2 $x$")
    '?? 3 sqrt2 \\\\$x\\\\$'
    """
    known = unicodedata.normalize("NFKC", text.translate(SYMBOLS))
    shown = "".join(letter if " " <= letter <= "~" else "?" for letter in known)
    shown = shown if len(shown) <= limit else shown[: limit - 3] + "..."
    return shown.replace("\\", "/").replace("$", r"\$")


def _named(name: str) -> str:
    """A name in a legend, which leaves out what starts with an underscore."""
    return plain(name).lstrip("_ ") or "-"


def _side_by_side(images: Sequence[bytes]) -> Image.Image:
    """One picture of several, two in a row, each in a cell of the same size, grey between them and where a cell is not filled."""
    pictures = [Image.open(io.BytesIO(data)).convert("RGB") for data in images]
    if len(pictures) == 1:
        return pictures[0]
    width, height = max(picture.width for picture in pictures), max(picture.height for picture in pictures)
    gap = max(2, min(width, height) // 40)
    sheet = Image.new("RGB", (2 * width + gap, -(-len(pictures) // 2) * (height + gap) - gap), COLOR_GAP)
    for place, picture in enumerate(pictures):
        scale = min(width / picture.width, height / picture.height)
        fitted = picture.resize((max(1, round(picture.width * scale)), max(1, round(picture.height * scale))))
        sheet.paste(fitted, (place % 2 * (width + gap), place // 2 * (height + gap)))
    return sheet


def _bars(axes: Axes, groups: Mapping[str, tuple[Interval, Interval]], name_a: str, name_b: str, label: str) -> None:
    """A bar for each model in every group, in percent with 95 % intervals and the number on top."""
    for offset, color, name, side in ((-0.2, COLOR_A, name_a, 0), (0.2, COLOR_B, name_b, 1)):
        intervals = [pair[side] for pair in groups.values()]
        positions = [place + offset for place in range(len(intervals))]
        axes.bar(positions, [100 * interval.estimate for interval in intervals], 0.38, color=color, label=_named(name))
        axes.errorbar(positions, [100 * i.estimate for i in intervals], _whiskers(intervals), fmt="none", ecolor="#222222", capsize=3, linewidth=1)
        for position, interval in zip(positions, intervals, strict=True):
            if interval.estimate == interval.estimate:
                axes.text(position, 100 * interval.high + 1.5, f"{100 * interval.estimate:.1f}", ha="center", fontsize=8)
    axes.set_xticks(range(len(groups)), list(groups), fontsize=9)
    _percent_axis(axes, label)
    axes.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.16), ncols=2)


def _percent_axis(axes: Axes, label: str) -> None:
    axes.set_ylim(0, 112)
    axes.set_yticks(range(0, 101, 20))
    axes.set_ylabel(label, fontsize=9)


def _axes(figure: Figure, rows: int, columns: int, place: int) -> Axes:
    axes: Axes = figure.add_subplot(rows, columns, place)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e3e5e8", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)
    return axes


def _label_panel(axes: Axes, label: str) -> None:
    axes.set_title(label, fontsize=9, loc="left")
    axes.set_xlabel("step", fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whiskers(intervals: Sequence[Interval]) -> list[list[float]]:
    return [[100 * max(0.0, i.estimate - i.low) for i in intervals], [100 * max(0.0, i.high - i.estimate) for i in intervals]]


def _smooth(values: Sequence[float]) -> list[float]:
    """Running mean, centred, over a tenth of the run but at most MAX_SMOOTH steps; shorter at both ends."""
    reach = min(MAX_SMOOTH, len(values) // 10) // 2
    windows = [values[max(0, i - reach) : i + reach + 1] for i in range(len(values))]
    return [sum(window) / len(window) for window in windows]


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
    return buffer.getvalue()
