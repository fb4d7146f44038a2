"""Two evaluations of the same items → one paired comparison. Every difference is b − a, with items resampled in pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seegrad.errors import UsageError
from seegrad.evaluate import EvalItem, EvalResult
from seegrad.statistics import Interval, bootstrap_mean, mcnemar, paired_conditional_difference, paired_difference, quantile_edges, wilson

MAX_GROUPS = 12  # a tag with more distinct values than this is not a category


class Pair(NamedTuple):
    """One item as answered by both."""

    a: EvalItem
    b: EvalItem


@dataclass(frozen=True, slots=True)
class Measure:
    """A number of both models and their difference. `p` is the exact McNemar p value where the number is a rate over the same items."""

    a: Interval
    b: Interval
    difference: Interval
    p: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What `compare` found. `num_left_out` items had no grade in one of the two; `parsable_in_both` restricts accuracy to items that both answered
    readably (None when there are none); `improved` and `worsened` are the flips wrong → right and right → wrong."""

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

    @property
    def improved(self) -> tuple[Pair, ...]:
        return tuple(pair for pair in self.pairs if pair.b.correct and not pair.a.correct)

    @property
    def worsened(self) -> tuple[Pair, ...]:
        return tuple(pair for pair in self.pairs if pair.a.correct and not pair.b.correct)


@dataclass(frozen=True, slots=True)
class Slice:
    """Accuracy of both models on the items of one category value."""

    value: str
    num_items: int
    accuracy: Measure


@dataclass(frozen=True, slots=True)
class LengthBin:
    """Accuracy of one model on its answers of `low`..`high` tokens; `mean_length` in tokens."""

    low: int
    high: int
    mean_length: float
    num_items: int
    accuracy: Interval


def compare(a: EvalResult, b: EvalResult) -> Comparison:
    """Pair the items by id. Raises UsageError when the two did not answer the same questions, or when no item is graded in both."""
    matched = _match(a, b)
    pairs = tuple(pair for pair in matched if pair.a.error is None and pair.b.error is None)
    if not pairs:
        raise UsageError(f"{a.name!r} and {b.name!r} have no item that is graded in both; look at the errors in the items")
    both = [pair for pair in pairs if _parsed(pair.a) and _parsed(pair.b)]
    parts = sorted(set(pairs[0].a.scores) & set(pairs[0].b.scores))
    parts = [part for part in parts if all(part in item.scores for pair in pairs for item in pair)]
    return Comparison(
        a=a,
        b=b,
        pairs=pairs,
        num_left_out=len(matched) - len(pairs),
        num_other_pictures=sum(pair.a.images != pair.b.images for pair in pairs),
        accuracy=_rate(pairs, _correct),
        format_rate=_rate(pairs, _parsed),
        accuracy_given_parsable=_conditional(pairs),
        parsable_in_both=_rate(both, _correct),
        num_parsable_in_both=len(both),
        truncated_fraction=_rate(pairs, lambda item: item.truncated),
        length=_mean(pairs, lambda item: float(item.num_tokens)),
        reward=_mean(pairs, lambda item: item.reward),
        scores={part: _mean(pairs, lambda item, part=part: item.scores[part]) for part in parts},  # type: ignore[misc]
    )


def slices(comparison: Comparison) -> dict[str, list[Slice]]:
    """Accuracy by every tag (and by the gold answer) that splits the items into 2 to 12 groups; values sorted, numbers as numbers."""
    columns: dict[str, Callable[[EvalItem], str | None]] = {"answer": lambda item: item.answer}
    for tag in sorted({tag for pair in comparison.pairs for tag in pair.a.tags}):
        columns[tag] = lambda item, tag=tag: item.tags.get(tag)  # type: ignore[misc]
    return {name: rows for name, key in columns.items() if (rows := list(_slices(comparison.pairs, key)))}


