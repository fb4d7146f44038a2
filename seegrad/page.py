"""A comparison in words and tables: Markdown text only, every number from the comparison or the metrics it is given."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seegrad.compare import Comparison, LengthBin, Measure, Pair, pass_curve, slices
from seegrad.evaluate import EvalItem, EvalResult
from seegrad.statistics import NOTHING, Interval
from seegrad.summary import num_asked

MAX_TEXT = 4000  # characters of a question or an answer on the page; all of it is in the evaluation file
_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")  # bidirectional embeddings, overrides, isolates
LEVEL = 0.05  # of a test, as the intervals are 95 %
PERCENT = -1  # in place of a number of digits: the value is a share
TREND_METRICS = (
    ("reward", "reward", 1.0, ""),
    ("format_rate", "readable answers while sampling", 100.0, " %"),
    ("degenerate_fraction", "groups without signal", 100.0, " %"),
    ("rollout/completion_tokens_mean", "answer length", 1.0, " tokens"),
    ("trainer/entropy", "entropy", 1.0, " nats"),
    ("trainer/kl", "KL to the reference", 1.0, " nats"),
)


@dataclass(frozen=True, slots=True)
class Names:
    """What the two models are called: `short` in tables and figures, `long` in sentences."""

    short_a: str
    short_b: str
    long_a: str
    long_b: str


def name_models(a: EvalResult, b: EvalResult) -> Names:
    """Base and trained when that is what they are, else A and B with their labels."""
    if a.version == 0 and b.version > 0:
        return Names("base", "trained", "the base model", "the trained model")
    label_a, label_b = (f"{result.model or result.name}{f', step {result.version}' if result.version else ''}" for result in (a, b))
    return Names("A", "B", f"model A ({label_a})", f"model B ({label_b})")


def headline(comparison: Comparison, names: Names) -> str:
    """One sentence: what happened.

    `The trained model answers 91.2 % of 1,000 test questions right, the base model 63.4 %: +27.8 points (95 % interval 24.9 to 30.6).`
    """
    split = f"{comparison.a.split} " if comparison.a.split else ""
    questions = _counted(len(comparison.pairs), f"{split}question")
    left_out = f" ({comparison.num_left_out:,} more have no grade and do not count)" if comparison.num_left_out else ""
    accuracy = comparison.accuracy
    text = f"{names.long_b} answers {percent(accuracy.b)} of {questions}{left_out} right, {names.long_a} {percent(accuracy.a)}: {points(accuracy)}."
    return text[0].upper() + text[1:] + _verdict(accuracy, " It got worse.", " The difference is within chance.")


def findings(main: Comparison, others: Mapping[str, Comparison]) -> list[str]:
    """The plain-language bullets under the headline; `others` are the other splits by name."""
    what, mostly = ("answer", "") if main.once else ("question", "mostly ")
    went = f"{_counted(len(main.improved), what)} went from {mostly}wrong to {mostly}right"
    lines = [
        f"{went}, {len(main.worsened):,} from right to wrong. "
        f"Were both equally good, chance would make it at least so uneven with probability {p_value(main.accuracy.p)} "
        f"(exact {test_name(main)} test).",
        f"Readable answers: {change(main.format_rate)}." + _verdict(main.format_rate, " It got worse.", ""),
    ]
    given = main.accuracy_given_parsable
    if math.isnan(given.difference.estimate):
        lines.append("Right among readable answers: not to be compared, because one model gave no readable answer.")
    else:
        shared = f"On the {_counted(main.num_parsable_in_both, 'question')} that both answer readably: {change(main.parsable_in_both)}."
        lines.append(f"Right among readable answers: {change(given)}. {shared if main.num_parsable_in_both else ''}{_seeing(main)}")
    if main.decomposition is not None:
        form, sight = (_interval(part, 100, 1, " points") for part in (main.decomposition.form, main.decomposition.sight))
        lines.append(f"Of the difference, {form} comes from how many answers are readable (form), {sight} from how many of those are right (sight).")
    if "iou" in main.scores:
        iou = main.scores["iou"]
        lines.append(f"Mean overlap with the true box (IoU): {iou.a.estimate:.3f} → {iou.b.estimate:.3f}, {_interval(iou.difference, 1, 3)}.")
    cut = main.truncated_fraction
    tokens = f"{main.length.a.estimate:.1f} → {main.length.b.estimate:.1f} tokens"
    lines.append(f"Answers are {tokens} long; {percent(cut.a)} → {percent(cut.b)} of them are cut at the limit.")
    for split, other in others.items():
        text = f"Right on {len(other.pairs):,} {code(split)} questions: {change(other.accuracy)}."
        lines.append(text + _verdict(other.accuracy, " It got worse there.", " The difference is within chance."))
    return lines


def numbers(comparison: Comparison, names: Names) -> str:
    """The table of all measures, rates as percent, with 95 % intervals."""
    rows = [
        ("right answers (accuracy)", comparison.accuracy, PERCENT),
        ("readable answers (format rate)", comparison.format_rate, PERCENT),
        ("right among readable", comparison.accuracy_given_parsable, PERCENT),
        (f"right where both are readable (n = {comparison.num_parsable_in_both:,})", comparison.parsable_in_both, PERCENT),
        ("cut at the token limit", comparison.truncated_fraction, PERCENT),
        ("answer length, tokens", comparison.length, 1),
        ("reward", comparison.reward, 3),
        *((f"mean score `{part}`", measure, 3) for part, measure in comparison.scores.items()),
    ]
    body = [[label, _cell(m.a, digits), _cell(m.b, digits), _difference(m, digits), p_value(m.p)] for label, m, digits in rows]
    count = _counted(len(comparison.pairs), "item") + ("" if comparison.once else f", {_answers(comparison.a)} and {_answers(comparison.b)} answers")
    return table([f"n = {count}", names.short_a, names.short_b, "difference", f"{test_name(comparison)} p"], body)


def test_name(comparison: Comparison) -> str:
    """Which paired test gives the p values: with one answer to each item it is McNemar's."""
    return "McNemar" if comparison.once else "permutation"


