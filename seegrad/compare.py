"""Two evaluations of the same items → one paired comparison. Every difference is b − a, with items resampled in pairs.

The two may have answered an item a different number of times: an item's number is then the mean over its answers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seegrad import summary
from seegrad.errors import UsageError
from seegrad.evaluate import EvalItem, EvalResult
from seegrad.statistics import (
    NOTHING,
    Interval,
    bootstrap_mean,
    clustered_share,
    decompose_difference,
    paired_conditional_difference,
    paired_difference,
    quantile_edges,
    sign_flip,
)
from seegrad.summary import by_question, categories, readable, right

MAX_GRID = 1000  # finest share that the permutation test tells apart


@dataclass(frozen=True, slots=True)
class Pair:
    """One item as answered by both: the graded answers of each, at least one."""

    answers_a: tuple[EvalItem, ...]
    answers_b: tuple[EvalItem, ...]

    @property
    def id(self) -> str:
        return self.answers_a[0].id

    @property
    def share_a(self) -> float:
        """Share of a's answers that are right."""
        return summary.shares([self.answers_a], right)[0]

    @property
    def share_b(self) -> float:
        return summary.shares([self.answers_b], right)[0]

    @property
    def right_a(self) -> bool:
        """More than half of a's answers are right."""
        return self.share_a > 0.5

    @property
    def right_b(self) -> bool:
        return self.share_b > 0.5

    @property
    def a(self) -> EvalItem:
        """An answer of a that stands for the others: the first that is right where most are, else the first that is wrong, a readable one before
        others."""
        return _typical(self.answers_a, self.right_a)

    @property
    def b(self) -> EvalItem:
        return _typical(self.answers_b, self.right_b)


@dataclass(frozen=True, slots=True)
class Measure:
    """A number of both models and their difference. `p` is that of the exact paired test where the number is a rate over the same items: McNemar's
    with one answer to each, else the permutation test on the shares."""

    a: Interval
    b: Interval
    difference: Interval
    p: float | None = None


@dataclass(frozen=True, slots=True)
class Decomposition:
    """The difference in accuracy as a sum: `form` from more (or fewer) readable answers, `sight` from readable answers that are right more often."""

    form: Interval
    sight: Interval


@dataclass(frozen=True, slots=True)
class Comparison:
    """What `compare` found. `num_left_out` items had no grade in one of the two; `parsable_in_both` restricts accuracy to items that both answered
    readably (at least once; NaN when there are none); `decomposition` is None when a right answer was not readable, or nothing was;
    `improved` and `worsened` are the flips wrong → right and right → wrong (of several answers, of most)."""

    a: EvalResult
    b: EvalResult
    pairs: tuple[Pair, ...]
    num_left_out: int
    num_other_pictures: int
    accuracy: Measure
    format_rate: Measure
    accuracy_given_parsable: Measure
    parsable_in_both: Measure
    num_parsable_in_both: int
    truncated_fraction: Measure
    length: Measure
    reward: Measure
    scores: dict[str, Measure]
    decomposition: Decomposition | None

    @property
    def once(self) -> bool:
        """Whether both answered every item once."""
        return all(len(answers) == 1 for pair in self.pairs for answers in (pair.answers_a, pair.answers_b))

    @property
    def improved(self) -> tuple[Pair, ...]:
        return tuple(pair for pair in self.pairs if pair.right_b and not pair.right_a)

    @property
    def worsened(self) -> tuple[Pair, ...]:
        return tuple(pair for pair in self.pairs if pair.right_a and not pair.right_b)


@dataclass(frozen=True, slots=True)
class Slice:
    """Accuracy of both models on the items of one category value."""

    value: str
    num_items: int
    accuracy: Measure


@dataclass(frozen=True, slots=True)
class LengthBin:
    """Accuracy of one model on its answers of `low`..`high` tokens; `mean_length` in tokens. `num_truncated` of them were cut at the limit."""

    low: int
    high: int
    mean_length: float
    num_answers: int
    num_truncated: int
    accuracy: Interval


