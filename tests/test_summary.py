"""The numbers of an evaluation against counting by hand and by enumeration."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import replace

import pytest

from seegrad.evaluate import EvalItem, EvalResult
from seegrad.summary import by_question, categories, describe, ladder, summarize
from tests.reporting import answer, evaluation, examples, sampled


def item(name: str, attempt: int, correct: bool, parsed: str | None = "1", **more: object) -> EvalItem:
    return EvalItem(name, "q", "1", parsed=parsed, correct=correct, attempt=attempt, **more)  # type: ignore[arg-type]


FOUR_EACH = [  # right: 1 of 4, 4 of 4, 0 of 4
    *(item("a", n, n == 2, "1" if n == 2 else "2") for n in range(4)),
    *(item("b", n, True) for n in range(4)),
    *(item("c", n, False, None if n else "7") for n in range(4)),
]


def test_rates_of_several_answers_by_hand() -> None:
    summary = summarize(FOUR_EACH, 2.0)
    assert (summary["num_items"], summary["num_answers"], summary["answers_per_item"], summary["samples_per_second"]) == (3, 12, 4, 6.0)
    assert summary["accuracy"]["estimate"] == pytest.approx(5 / 12) and summary["accuracy"]["num_answers"] == 12
    assert summary["format_rate"]["estimate"] == pytest.approx(9 / 12)
    given = summary["accuracy_given_parsable"]
    assert given["estimate"] == pytest.approx(5 / 9) and (given["num_items"], given["num_answers"]) == (3, 9)
    assert {k: rate["estimate"] for k, rate in summary["majority_at"].items()} == pytest.approx({"1": 5 / 12, "2": (0.25 + 1) / 3, "4": 1 / 3})


def test_pass_at_k_is_the_mean_over_items_of_all_subsets() -> None:
    summary = summarize(FOUR_EACH, 1.0)
    assert list(summary["pass_at"]) == ["1", "2", "4"]
    for k, rate in summary["pass_at"].items():
        tried = [[any(one.correct for one in subset) for subset in itertools.combinations(answers, int(k))] for answers in by_question(FOUR_EACH)]
        assert rate["estimate"] == pytest.approx(statistics.fmean(statistics.fmean(some) for some in tried))
        assert rate["num_items"] == 3 and 0 <= rate["low"] <= rate["estimate"] <= rate["high"] <= 1


def test_one_answer_has_no_pass_at_k_and_several_have_wider_intervals_than_as_many_items() -> None:
    rows = examples(count=40)
    once = evaluation(rows, answer(rows, lambda n: n % 2 == 0)).summary
    assert once["pass_at"] == {} and once["majority_at"] == {} and once["by_seed"] == {} and once["between_seeds"] is None
    four = [replace(one, attempt=n) for one in evaluation(rows, answer(rows, lambda n: n % 2 == 0)).items for n in range(4)]
    again = summarize(four, 1.0)
    for key in ("accuracy", "format_rate", "accuracy_given_parsable", "mean_length", "reward"):
        kept = {bound: again[key][bound] for bound in ("estimate", "low", "high")}
        assert kept == pytest.approx({bound: once[key][bound] for bound in kept}), key  # the same answer four times adds nothing
        assert again[key]["num_answers"] == 4 * once[key]["num_answers"]


def test_items_weigh_the_same_however_many_of_their_answers_are_graded() -> None:
    items = [one if (one.id, one.attempt) not in {("b", 1), ("b", 2)} else replace(one, error="x", reason="grader failed") for one in FOUR_EACH]
    summary = summarize(items, 1.0)
    assert summary["accuracy"]["estimate"] == pytest.approx(5 / 12) and summary["accuracy"]["num_answers"] == 10
    assert summary["pass_at"]["4"]["num_items"] == 2 and summary["pass_at"]["2"]["num_items"] == 3  # b has but two answers
    assert summary["errors"] == {"grader failed": 2}
    assert summarize([replace(one, reason="") for one in items], 1.0)["errors"] == {"no reason recorded": 2}


def test_seeds_are_shown_apart() -> None:
    result = sampled(examples(count=30), lambda n: 0.6, num_samples=2, seeds=(3, 4, 5))
    summary = result.summary
    assert list(summary["by_seed"]) == ["3", "4", "5"] and summary["answers_per_item"] == 6
    each = [statistics.fmean(one.correct for one in result.items if one.seed == seed) for seed in (3, 4, 5)]
    assert [rate["estimate"] for rate in summary["by_seed"].values()] == pytest.approx(each)
    spread = summary["between_seeds"]
    assert spread["standard_deviation"] == pytest.approx(statistics.stdev(each)) and spread["standard_deviation"] > 0
    assert (spread["lowest"], spread["highest"]) == (min(each), max(each)) and spread["mean"] == pytest.approx(summary["accuracy"]["estimate"])


def test_categories_hold_every_item_once() -> None:
    result = sampled(examples(count=30), lambda n: 0.6)
    columns = result.summary["by_category"]
    assert {"answer", "kind", "language"} <= set(columns) and "task" not in columns  # one value is no category
    for column in columns.values():
        assert sum(rates["accuracy"]["num_items"] for rates in column.values()) == 30
        assert sum(rates["accuracy"]["num_answers"] for rates in column.values()) == 120
    kind = next(iter(columns["kind"]))
    own = [one for one in result.items if one.tags["kind"] == kind]
    assert columns["kind"][kind]["accuracy"]["estimate"] == pytest.approx(statistics.fmean(one.correct for one in own))
    numbers = [item(str(n), 0, True, tags={"sides": str(n % 11)}) for n in range(40)]
    assert list(categories(numbers, lambda one: one)["sides"]) == [str(n) for n in range(11)]
    assert not categories([item(str(n), 0, True, tags={"sides": str(n)}) for n in range(40)], lambda one: one)  # too many to be one


def test_the_ladder_doubles_up_to_the_number_of_answers() -> None:
    assert [ladder(n) for n in (0, 1, 2, 3, 8, 12)] == [[], [], [1, 2], [1, 2, 3], [1, 2, 4, 8], [1, 2, 4, 8, 12]]


def test_every_line_for_the_terminal_says_its_number_of_items() -> None:
    lines = describe(sampled(examples(count=20), lambda n: 0.6, num_samples=4, seeds=(0, 1)).summary)
    rates = [line for line in lines if "[" in line]
    assert len(rates) > 12 and all("n = " in line for line in rates)
    text = "\n".join(lines)
    for word in ("accuracy (mean@8)", "pass@2", "pass@8", "maj@8", "accuracy by seed", "standard deviation", "kind = ", "gold = "):
        assert word in text, word
    assert "pass@1 " not in text  # that is the accuracy
    bad = EvalResult("x", (item("a", 0, True), replace(item("b", 0, False), error="e", reason="empty file")), 1.0)
    assert "1 of 2, left out of every rate: 1 empty file" in "\n".join(describe(bad.summary))
    nothing = describe(EvalResult("x", (item("a", 0, False, None),), 0.0).summary)
    assert any("accuracy_given_parsable" in line and "no answers" in line for line in nothing)
