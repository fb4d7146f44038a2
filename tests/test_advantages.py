"""Credit within a group, against the formulas written out slowly."""

from __future__ import annotations

import math
import statistics
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seegrad import registry
from seegrad.advantages import Credit, batch_std, decoupled, leave_one_out, mean, mean_std, pass_at_k
from seegrad.errors import UsageError

REWARDS = st.lists(st.floats(-10, 10, width=32), min_size=2, max_size=16)


def array(values: list[float]) -> np.ndarray:
    return np.array(values, np.float32)


@given(REWARDS)
def test_mean_is_reward_minus_the_groups_mean(rewards: list[float]) -> None:
    expected = [value - statistics.fmean(rewards) for value in rewards]
    assert mean(array(rewards)) == pytest.approx(expected, abs=1e-5)


@given(REWARDS)
def test_mean_std_divides_by_the_population_deviation(rewards: list[float]) -> None:
    centre, deviation = statistics.fmean(rewards), statistics.pstdev(rewards)
    expected = [(value - centre) / (deviation + 1e-6) for value in rewards]
    assert mean_std(array(rewards)) == pytest.approx(expected, rel=1e-4, abs=1e-3)


def test_the_comparison_notices_the_sample_deviation_and_a_missing_centre() -> None:
    rewards = [1.0, 0.0, 0.0, 1.0, 0.0]
    centre, wrong = statistics.fmean(rewards), statistics.stdev(rewards)
    assert mean_std(array(rewards)) != pytest.approx([(value - centre) / (wrong + 1e-6) for value in rewards], rel=1e-4, abs=1e-3)
    assert mean(array(rewards)) != pytest.approx(rewards, abs=1e-5)


@pytest.mark.parametrize("function", [mean, mean_std])
@given(rewards=REWARDS, shift=st.floats(-5, 5, width=32))
def test_advantages_sum_to_zero_and_keep_the_order(function: object, rewards: list[float], shift: float) -> None:
    advantages = function(array(rewards))  # type: ignore[operator]
    assert advantages.dtype == np.float32 and advantages.shape == (len(rewards),)
    assert np.isfinite(advantages).all()
    assert math.fsum(advantages) == pytest.approx(0, abs=1e-3)
    order = np.argsort(rewards, kind="stable")
    assert (np.diff(advantages[order]) >= 0).all()


def test_scale_matters_for_mean_and_not_for_mean_std() -> None:
    rewards = array([0, 0, 1, 2])
    assert mean(rewards * 3) == pytest.approx(mean(rewards) * 3)
    assert mean_std(rewards * 3) == pytest.approx(mean_std(rewards), rel=1e-4)


def test_a_flat_group_gives_zeros() -> None:
    for function in (mean, mean_std):
        assert function(array([0.7] * 8)) == pytest.approx([0] * 8, abs=1e-6)


def test_both_are_in_the_registry() -> None:
    assert registry.load("advantage", "mean") is mean and registry.load("advantage", "mean_std") is mean_std


@given(REWARDS)
def test_leave_one_out_compares_with_the_others(rewards: list[float]) -> None:
    expected = [value - statistics.fmean(rewards[:n] + rewards[n + 1 :]) for n, value in enumerate(rewards)]
    assert leave_one_out(array(rewards)) == pytest.approx(expected, abs=1e-4)


@given(st.lists(REWARDS, min_size=1, max_size=5))
def test_batch_std_has_one_deviation_for_the_whole_step(groups: list[list[float]]) -> None:
    centred = [[value - statistics.fmean(group) for value in group] for group in groups]
    everything = [value for group in centred for value in group]
    deviation = math.sqrt(statistics.fmean([value**2 for value in everything]))
    for given_G, wanted in zip(batch_std([array(group) for group in groups]), centred, strict=True):
        assert given_G == pytest.approx([value / (deviation + 1e-6) for value in wanted], rel=1e-3, abs=1e-3)


def test_decoupled_normalises_each_part_and_then_the_step() -> None:
    scores = [
        {"right": array([1, 0, 1, 0]), "form": array([0, 1, 1, 1])},
        {"right": array([0, 0, 0, 1]), "form": array([1, 1, 1, 1])},
    ]
    weights = {"right": 1.0, "form": 0.5}
    sums: list[list[float]] = []
    for group in scores:
        rows = []
        for n in range(4):
            total = 0.0
            for name, values in group.items():
                plain = [float(value) for value in values]
                total += weights[name] * (plain[n] - statistics.fmean(plain)) / (statistics.pstdev(plain) + 1e-6)
            rows.append(total)
        sums.append(rows)
    everything = [value for rows in sums for value in rows]
    centre, deviation = statistics.fmean(everything), statistics.pstdev(everything)
    for given_G, rows in zip(decoupled(scores, weights), sums, strict=True):
        assert given_G == pytest.approx([(value - centre) / (deviation + 1e-6) for value in rows], rel=1e-4, abs=1e-5)
    assert decoupled([], weights) == []