def compare(a: EvalResult, b: EvalResult) -> Comparison:
    """Pair the items by id. Raises UsageError when the two did not answer the same questions, or when no item is graded in both."""
    matched = _match(a, b)
    graded = [[tuple(item for item in answers if item.error is None) for answers in pair] for pair in matched]
    pairs = tuple(Pair(answers_a, answers_b) for answers_a, answers_b in graded if answers_a and answers_b)
    if not pairs:
        raise UsageError(f"{a.name!r} and {b.name!r} have no item that is graded in both; look at the errors in the items")
    both = [pair for pair in pairs if all(any(map(readable, answers)) for answers in (pair.answers_a, pair.answers_b))]
    items = [item for pair in pairs for answers in (pair.answers_a, pair.answers_b) for item in answers]
    parts = sorted(set.intersection(*(set(item.scores) for item in items)))
    return Comparison(
        a=a,
        b=b,
        pairs=pairs,
        num_left_out=len(matched) - len(pairs),
        num_other_pictures=sum(pair.a.images != pair.b.images for pair in pairs),
        accuracy=_rate(pairs, right),
        format_rate=_rate(pairs, readable),
        accuracy_given_parsable=_conditional(pairs),
        parsable_in_both=_given_both(both),
        num_parsable_in_both=len(both),
        truncated_fraction=_rate(pairs, lambda item: item.truncated),
        length=_mean(pairs, lambda item: float(item.num_tokens)),
        reward=_mean(pairs, lambda item: item.reward),
        scores={part: _mean(pairs, lambda item, part=part: item.scores[part]) for part in parts},  # type: ignore[misc]
        decomposition=_decomposition(pairs, items),
    )


def slices(comparison: Comparison) -> dict[str, list[Slice]]:
    """Accuracy by every tag (and by the gold answer) that splits the items into 2 to 12 groups; values sorted, numbers as numbers."""
    columns = categories(comparison.pairs, lambda pair: pair.answers_a[0])
    return {tag: [Slice(value, len(pairs), _rate(pairs, right)) for value, pairs in column.items()] for tag, column in columns.items()}


def length_bins(result: EvalResult, num_bins: int = 6) -> list[LengthBin]:
    """Accuracy against the number of answer tokens, in bins that hold about equally many answers."""
    rows, low = [], min((item.num_tokens for item in result.graded), default=0)
    for high in quantile_edges([item.num_tokens for item in result.graded], num_bins):
        inside = [item for item in result.graded if low <= item.num_tokens <= high]
        questions = by_question(inside)
        accuracy = clustered_share([sum(map(right, answers)) for answers in questions], [len(answers) for answers in questions])
        mean = sum(item.num_tokens for item in inside) / len(inside)
        rows.append(LengthBin(low, high, mean, len(inside), sum(item.truncated for item in inside), accuracy))
        low = high + 1
    return rows


def pass_curve(result: EvalResult) -> list[tuple[int, Interval, Interval]]:
    """(k, pass@k, maj@k) for the powers of two up to the number of answers to an item; with one answer, k is 1."""
    questions = by_question(result.graded)
    steps = summary.ladder(summary.num_asked(result.graded)) or [1]
    return [(k, summary.pass_at(questions, k)[1], summary.majority_at(questions, k)[1]) for k in steps]


def same_items(a: EvalResult, b: EvalResult) -> bool:
    """True when both hold the same item ids."""
    return {item.id for item in a.items} == {item.id for item in b.items}


