"""Credit within a group, against the formulas written out slowly."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seegrad import registry
from seegrad.advantages import mean, mean_std

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