def test_decoupled_tells_apart_what_the_sum_cannot() -> None:
    scores = [{"a": array([1, 0, 0, 0]), "b": array([0, 1, 0, 0])}]
    assert mean(array([1, 1, 0, 0]))[0] == mean(array([1, 1, 0, 0]))[1]
    skewed = [{"a": array([1, 0, 0, 0]), "b": array([0, 1, 1, 0])}]
    first = decoupled(skewed, {"a": 1.0, "b": 1.0})[0]
    assert first[0] != pytest.approx(first[1], abs=1e-2)  # equal rewards, different rarity
    assert decoupled(scores, {"a": 1.0, "b": 1.0})[0][0] == pytest.approx(decoupled(scores, {"a": 1.0, "b": 1.0})[0][1])


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("rewards", [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 1, 0], [1, 0, 1, 0, 1]], ids=["1", "2", "4", "3"])
def test_pass_at_k_is_the_mean_credit_of_all_subsets(rewards: list[float], k: int) -> None:
    subsets = list(combinations(range(5), k))
    found = [max(rewards[n] for n in subset) for subset in subsets]
    centre, deviation = statistics.fmean(found), statistics.pstdev(found)
    given_G = pass_at_k(array(rewards), k=k)
    for n in range(5):
        mine = [value for subset, value in zip(subsets, found, strict=True) if n in subset]
        wanted = (statistics.fmean(mine) - centre) / deviation if deviation else 0.0
        assert given_G[n] == pytest.approx(wanted, abs=1e-6)


def test_pass_at_k_needs_enough_attempts_and_reads_the_threshold() -> None:
    assert not pass_at_k(array([1, 0, 0])).any(), "fewer graded attempts than k: no credit, and no stop"
    for settings, size in [({}, 3), ({}, 4), ({"k": 9.0}, 8), ({"k": 0.0}, 8), ({"k": 2.5}, 8)]:
        with pytest.raises(UsageError, match=r"'pass_at_k' has k=.*; give a whole number from 1 to .*, below rollout.group_size="):
            Credit(pass_at_k, settings, group_size=size)
    asked = Credit(pass_at_k, {"k": 2.0}, group_size=3)  # settings are real numbers
    assert asked([array([1, 0, 0])])[0].tolist() == pass_at_k(array([1, 0, 0]), k=2).tolist()
    assert Credit(pass_at_k, {"k": 3.0})([array([1, 0, 0, 1])])[0].tolist() == pass_at_k(array([1, 0, 0, 1]), k=3).tolist()
    assert pass_at_k(array([1.7, 1.2, 0.2, 0.0]), k=2, threshold=1.5)[0] > 0 > pass_at_k(array([1.7, 1.2, 0.2, 0.0]), k=2, threshold=1.5)[1]


def test_credit_calls_a_function_by_what_it_asks_for() -> None:
    groups = [array([1, 0]), array([2, 2, 0])]
    scores = [{"x": array([1, 0])}, {"x": array([2, 2, 0])}]
    assert [values.tolist() for values in Credit(mean)(groups)] == [mean(group).tolist() for group in groups]
    assert [values.tolist() for values in Credit(batch_std)(groups)] == [values.tolist() for values in batch_std(groups)]
    by_part = Credit(decoupled, weights={"x": 1.0})
    assert by_part.by_part and not Credit(mean).by_part
    assert [values.tolist() for values in by_part(groups, scores)] == [values.tolist() for values in decoupled(scores, {"x": 1.0})]
    mine = Credit(lambda rewards, scale=1.0: (rewards - rewards.mean()) * scale, {"scale": 3.0})
    assert mine(groups)[0].tolist() == [1.5, -1.5]
    assert Credit(mean)([]) == []


def test_positive_and_negative_credit_are_weighed() -> None:
    weighed = Credit(mean, {"positive": 2.0, "negative": 0.5})([array([1, 0, 0, 0])])[0]
    assert weighed.tolist() == [1.5, -0.125, -0.125, -0.125]
    assert not Credit(mean, {"negative": 0.0})([array([0, 1])])[0][0]


def broken(rewards_G: np.ndarray) -> list[float]:
    return [float(rewards_G[0]) / 0]


def test_mistakes_of_a_function_are_one_line() -> None:
    for function, settings, words in [
        (mean, {"k": 2.0}, "'mean' has no setting 'k'"),
        (pass_at_k, {"treshold": 1.0}, "did you mean 'threshold'"),
        (mean, {"positive": -1.0}, "'positive' is -1.0"),
    ]:
        with pytest.raises(UsageError, match=words):
            Credit(function, settings)
    for function, words in [
        (broken, "fails on rewards .*ZeroDivisionError"),
        (lambda rewards_G: rewards_G[:1], r"made \[1.0\] of rewards \[1.0, 0.0\]"),
        (lambda rewards_G: rewards_G * np.nan, "expected one finite number for each"),
        (lambda rewards_G: "a", "expected one finite number for each"),
        (lambda rewards_PG: rewards_PG[:0], "answered 0 of 1 groups"),
    ]:
        with pytest.raises(UsageError, match=words):
            Credit(function)([array([1, 0])])