def flips(comparison: Comparison, names: Names) -> str:
    """The 2 × 2 table of right and wrong answers; of several answers to a question the majority counts."""
    right_a = sum(pair.right_a for pair in comparison.pairs)
    kept, lost, won = right_a - len(comparison.worsened), len(comparison.worsened), len(comparison.improved)
    wrong = len(comparison.pairs) - kept - lost - won
    mostly = "" if comparison.once else "mostly "
    return table(
        ["", f"{names.short_b} {mostly}right", f"{names.short_b} {mostly}wrong"],
        [[f"{names.short_a} {mostly}right", f"{kept:,}", f"{lost:,}"], [f"{names.short_a} {mostly}wrong", f"{won:,}", f"{wrong:,}"]],
    )


def categories(comparison: Comparison, names: Names) -> str:
    """Accuracy by every category of the items, one table each; empty when the items have none."""
    blocks = []
    for tag, rows in slices(comparison).items():
        title = "gold answer" if tag == "answer" else tag
        measures = [row.accuracy for row in rows]
        cells = [[_cell(m.a, PERCENT), _cell(m.b, PERCENT), _difference(m, PERCENT)] for m in measures]
        body = [[code(row.value), f"{row.num_items:,}", *line] for row, line in zip(rows, cells, strict=True)]
        blocks.append(f"By {title}:\n\n" + table([title, "items", names.short_a, names.short_b, "difference"], body))
    return "\n\n".join(blocks)


def lengths(bins: Mapping[str, Sequence[LengthBin]]) -> str:
    """Accuracy by answer length, one row per model and bin, and whether it rises and falls again."""
    rows = [(name, row) for name, column in bins.items() for row in column]
    body = [[name, f"{r.low}–{r.high}", f"{r.num_answers:,}", f"{r.num_truncated:,}", _cell(r.accuracy, PERCENT)] for name, r in rows]
    return bullets([f"{name}: {arc(column)}" for name, column in bins.items()]) + "\n\n" + table(["", "tokens", "answers", "cut", "right"], body)


def arc(bins: Sequence[LengthBin]) -> str:
    """Whether accuracy rises with length and falls again: said where the intervals of a bin in the middle and of both ends are apart, and nothing
    speaks against a single peak."""
    if len(bins) < 3:
        return "answers are too alike in length to compare."
    first, *middle, last = bins
    best = max(middle, key=lambda row: row.accuracy.estimate)
    place = bins.index(best)
    falls_before = any(one.accuracy.low > later.accuracy.high for n, one in enumerate(bins[:place]) for later in bins[n + 1 : place])
    rises_after = any(one.accuracy.high < later.accuracy.low for n, one in enumerate(bins[place + 1 :]) for later in bins[place + n + 2 :])
    peak = f"{percent(best.accuracy)} right at {best.low}–{best.high} tokens"
    ends = f"{percent(first.accuracy)} for the shortest, {percent(last.accuracy)} for the longest"
    if falls_before or rises_after:
        return f"no inverted U is shown; it goes up and down more than once: {ends}."
    if best.accuracy.low > max(first.accuracy.high, last.accuracy.high):
        return f"an inverted U: {peak}, {ends}."
    if first.accuracy.low > last.accuracy.high:
        return f"no inverted U is shown; the longest answers are right less often: {ends}."
    if last.accuracy.low > first.accuracy.high:
        return f"no inverted U is shown; the longest answers are right more often: {ends}."
    return f"no dependence on length is shown: {peak}, {ends}."