def length_bins(result: EvalResult, num_bins: int = 6) -> list[LengthBin]:
    """Accuracy against the number of answer tokens, in bins that hold about equally many answers."""
    rows, low = [], min((item.num_tokens for item in result.graded), default=0)
    for high in quantile_edges([item.num_tokens for item in result.graded], num_bins):
        inside = [item for item in result.graded if low <= item.num_tokens <= high]
        mean = sum(item.num_tokens for item in inside) / len(inside)
        rows.append(LengthBin(low, high, mean, len(inside), wilson(sum(map(_correct, inside)), len(inside))))
        low = high + 1
    return rows


def same_items(a: EvalResult, b: EvalResult) -> bool:
    """True when both hold the same item ids."""
    return {item.id for item in a.items} == {item.id for item in b.items}


def _match(a: EvalResult, b: EvalResult) -> list[Pair]:
    for result in (a, b):
        item, count = Counter(item.id for item in result.items).most_common(1)[0]
        if count > 1:
            raise UsageError(f"{result.name!r} has {count} items with the id {item!r}; ids must be unique to be paired")
    others = {item.id: item for item in b.items}
    shared = sum(item.id in others for item in a.items)
    if not same_items(a, b):
        raise UsageError(
            f"{a.name!r} has {len(a.items)} items and {b.name!r} has {len(b.items)}, {shared} of them the same; "
            "evaluate both with the same data set, --split and --num-items"
        )
    pairs = [Pair(item, others[item.id]) for item in a.items]
    for pair in pairs:
        if (pair.a.question, pair.a.answer) != (pair.b.question, pair.b.answer):
            raise UsageError(f"item {pair.a.id!r} asks something else in {a.name!r} than in {b.name!r}; evaluate both on the same data set")
    return pairs


def _correct(item: EvalItem) -> bool:
    return item.correct


def _parsed(item: EvalItem) -> bool:
    return item.parsed is not None


def _rate(pairs: Sequence[Pair], hit: Callable[[EvalItem], bool]) -> Measure:
    hits_a, hits_b = [hit(pair.a) for pair in pairs], [hit(pair.b) for pair in pairs]
    only_a = sum(a and not b for a, b in zip(hits_a, hits_b, strict=True))
    only_b = sum(b and not a for a, b in zip(hits_a, hits_b, strict=True))
    total = len(pairs)
    return Measure(wilson(sum(hits_a), total), wilson(sum(hits_b), total), paired_difference(hits_a, hits_b), mcnemar(only_a, only_b))


def _conditional(pairs: Sequence[Pair]) -> Measure:
    columns = [[(item.correct and _parsed(item), _parsed(item)) for item in side] for side in zip(*pairs, strict=True)]
    (hits_a, given_a), (hits_b, given_b) = ([list(flags) for flags in zip(*column, strict=True)] for column in columns)
    return Measure(
        wilson(sum(hits_a), sum(given_a)),
        wilson(sum(hits_b), sum(given_b)),
        paired_conditional_difference(hits_a, given_a, hits_b, given_b),
    )


def _mean(pairs: Sequence[Pair], value: Callable[[EvalItem], float]) -> Measure:
    values_a, values_b = [value(pair.a) for pair in pairs], [value(pair.b) for pair in pairs]
    return Measure(bootstrap_mean(values_a), bootstrap_mean(values_b), paired_difference(values_a, values_b))


def _slices(pairs: Sequence[Pair], key: Callable[[EvalItem], str | None]) -> Iterator[Slice]:
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        value = key(pair.a)
        if value is not None:
            groups.setdefault(value, []).append(pair)
    if not 2 <= len(groups) <= MAX_GROUPS:
        return
    for value in sorted(groups, key=lambda text: (0, float(text), text) if _is_number(text) else (1, 0.0, text)):
        yield Slice(value, len(groups[value]), _rate(groups[value], _correct))


def _is_number(text: str) -> bool:
    try:
        return float(text) == float(text)
    except ValueError:
        return False
