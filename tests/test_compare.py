"""Two evaluations, paired: the numbers by hand, with one answer to an item and with several."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from seegrad.compare import compare, length_bins, pass_curve, slices
from seegrad.errors import UsageError
from seegrad.evaluate import EvalItem
from seegrad.statistics import clustered_share, mcnemar, wilson
from tests.reporting import examples, item, model, result, sampled


def answers(name: str, *right: bool | None) -> list[EvalItem]:
    """Answers to one item: right, wrong, or (None) not readable."""
    return [item(name, None if good is None else str(int(good)), bool(good), attempt=n) for n, good in enumerate(right)]


def test_comparison_counts_by_hand() -> None:
    # a: right on 1, 2; readable on 1, 2, 3.   b: right on 2, 3, 4, 5; readable everywhere.
    a = result(item("1", "1", True), item("2", "1", True), item("3", "2", False), item("4", None, False), item("5", None, False))
    b = result(item("1", "2", False), item("2", "1", True), item("3", "1", True), item("4", "1", True), item("5", "1", True), version=3)
    found = compare(a, b)
    assert (found.accuracy.a.estimate, found.accuracy.b.estimate) == (0.4, 0.8)
    assert found.accuracy.difference.estimate == pytest.approx(0.4)
    assert [pair.a.id for pair in found.improved] == ["3", "4", "5"] and [pair.a.id for pair in found.worsened] == ["1"]
    assert found.accuracy.p == 10 / 16  # three against one: 2 · (1 + 4) / 2⁴
    assert found.format_rate.difference.estimate == pytest.approx(0.4)
    assert found.accuracy_given_parsable.a.estimate == 2 / 3 and found.accuracy_given_parsable.b.estimate == 4 / 5
    assert found.accuracy_given_parsable.difference.estimate == pytest.approx(4 / 5 - 2 / 3)
    assert found.num_parsable_in_both == 3 and found.parsable_in_both.difference.estimate == 0.0


def test_items_are_paired_by_id_not_by_place() -> None:
    a, b = model(lambda n: n < 20), model(lambda n: n < 30, version=1)
    mixed = replace(b, items=b.items[::-1])
    assert compare(a, mixed).accuracy == compare(a, b).accuracy
    assert len(compare(a, mixed).improved) == 10 and not compare(a, mixed).worsened
    renamed = [replace(one, id=other.id, question=other.question, answer=other.answer) for one, other in zip(mixed.items, a.items, strict=True)]
    by_place = replace(b, items=tuple(renamed))
    assert compare(a, by_place).worsened  # the planted error is noticed


def test_other_items_are_refused_with_both_counts() -> None:
    with pytest.raises(UsageError, match="'v0' has 40 items and 'v1' has 30, 30 of them the same") as caught:
        compare(model(lambda n: True), model(lambda n: True, count=30, version=1))
    assert "\n" not in str(caught.value)
    same = model(lambda n: True)
    with pytest.raises(UsageError, match="asks something else"):
        compare(same, replace(same, items=(replace(same.items[0], answer="99"), *same.items[1:])))
    with pytest.raises(UsageError, match="2 items with the id"):
        compare(same, replace(same, items=(*same.items, same.items[0])))


def test_slices_split_all_items_and_keep_numbers_in_order() -> None:
    found = slices(compare(model(lambda n: n % 2 == 0), model(lambda n: True, version=1)))
    assert {"answer", "kind", "language"} <= set(found) and "task" not in found  # one value is no category
    assert all(sum(row.num_items for row in rows) == 40 for rows in found.values())
    assert [row.value for row in found["answer"]] == sorted((row.value for row in found["answer"]), key=float)


def test_length_bins_hold_every_answer_once() -> None:
    one = model(lambda n: n % 4 == 0)
    bins = length_bins(one)
    assert sum(row.num_answers for row in bins) == 40
    assert sum(row.accuracy.estimate * row.num_answers for row in bins) == pytest.approx(10)
    assert all(row.low <= row.mean_length <= row.high for row in bins)


def test_several_answers_by_hand() -> None:
    a = result(*answers("1", True, False), *answers("2", False, False), *answers("3", None, None), *answers("4", True, True))
    b = result(
        *answers("1", True, True, True, False),
        *answers("2", True, True, True, True),
        *answers("3", None, False, False, False),
        *answers("4", False, True, True, True),
        version=3,
    )
    found = compare(a, b)
    assert (found.accuracy.a.estimate, found.accuracy.b.estimate) == (0.375, 0.625) and found.accuracy.difference.estimate == pytest.approx(0.25)
    assert found.accuracy.p == pytest.approx(6 / 8)  # differences of 1, 4, 0 and -1 quarters: of all signs six in eight give at least 4
    assert (found.format_rate.a.estimate, found.format_rate.b.estimate) == pytest.approx((6 / 8, 15 / 16))
    assert found.accuracy_given_parsable.a.estimate == pytest.approx(3 / 6) and found.accuracy_given_parsable.b.estimate == pytest.approx(10 / 15)
    assert found.num_parsable_in_both == 3 and found.parsable_in_both.difference.estimate == pytest.approx((1 / 4 + 1 - 1 / 4) / 3)
    assert [pair.id for pair in found.improved] == ["1", "2"] and not found.worsened and not found.once
    assert not found.improved[0].a.correct and found.improved[0].b.correct  # what is shown stands for the flip
    assert found.decomposition is not None
    assert found.decomposition.form.estimate + found.decomposition.sight.estimate == pytest.approx(0.25)


def test_the_permutation_test_pairs_items_whatever_the_number_of_answers() -> None:
    rows = examples(count=60)
    once, four, eight = (sampled(rows, lambda n: 0.3 + 0.4 * (n % 2), num_samples=k, version=k) for k in (1, 4, 8))
    better = sampled(rows, lambda n: 0.5 + 0.4 * (n % 2), num_samples=4, version=9)
    assert compare(once, four).accuracy.p > 0.01 and compare(four, eight).accuracy.p > 0.01  # type: ignore[operator]
    assert compare(four, better).accuracy.p < 0.001 and compare(four, better).accuracy.difference.low > 0  # type: ignore[operator]
    shuffled = replace(better, items=tuple(replace(one, id=rows[(int(one.id.rpartition("-")[2]) + 31) % 60].id) for one in better.items))
    with pytest.raises(UsageError, match="asks something else"):  # the planted error: other items under the same names
        compare(four, shuffled)


def test_repeating_both_sides_changes_no_number() -> None:
    a, b = model(lambda n: n % 3 == 0, lambda n: n % 5 > 0), model(lambda n: n % 2 == 0, version=1)
    thrice = [replace(one, items=tuple(replace(row, attempt=n) for row in one.items for n in range(3))) for one in (a, b)]
    found, again = compare(a, b), compare(*thrice)
    for name in ("accuracy", "format_rate", "accuracy_given_parsable", "parsable_in_both", "truncated_fraction", "length", "reward"):
        one, other = getattr(found, name), getattr(again, name)
        for side in ("a", "b", "difference"):
            numbers = [(i.estimate, i.low, i.high) for i in (getattr(one, side), getattr(other, side))]
            assert numbers[0] == pytest.approx(numbers[1], abs=1e-12), (name, side)
        assert one.p == other.p, name
    assert found.accuracy.p == mcnemar(len(found.worsened), len(found.improved))


def test_an_answer_without_a_grade_leaves_the_item_its_others() -> None:
    rows = examples(count=10)
    a, b = sampled(rows, lambda n: 0.5), sampled(rows, lambda n: 0.5, version=1)
    broken = [replace(one, error="x") if one.attempt == 2 or one.id == rows[0].id else one for one in b.items]
    found = compare(a, replace(b, items=tuple(broken)))
    assert found.num_left_out == 1 and len(found.pairs) == 9
    assert {len(pair.answers_a) for pair in found.pairs} == {4} and {len(pair.answers_b) for pair in found.pairs} == {3}


def test_a_right_answer_that_is_not_readable_has_no_decomposition() -> None:
    a, b = result(item("1", None, True), item("2", "1", True)), result(item("1", "1", True), item("2", "1", True), version=1)
    assert compare(a, b).decomposition is None
    unread = result(item("1", None, False), item("2", None, False))
    assert compare(unread, b).decomposition is None


def test_different_items_are_refused_with_one_of_them() -> None:
    with pytest.raises(UsageError, match=r"'v0' has 2 items and 'v1' has 1, 1 of them the same \('2' is not in both\); evaluate both"):
        compare(result(*answers("1", True, False), *answers("2", True, True)), result(*answers("1", True), version=1))


def test_length_bins_treat_answers_to_one_item_as_dependent() -> None:
    rows = [item(str(n), "1", n % 2 == 0, num_tokens=5 + n % 2) for n in range(60)]
    four = result(*(replace(one, attempt=k) for one in rows for k in range(4)))
    once = length_bins(result(*rows))
    assert [row.num_answers for row in length_bins(four)] == [4 * row.num_answers for row in once]
    assert [row.accuracy for row in length_bins(four)] == [row.accuracy for row in once]
    cut = length_bins(result(*(replace(one, truncated=one.num_tokens == 6) for one in rows)))
    assert sum(row.num_truncated for row in cut) == 30


def test_the_curve_of_one_answer_is_its_accuracy() -> None:
    one = model(lambda n: n % 4 == 0)
    assert [(k, passed.estimate, voted.estimate) for k, passed, voted in pass_curve(one)] == [(1, 0.25, 0.25)]
    many = pass_curve(sampled(examples(count=40), lambda n: 0.4, num_samples=8))
    assert [k for k, _, _ in many] == [1, 2, 4, 8]
    heights = [passed.estimate for _, passed, _ in many]
    assert heights == sorted(heights) and heights[-1] > heights[0] + 0.2


def test_intervals_of_a_comparison_are_those_of_the_summary() -> None:
    rows = examples(count=40)
    one, other = sampled(rows, lambda n: 0.1 + 0.8 * (n % 2)), sampled(rows, lambda n: 0.6, version=1)
    found, summary = compare(one, other), one.summary
    for name in ("accuracy", "format_rate", "accuracy_given_parsable"):
        interval = getattr(found, name).a
        assert (interval.estimate, interval.low, interval.high) == tuple(summary[name][key] for key in ("estimate", "low", "high"))
    hits = np.array([sum(row.correct for row in one.items if row.id == name) for name in dict.fromkeys(row.id for row in one.items)])
    assert found.accuracy.a == clustered_share(hits, [4] * 40) != wilson(int(hits.sum()), 160)
