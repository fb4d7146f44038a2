"""Intervals and tests against published values, closed forms, and coverage by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seegrad.statistics import (
    bootstrap,
    bootstrap_mean,
    mcnemar,
    paired_conditional_difference,
    paired_difference,
    quantile_edges,
    wilson,
)

# Newcombe 1998, Statistics in Medicine 17:857, table I, method 3.
PUBLISHED_WILSON = [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0000, 0.1611), (1, 29, 0.0061, 0.1718)]


@pytest.mark.parametrize(("hits", "total", "low", "high"), PUBLISHED_WILSON)
def test_wilson_gives_the_published_intervals(hits: int, total: int, low: float, high: float) -> None:
    interval = wilson(hits, total)
    assert interval.estimate == hits / total
    assert (round(interval.low, 4), round(interval.high, 4)) == (low, high)


def test_the_published_intervals_would_notice_a_wald_interval() -> None:
    share = 81 / 263
    half = 1.96 * math.sqrt(share * (1 - share) / 263)
    assert (round(share - half, 4), round(share + half, 4)) != PUBLISHED_WILSON[0][2:]


@given(st.integers(1, 500), st.data())
def test_wilson_stays_in_range_and_is_symmetric(total: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, total))
    one, other = wilson(hits, total), wilson(total - hits, total)
    assert 0 <= one.low <= one.estimate <= one.high <= 1
    assert one.low == pytest.approx(1 - other.high, abs=1e-12)
    assert wilson(hits, total, 0.99).high >= one.high


def test_wilson_of_nothing_and_of_nonsense() -> None:
    assert math.isnan(wilson(0, 0).estimate)
    with pytest.raises(ValueError, match=r"0\.\.3, got 4"):
        wilson(4, 3)


def test_mcnemar_gives_known_values() -> None:
    assert mcnemar(86, 150) == pytest.approx(3.716e-05, rel=1e-3)  # Agresti's approval ratings, exact binomial
    assert mcnemar(1, 9) == 22 / 1024
    assert mcnemar(0, 0) == 1.0 and mcnemar(7, 7) == 1.0
    assert mcnemar(3, 5) == mcnemar(5, 3)
    with pytest.raises(ValueError, match="negative"):
        mcnemar(-1, 2)


@settings(max_examples=50)
@given(st.integers(0, 12), st.integers(0, 12))
def test_mcnemar_equals_counting_all_outcomes(only_a: int, only_b: int) -> None:
    n = only_a + only_b
    as_uneven = sum(math.comb(n, k) for k in range(n + 1) if abs(2 * k - n) >= abs(only_a - only_b))
    assert mcnemar(only_a, only_b) == pytest.approx(as_uneven / 2**n)


def test_mcnemar_of_many_items_neither_overflows_nor_vanishes() -> None:
    assert 0 < mcnemar(1000, 2000) < 1e-70


def test_mcnemar_rarely_cries_wolf() -> None:
    rng = np.random.default_rng(0)
    draws = rng.binomial(60, 0.5, size=2000)
    false_alarms = np.mean([mcnemar(int(k), 60 - int(k)) < 0.05 for k in draws])
    assert 0.01 < false_alarms < 0.05  # exact: at most 5 %; not so timid that it never speaks


def test_bootstrap_spread_is_the_plug_in_standard_error() -> None:
    values = np.random.default_rng(0).normal(size=200)
    interval = bootstrap_mean(values, num_resamples=20_000)
    plug_in = values.std() / math.sqrt(len(values))
    assert interval.estimate == pytest.approx(values.mean())
    assert (interval.high - interval.low) / (2 * 1.96 * plug_in) == pytest.approx(1, abs=0.03)


def test_bootstrap_equals_drawing_the_items_one_by_one() -> None:
    rng = np.random.default_rng(1)
    hits = (rng.random(80) < 0.3).astype(float)
    slow = [rng.choice(hits, 80).mean() for _ in range(4000)]
    interval = bootstrap_mean(hits, num_resamples=4000)
    assert interval.low == pytest.approx(np.quantile(slow, 0.025), abs=0.0126)  # one item of 80
    assert interval.high == pytest.approx(np.quantile(slow, 0.975), abs=0.0126)


def test_bootstrap_repeats_and_depends_on_its_seed() -> None:
    values = np.random.default_rng(0).normal(size=50)
    assert bootstrap_mean(values) == bootstrap_mean(values)
    assert bootstrap_mean(values).low != bootstrap_mean(values, seed=1).low


def test_bootstrap_of_nothing_and_of_nonsense() -> None:
    assert math.isnan(bootstrap_mean([]).low)
    with pytest.raises(ValueError, match="finite"):
        bootstrap_mean([1.0, math.nan])
    with pytest.raises(ValueError, match="items × columns"):
        bootstrap([1.0, 2.0], lambda sums: sums[..., 0])


def test_pairing_matters() -> None:
    rng = np.random.default_rng(0)
    a = rng.random(300)
    b = a + 0.01 + rng.normal(0, 0.001, 300)
    paired = paired_difference(a, b)
    assert paired.low > 0.0098 and paired.high < 0.0102
    shuffled = paired_difference(a, rng.permutation(b))  # the planted error: items that do not belong together
    assert not shuffled.excludes(0.0)


def test_direction_is_b_minus_a_and_lengths_must_agree() -> None:
    assert paired_difference([0, 0, 0], [1, 1, 1]).estimate == 1.0
    with pytest.raises(ValueError, match="equal lengths"):
        paired_difference([0, 0], [1, 1, 1])


def test_conditional_difference_recomputes_both_rates() -> None:
    hits_a, given_a = [1, 0, 0, 0], [1, 1, 0, 0]  # 1 of 2
    hits_b, given_b = [1, 1, 1, 0], [1, 1, 1, 1]  # 3 of 4
    assert paired_conditional_difference(hits_a, given_a, hits_b, given_b).estimate == 0.25
    assert math.isnan(paired_conditional_difference([0, 0], [0, 0], [1, 1], [1, 1]).estimate)  # a answered nothing readably


def _joint(rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    """Two models on the same items of varying difficulty: right and readable, 0/1."""
    difficulty = rng.random(size)
    columns = []
    for skill, form in ((0.55, 0.75), (0.8, 0.95)):
        readable = rng.random(size) < form - 0.2 * difficulty
        columns += [readable & (rng.random(size) < skill - 0.3 * difficulty), readable]
    return tuple(column.astype(float) for column in columns)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(7)
    hits_a, given_a, hits_b, given_b = _joint(rng, 2_000_000)
    truth = hits_b.mean() - hits_a.mean()
    conditional = hits_b.sum() / given_b.sum() - hits_a.sum() / given_a.sum()
    share = hits_a.mean()
    covered, runs = np.zeros(3), 400
    for seed in range(runs):
        table = _joint(rng, 250)
        intervals = (
            paired_difference(table[0], table[2], num_resamples=600, seed=seed),
            paired_conditional_difference(*table, num_resamples=600, seed=seed),
            wilson(int(table[0].sum()), 250),
        )
        covered += [i.low <= value <= i.high for i, value in zip(intervals, (truth, conditional, share), strict=True)]
    assert ((covered / runs > 0.91) & (covered / runs < 0.985)).all(), covered / runs
    assert runs * 0.985 > covered.max()


def test_quantile_edges_hold_equal_shares_and_end_at_the_largest() -> None:
    assert quantile_edges([], 4) == []
    assert quantile_edges([5] * 10, 4) == [5]
    assert quantile_edges(list(range(1, 101)), 4) == [25, 50, 75, 100]