def _match(a: EvalResult, b: EvalResult) -> list[tuple[list[EvalItem], list[EvalItem]]]:
    """The answers of both to each item, graded or not."""
    for result in (a, b):
        (item, attempt), count = Counter((item.id, item.attempt) for item in result.items).most_common(1)[0]
        if count > 1:
            raise UsageError(f"{result.name!r} has {count} items with the id {item!r} (attempt {attempt}); ids must be unique to be paired")
    sides = [{answers[0].id: answers for answers in by_question(result.items)} for result in (a, b)]
    if not same_items(a, b):
        shared = len(sides[0].keys() & sides[1].keys())
        raise UsageError(
            f"{a.name!r} has {len(sides[0])} items and {b.name!r} has {len(sides[1])}, {shared} of them the same{_only(sides[0], sides[1])}; "
            "evaluate both with the same data set, --split and --num-items"
        )
    for name, answers in sides[0].items():
        asked = {(item.question, item.answer) for item in (*answers, *sides[1][name])}
        if len(asked) > 1:
            raise UsageError(f"item {name!r} asks something else in {a.name!r} than in {b.name!r}; evaluate both on the same data set")
    return [(answers, sides[1][name]) for name, answers in sides[0].items()]


def _only(a: dict[str, list[EvalItem]], b: dict[str, list[EvalItem]]) -> str:
    """An item that the other side does not have."""
    missing = next((name for name in a if name not in b), None) or next(name for name in b if name not in a)
    return f" ({missing!r} is not in both)"


def _typical(answers: Sequence[EvalItem], mostly_right: bool) -> EvalItem:
    alike = [item for item in answers if item.correct == mostly_right]
    return next((item for item in alike if item.parsed is not None), alike[0])


def _sides(pairs: Sequence[Pair]) -> tuple[list[tuple[EvalItem, ...]], list[tuple[EvalItem, ...]]]:
    return [pair.answers_a for pair in pairs], [pair.answers_b for pair in pairs]


def _rate(pairs: Sequence[Pair], hit: Callable[[EvalItem], bool]) -> Measure:
    side_a, side_b = _sides(pairs)
    shares_a, shares_b = summary.shares(side_a, hit), summary.shares(side_b, hit)
    grid = min(MAX_GRID, math.lcm(*{len(answers) for answers in (*side_a, *side_b)}))
    p = sign_flip([b - a for a, b in zip(shares_a, shares_b, strict=True)], grid)
    return Measure(summary.share(side_a, hit), summary.share(side_b, hit), paired_difference(shares_a, shares_b), p)


def _conditional(pairs: Sequence[Pair]) -> Measure:
    side_a, side_b = _sides(pairs)
    columns = [summary.shares(side, hit) for side in (side_a, side_b) for hit in (_read_and_right, readable)]
    rate_a, rate_b = (summary.conditional(side, right, readable) for side in (side_a, side_b))
    return Measure(rate_a, rate_b, paired_conditional_difference(*columns))


def _given_both(pairs: Sequence[Pair]) -> Measure:
    """Accuracy among the readable answers to items that have readable answers of both."""
    if not pairs:
        return Measure(NOTHING, NOTHING, NOTHING)
    return _rate([Pair(_read(pair.answers_a), _read(pair.answers_b)) for pair in pairs], right)


def _read(answers: Sequence[EvalItem]) -> tuple[EvalItem, ...]:
    return tuple(item for item in answers if item.parsed is not None)


def _decomposition(pairs: Sequence[Pair], items: Sequence[EvalItem]) -> Decomposition | None:
    if any(item.correct and item.parsed is None for item in items):
        return None
    columns = [summary.shares(side, hit) for side in _sides(pairs) for hit in (right, readable)]
    form, sight = decompose_difference(*columns)
    return None if math.isnan(form.estimate) else Decomposition(form, sight)


def _read_and_right(item: EvalItem) -> bool:
    return item.correct and item.parsed is not None


def _mean(pairs: Sequence[Pair], value: Callable[[EvalItem], float]) -> Measure:
    values_a, values_b = (summary.means(side, value) for side in _sides(pairs))
    return Measure(bootstrap_mean(values_a), bootstrap_mean(values_b), paired_difference(values_a, values_b))
