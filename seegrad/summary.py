"""Graded answers → the numbers of an evaluation. Every rate says over how many items and answers it is taken.

    answers ─ by_question ─▶ [answers to one item] × N ─▶ share · conditional · mean · pass@k · maj@k, by category, by seed

Each item weighs the same, however many of its answers could be graded; answers to one item depend on each other, so that intervals are over items.
"""

from __future__ import annotations

import math
import statistics as standard
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from seegrad.statistics import Interval, bootstrap_mean, clustered_share, majority_at_k, pass_at_k

MAX_GROUPS = 12  # a tag with more distinct values than this is not a category
NUM_RESAMPLES = 2_000


class Graded(Protocol):
    """What a summary needs of an answer (`evaluate.EvalItem`)."""

    @property
    def id(self) -> str: ...
    @property
    def answer(self) -> str: ...
    @property
    def scores(self) -> Mapping[str, float]: ...
    @property
    def reward(self) -> float: ...
    @property
    def parsed(self) -> str | None: ...
    @property
    def correct(self) -> bool: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def truncated(self) -> bool: ...
    @property
    def tags(self) -> Mapping[str, str]: ...
    @property
    def error(self) -> str | None: ...
    @property
    def reason(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def seed(self) -> int: ...


Item = TypeVar("Item", bound=Graded)
Row = TypeVar("Row")


def by_question(items: Iterable[Item]) -> list[list[Item]]:
    """The answers to each item, items in order of their first answer. The same id and attempt once more is another item."""
    seen: Counter[tuple[str, int]] = Counter()
    groups: dict[tuple[str, int], list[Item]] = {}
    for item in items:
        groups.setdefault((item.id, seen[item.id, item.attempt]), []).append(item)
        seen[item.id, item.attempt] += 1
    return list(groups.values())


def summarize(items: Sequence[Graded], total_seconds: float) -> dict[str, Any]:
    """The summary of an evaluation file; docs/evaluation.md says what each entry is. A rate is `{estimate, low, high, num_items, num_answers}`, or
    None when there is nothing to take it over."""
    graded = [item for item in items if item.error is None]
    questions = by_question(graded)
    parts = sorted({name for item in graded for name in item.scores})
    seeds = sorted({item.seed for item in items})
    return {
        "num_items": len(by_question(items)),
        "num_answers": len(items),
        "answers_per_item": num_asked(items),
        "seeds": seeds,
        "num_errors": len(items) - len(graded),
        "errors": dict(Counter(item.reason or "no reason recorded" for item in items if item.error is not None).most_common()),
        "accuracy": _rate(questions, share(questions, right)),
        "format_rate": _rate(questions, share(questions, readable)),
        "accuracy_given_parsable": _conditional_rate(questions),
        "truncated_fraction": _rate(questions, share(questions, lambda item: item.truncated)),
        "mean_length": _rate(questions, mean(questions, lambda item: float(item.num_tokens))),
        "reward": _rate(questions, mean(questions, lambda item: item.reward)),
        "scores": {name: _score(questions, name) for name in parts},
        "pass_at": {str(k): _rate(*pass_at(questions, k)) for k in ladder(num_asked(graded))},
        "majority_at": {str(k): _rate(*majority_at(questions, k)) for k in ladder(num_asked(graded))},
        **_seeds(graded, seeds),
        "by_category": {
            tag: {
                value: {"accuracy": _rate(rows, share(rows, right)), "format_rate": _rate(rows, share(rows, readable))}
                for value, rows in column.items()
            }
            for tag, column in categories(questions, lambda answers: answers[0]).items()
        },
        "samples_per_second": len(items) / total_seconds if total_seconds > 0 else None,
        "total_seconds": total_seconds,
    }


def right(item: Graded) -> bool:
    return item.correct


def readable(item: Graded) -> bool:
    return item.parsed is not None


def num_asked(items: Sequence[Graded]) -> int:
    """The most answers that any item has."""
    return max((len(answers) for answers in by_question(items)), default=0)


def ladder(num_answers: int) -> list[int]:
    """The k of pass@k: powers of two below the number of answers, and that number; nothing when there is but one answer.

    >>> ladder(12), ladder(1)
    ([1, 2, 4, 8, 12], [])
    """
    return [*(2**power for power in range(num_answers.bit_length()) if 2**power < num_answers), num_answers] if num_answers > 1 else []


def shares(questions: Sequence[Sequence[Item]], hit: Callable[[Item], bool]) -> list[float]:
    """Of each item the share of its answers that are a hit."""
    return [sum(map(hit, answers)) / len(answers) for answers in questions]


def share(questions: Sequence[Sequence[Item]], hit: Callable[[Item], bool]) -> Interval:
    """Mean over items of the share of answers that are a hit."""
    most = max(map(len, questions), default=0)
    hits = [sum(map(hit, answers)) * (most / len(answers)) for answers in questions]
    return clustered_share(hits, [most] * len(questions))


def conditional(questions: Sequence[Sequence[Item]], hit: Callable[[Item], bool], given: Callable[[Item], bool]) -> Interval:
    """Share of the answers that meet `given` which are a hit."""
    most = max(map(len, questions), default=0)
    weights = [most / len(answers) for answers in questions]
    hits = [sum(hit(item) and given(item) for item in answers) * weight for answers, weight in zip(questions, weights, strict=True)]
    return clustered_share(hits, [sum(map(given, answers)) * weight for answers, weight in zip(questions, weights, strict=True)])


def means(questions: Sequence[Sequence[Item]], value: Callable[[Item], float]) -> list[float]:
    """Of each item the mean over its answers."""
    return [sum(map(value, answers)) / len(answers) for answers in questions]


def mean(questions: Sequence[Sequence[Item]], value: Callable[[Item], float]) -> Interval:
    """Mean over items of the mean over answers, with its bootstrap interval over items."""
    return bootstrap_mean(means(questions, value), num_resamples=NUM_RESAMPLES)


def pass_at(questions: Sequence[Sequence[Item]], k: int) -> tuple[list[Sequence[Item]], Interval]:
    """The items with at least k graded answers, and the mean over them of the chance that k answers hold a right one."""
    asked = [answers for answers in questions if len(answers) >= k]
    return asked, _mean_of_shares(asked, [pass_at_k(sum(map(right, answers)), len(answers), k) for answers in asked])


def majority_at(questions: Sequence[Sequence[Item]], k: int) -> tuple[list[Sequence[Item]], Interval]:
    """The items with at least k graded answers, and the mean over them of how often the most frequent of k answers is right."""
    asked = [answers for answers in questions if len(answers) >= k]
    votes = [majority_at_k([item.parsed for item in answers], [item.correct for item in answers], k) for answers in asked]
    return asked, _mean_of_shares(asked, votes)


def categories(rows: Sequence[Row], answered: Callable[[Row], Graded]) -> dict[str, dict[str, list[Row]]]:
    """Rows by every tag (and by the gold `answer`) that splits them into 2 to 12 groups: tag → value → rows; values sorted, numbers as numbers."""
    columns: dict[str, Callable[[Graded], str | None]] = {"answer": lambda item: item.answer}
    for tag in sorted({tag for row in rows for tag in answered(row).tags}):
        columns[tag] = lambda item, tag=tag: item.tags.get(tag)  # type: ignore[misc]
    found = {}
    for tag, key in columns.items():
        groups: dict[str, list[Row]] = {}
        for row in rows:
            value = key(answered(row))
            if value is not None:
                groups.setdefault(value, []).append(row)
        if 2 <= len(groups) <= MAX_GROUPS:
            found[tag] = {value: groups[value] for value in sorted(groups, key=_as_number_first)}
    return found


def describe(summary: Mapping[str, Any]) -> list[str]:
    """The summary for a terminal, one number a line, each with its 95 % interval and what it is taken over."""
    many = summary["answers_per_item"] > 1
    rows: list[tuple[str, str]] = []
    if summary["errors"]:  # first: whoever reads only the accuracy must have seen it
        reasons = ", ".join(f"{count} {reason}" for reason, count in summary["errors"].items())
        rows.append(("without a grade", f"{summary['num_errors']} of {summary['num_answers']}, left out of every rate: {reasons}"))
    for name in ("accuracy", "format_rate", "accuracy_given_parsable", "truncated_fraction", "mean_length", "reward"):
        label = f"{name} (mean@{summary['answers_per_item']})" if many and name == "accuracy" else name
        rows.append((label, _shown(summary[name], percent=name not in ("mean_length", "reward"))))
    for title, key in (("pass", "pass_at"), ("maj", "majority_at")):
        rows += [(f"{title}@{k}", _shown(rate, percent=True)) for k, rate in summary[key].items() if k != "1"]
    if summary["between_seeds"] is not None:
        spread = summary["between_seeds"]
        each = ", ".join(f"{rate['estimate']:.1%}" for rate in summary["by_seed"].values())
        rows.append(("accuracy by seed", f"{each}; standard deviation {100 * spread['standard_deviation']:.1f} points"))
    for tag, column in summary["by_category"].items():
        rows += [(f"{'gold' if tag == 'answer' else tag} = {value}", _shown(rates["accuracy"], percent=True)) for value, rates in column.items()]
    if summary["samples_per_second"] is not None:
        rows.append(("speed", f"{summary['samples_per_second']:.1f} answers a second, {summary['total_seconds']:.1f} s in all"))
    width = max(len(label) for label, _ in rows) + 2
    return [f"  {label:{width}}{value}" for label, value in rows]


def _mean_of_shares(questions: Sequence[Sequence[Item]], values: Sequence[float]) -> Interval:
    most = max(map(len, questions), default=0)
    return clustered_share([value * most for value in values], [most] * len(values))


def _rate(questions: Sequence[Sequence[Graded]], interval: Interval) -> dict[str, float | int] | None:
    return _plain(interval, len(questions), sum(map(len, questions)))


def _conditional_rate(questions: Sequence[Sequence[Graded]]) -> dict[str, float | int] | None:
    given = [sum(map(readable, answers)) for answers in questions]
    return _plain(conditional(questions, right, readable), sum(count > 0 for count in given), sum(given))


def _score(questions: Sequence[Sequence[Graded]], name: str) -> dict[str, float | int] | None:
    scored = [[item for item in answers if name in item.scores] for answers in questions]
    scored = [answers for answers in scored if answers]
    return _rate(scored, mean(scored, lambda item: item.scores[name]))


def _plain(interval: Interval, num_items: int, num_answers: int) -> dict[str, float | int] | None:
    if math.isnan(interval.estimate):
        return None
    numbers = {"estimate": interval.estimate, "low": interval.low, "high": interval.high}
    return {**{key: float(value) for key, value in numbers.items()}, "num_items": num_items, "num_answers": num_answers}


def _seeds(graded: Sequence[Graded], seeds: Sequence[int]) -> dict[str, Any]:
    """Accuracy of each seed, and how far the seeds lie apart; empty and None with one seed."""
    if len(seeds) < 2:
        return {"by_seed": {}, "between_seeds": None}
    groups = {seed: by_question(item for item in graded if item.seed == seed) for seed in seeds}
    rates = {str(seed): rate for seed, rows in groups.items() if (rate := _rate(rows, share(rows, right))) is not None}
    values = [float(rate["estimate"]) for rate in rates.values()]
    if len(values) < 2:
        return {"by_seed": rates, "between_seeds": None}
    spread = {"mean": standard.fmean(values), "standard_deviation": standard.stdev(values), "lowest": min(values), "highest": max(values)}
    return {"by_seed": rates, "between_seeds": spread}


def _shown(rate: Mapping[str, Any] | None, *, percent: bool) -> str:
    if rate is None:
        return "– (no answers)"
    low, middle, high, items, answers = (rate[key] for key in ("low", "estimate", "high", "num_items", "num_answers"))
    over = f"n = {items:,}" if items == answers else f"n = {items:,} item{'' if items == 1 else 's'}, {answers:,} answers"
    return f"{middle:.1%}  [{low:.1%}, {high:.1%}]  {over}" if percent else f"{middle:.2f}  [{low:.2f}, {high:.2f}]  {over}"


def _as_number_first(text: str) -> tuple[int, float, str]:
    try:
        number = float(text)
    except ValueError:
        return 1, 0.0, text
    return (0, number, text) if number == number else (1, 0.0, text)