def passes(comparison: Comparison, names: Names) -> str:
    """pass@k and maj@k of both models, and how far the seeds lie apart where there are several."""
    curves = [{k: (passed, voted) for k, passed, voted in pass_curve(result)} for result in (comparison.a, comparison.b)]
    body = []
    for k in sorted(set(curves[0]) | set(curves[1])):
        both = [curve.get(k, (NOTHING, NOTHING)) for curve in curves]
        body.append([f"{k}", *(_cell(passed, PERCENT) for passed, _ in both), *(_cell(voted, PERCENT) for _, voted in both)])
    header = ["k", *(f"{name}, pass@k" for name in (names.short_a, names.short_b)), *(f"{name}, maj@k" for name in (names.short_a, names.short_b))]
    spreads = [
        f"{name}: {line}" for name, result in ((names.short_a, comparison.a), (names.short_b, comparison.b)) if (line := _spread(result.summary))
    ]
    return table(header, body) + (f"\n\nRight by seed:\n\n{bullets(spreads)}" if spreads else "")


def trend(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """First and last tenth of a run's logged metrics, as bullets."""
    width = max(1, len(records) // 10)
    lines = []
    for key, label, scale, unit in TREND_METRICS:
        values = [record[key] * scale for record in records if isinstance(record.get(key), int | float)]
        if values:
            first, last = sum(values[:width]) / len(values[:width]), sum(values[-width:]) / len(values[-width:])
            lines.append(f"{label}: {first:.3g}{unit} → {last:.3g}{unit}")
    return lines


def example(pair: Pair, names: Names) -> str:
    """One item in full: question, gold answer, both answers."""
    blocks = [f"**{code(pair.id)}**, gold answer {code(pair.a.answer)}{_pictures(pair.b)}", fence(pair.a.question)]
    for name, item, answers in ((names.short_a, pair.a, pair.answers_a), (names.short_b, pair.b, pair.answers_b)):
        often = f", {sum(one.correct for one in answers)} of {len(answers)} answers right" if len(answers) > 1 else ""
        blocks += [f"{name} ({_grade(item)}{often}):", fence(item.text)]
    return "\n\n".join(blocks)


def measured(comparison: Comparison, names: Names) -> list[str]:
    """How it was measured: what was evaluated, with which settings, what was left out."""
    lines = []
    for name, result in ((names.short_a, comparison.a), (names.short_b, comparison.b)):
        params = ", ".join(f"{key} {result.params[key]}" for key in ("temperature", "max_tokens", "seed") if key in result.params)
        if "seeds" in result.params:
            params += f", seed {', '.join(map(str, result.params['seeds']))}"
        params += f", {_answers(result)} answers to each item" if num_asked(result.items) > 1 else ""
        where = "".join(f"{part}, " for part in (result.dataset, result.split) if part)
        model = f"model {code(result.model)}, " if result.model else ""
        lines.append(f"{name}: {code(result.name)}, {model}step {result.version}, {where}{params}")
        reasons = Counter(item.reason or "no reason recorded" for item in result.items if item.error is not None)
        if reasons:
            listed = ", ".join(f"{count:,} {code(reason)}" for reason, count in reasons.most_common())
            lines.append(f"{name}: {reasons.total():,} of {len(result.items):,} answers have no grade and count in no rate: {listed}")
    if comparison.num_left_out:
        lines.append(f"{comparison.num_left_out:,} items have no grade in one of the two and are left out of everything above.")
    if comparison.num_other_pictures:
        lines.append(f"{comparison.num_other_pictures:,} items were shown with different pictures to the two models.")
    several = "" if comparison.once else " for the effective number of answers (those to one question depend on each other)"
    lines.append(
        f"Intervals are 95 %: Wilson for a rate{several}, percentile bootstrap for a mean, and for a difference the bootstrap over paired items; "
        "there is none where all items differ alike."
    )
    return [*lines, f"Wall time (not the same in two equal runs): {_wall(comparison.a, names.short_a)}; {_wall(comparison.b, names.short_b)}"]


def _wall(result: EvalResult, name: str) -> str:
    speed = f", {len(result.items) / result.total_seconds:.1f} answers/s" if result.total_seconds > 0 else ""
    return f"{name} {result.total_seconds:.1f} s{speed}"


def change(measure: Measure) -> str:
    """`63.4 % → 91.2 %, +27.8 points (95 % interval 24.9 to 30.6)`."""
    return f"{percent(measure.a)} → {percent(measure.b)}, {points(measure)}"


def points(measure: Measure) -> str:
    """`+27.8 points (95 % interval 24.9 to 30.6)`."""
    return _interval(measure.difference, 100, 1, " points")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def percent(interval: Interval) -> str:
    """`63.4 %`, or `none` when there is nothing to count."""
    return "none" if math.isnan(interval.estimate) else f"{100 * interval.estimate:.1f} %"


def p_value(p: float | None) -> str:
    """Four decimals, `< 0.0001`, or a dash where the test does not apply."""
    return "–" if p is None else "< 0.0001" if p < 0.0001 else f"{p:.4f}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, first column to the left and the others to the right."""
    lines = [list(header), ["---"] + ["---:"] * (len(header) - 1), *map(list, rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def code(text: str) -> str:
    """Inline code, whatever the text holds."""
    flat = " ".join(text.split())
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", flat)), default=0))
    pad = " " if "`" in flat else ""
    return f"{ticks}{pad}{flat}{pad}{ticks}" if flat else "(empty)"


def fence(text: str) -> str:
    """A block of literal text, whatever it holds: at most MAX_TEXT characters, and signs that would turn the direction of what follows as numbers."""
    if len(text) > MAX_TEXT:
        text = f"{text[: MAX_TEXT // 2]}\n… {len(text) - MAX_TEXT:,} characters left out …\n{text[-MAX_TEXT // 2 :]}"
    text = _TURNING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    ticks = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{ticks}text\n{text}\n{ticks}" if text.strip() else "(no text)"


def _interval(difference: Interval, scale: float, digits: int, unit: str = "") -> str:
    if math.isnan(difference.estimate):
        return "no difference can be given"
    if difference.low == difference.high:  # the same in every question: a bootstrap says nothing of others
        return f"{_signed(scale * difference.estimate, digits)}{unit} (no interval)"
    low, high = _number(scale * difference.low, digits), _number(scale * difference.high, digits)
    return f"{_signed(scale * difference.estimate, digits)}{unit} (95 % interval {low} to {high})"


def _signed(value: float, digits: int) -> str:
    return ("+" if round(value, digits) > 0 else "") + _number(value, digits)


def _number(value: float, digits: int) -> str:
    """With a true minus sign, and never a negative zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def _verdict(measure: Measure, worse: str, chance: str) -> str:
    """`worse` when the interval lies below 0, `chance` when it includes 0 or the exact test says so (of few questions a bootstrap sees too little to
    be wide), nothing when it lies above."""
    difference = measure.difference
    if measure.p is not None and measure.p > LEVEL:
        return chance
    return worse if difference.high < 0 else "" if difference.low > 0 else chance


def _seeing(main: Comparison) -> str:
    """Whether the gain is more than a better form: both conditional comparisons must agree."""
    given, both = main.accuracy_given_parsable.difference, main.parsable_in_both.difference
    if given.low > 0 and not both.low <= 0:
        return " It sees better, not only answers in a better form."
    if given.high < 0 and not both.high >= 0:
        return " It sees worse."
    return " That it sees better is not shown: an interval includes 0."


def _cell(interval: Interval, digits: int) -> str:
    if math.isnan(interval.estimate):
        return "none"
    if digits == PERCENT:
        return f"{percent(interval)} ({100 * interval.low:.1f} to {100 * interval.high:.1f})"
    return f"{_number(interval.estimate, digits)} ({_number(interval.low, digits)} to {_number(interval.high, digits)})"


def _difference(measure: Measure, digits: int) -> str:
    text = points(measure) if digits == PERCENT else _interval(measure.difference, 1, digits)
    return text.replace(" points", "").replace("95 % interval ", "")


def _answers(result: EvalResult) -> str:
    return f"{num_asked(result.items):,}"


def _pictures(item: EvalItem) -> str:
    return f", {len(item.images)} pictures" if len(item.images) > 1 else "" if item.images else ", no picture"


def _spread(summary: Mapping[str, Any]) -> str:
    """Accuracy of each seed, with their standard deviation; empty with one seed."""
    spread = summary["between_seeds"]
    if spread is None:
        return ""
    each = ", ".join(f"{100 * rate['estimate']:.1f} % (seed {seed})" for seed, rate in summary["by_seed"].items())
    return f"{each}; standard deviation between seeds {100 * spread['standard_deviation']:.1f} points"


def bullets(lines: Sequence[str]) -> str:
    """A Markdown list."""
    return "\n".join(f"- {line}" for line in lines)


def _grade(item: EvalItem) -> str:
    read = "not readable" if item.parsed is None else f"read as {code(item.parsed)}"
    return f"{'right' if item.correct else 'wrong'}, {read}{', cut at the token limit' if item.truncated else ''}"
