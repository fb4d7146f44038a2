"""Intervals and tests against published values, closed forms, and coverage by simulation."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seegrad.statistics import (
    bootstrap,
    bootstrap_mean,
    clustered_share,
    decompose_difference,
    majority_at_k,
    mcnemar,
    paired_conditional_difference,
    paired_difference,
    pass_at_k,
    quantile_edges,
    sign_flip,
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


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_one_answer_each_is_wilson(hits: list[bool]) -> None:
    one, other = clustered_share(hits, [1] * len(hits)), wilson(sum(hits), len(hits))
    assert (one.estimate, one.low, one.high) == pytest.approx((other.estimate, other.low, other.high), abs=1e-12)


def test_repeating_an_answer_adds_no_knowledge() -> None:
    hits = [1, 0, 0, 1, 1, 0, 1]
    assert clustered_share([8 * hit for hit in hits], [8] * 7) == clustered_share(hits, [1] * 7)
    assert clustered_share([8] * 7, [8] * 7) == wilson(7, 7) and clustered_share([0] * 7, [8] * 7) == wilson(0, 7)
    assert math.isnan(clustered_share([], []).estimate) and math.isnan(clustered_share([0, 0], [0, 0]).low)
    assert clustered_share([1, 0], [1, 0]) == wilson(1, 1)  # an item without answers is no item


def test_conditional_shares_weigh_answers() -> None:
    assert clustered_share([1, 3], [1, 4]).estimate == 4 / 5


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.3, 0.3), (4.0, 1.0)])
def test_clustered_intervals_cover_the_truth_and_wilson_of_all_answers_does_not(alpha: float, beta: float) -> None:
    rng, runs, truth = np.random.default_rng(11), 500, alpha / (alpha + beta)
    covered = np.zeros(2)
    for _ in range(runs):
        hits = rng.binomial(16, rng.beta(alpha, beta, size=80))
        for place, interval in enumerate((clustered_share(hits, [16] * 80), wilson(int(hits.sum()), 16 * 80))):
            covered[place] += interval.low <= truth <= interval.high
    assert 0.91 < covered[0] / runs < 0.98 and covered[1] / runs < 0.8, covered / runs


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
def test_sign_flip_equals_trying_all_signs(steps: list[int]) -> None:
    seen = abs(sum(steps))
    sums = [abs(sum(sign * abs(step) for sign, step in zip(signs, steps, strict=True))) for signs in itertools.product((1, -1), repeat=len(steps))]
    assert sign_flip([step / 4 for step in steps], 4) == pytest.approx(sum(value >= seen for value in sums) / len(sums), abs=1e-9)


def test_sign_flip_of_single_answers_is_mcnemar() -> None:
    assert sign_flip([1] * 9 + [-1] + [0] * 30, 1) == mcnemar(1, 9)
    assert sign_flip([0.5] * 9 + [-0.5] + [0] * 30, 4) == mcnemar(1, 9)  # a common unit does not matter
    assert sign_flip([], 1) == 1.0 and sign_flip([0.0], 8) == 1.0


def test_sign_flip_of_many_items_is_near_the_normal_limit() -> None:
    steps = np.random.default_rng(3).integers(-8, 9, size=2000)
    z = abs(steps.sum()) / math.sqrt((steps.astype(float) ** 2).sum())
    assert sign_flip(steps / 8, 8) == pytest.approx(math.erfc(z / math.sqrt(2)), abs=0.003)
    assert 0 <= sign_flip(np.arange(1, 2000) % 8 / 8, 8) < 1e-8


def test_pass_at_k_equals_trying_all_subsets() -> None:
    for num_answers in range(1, 7):
        for num_right, k in itertools.product(range(num_answers + 1), range(1, num_answers + 1)):
            subsets = list(itertools.combinations([True] * num_right + [False] * (num_answers - num_right), k))
            assert pass_at_k(num_right, num_answers, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))
    assert pass_at_k(1, 10_000, 100) == pytest.approx(0.01) and pass_at_k(0, 5, 5) == 0.0
    for wrong in ((1, 4, 5), (5, 4, 2), (1, 4, 0)):
        with pytest.raises(ValueError, match="needs at least"):
            pass_at_k(*wrong)


def test_pass_at_k_is_unbiased_where_the_naive_estimate_is_not() -> None:
    rng, chance, k = np.random.default_rng(0), 0.2, 4
    counts = rng.binomial(8, chance, size=20_000)
    truth = 1 - (1 - chance) ** k
    assert np.mean([pass_at_k(int(count), 8, k) for count in counts]) == pytest.approx(truth, abs=0.01)
    assert abs(np.mean(1 - (1 - counts / 8) ** k) - truth) > 0.02


def test_majority_votes_by_hand() -> None:
    right = [True, False, True, False, False]
    assert majority_at_k(["3", "4", "3", "5", None], right, 5) == 1.0
    assert majority_at_k(["3", "4", "4", "5", None], [True, False, False, False, False], 5) == 0.0
    assert majority_at_k(["3", "4"], [True, False], 2) == 0.5  # a tie is decided by lot
    assert majority_at_k([None, None], [False, False], 2) == 0.0
    assert majority_at_k(["3", None, None], [True, False, False], 3) == 1.0  # nothing readable does not vote
    assert majority_at_k(["3", "4", "4"], [True, False, False], 1) == 1 / 3  # the mean
    assert majority_at_k(["3", "3", "4", "4", "5"], [True, True, False, False, True], 2) == 0.5  # two runs of two; the rest is left
    assert majority_at_k(["a", "a", "b"], [True, False, True], 3) == 0.5  # judged differently in two texts
    with pytest.raises(ValueError, match="maj@3"):
        majority_at_k(["3"], [True], 3)


def test_form_and_sight_add_up_to_the_difference() -> None:
    """The published 71 → 87 of 100 right, 75 → 91 readable: nearly all of it is form."""
    hits_a, given_a, hits_b, given_b = ([1] * count + [0] * (100 - count) for count in (71, 75, 87, 91))
    form, sight = decompose_difference(hits_a, given_a, hits_b, given_b)
    assert form.estimate + sight.estimate == pytest.approx(0.16)
    assert form.estimate == pytest.approx(0.16 * (71 / 75 + 87 / 91) / 2) and round(100 * form.estimate, 1) == 15.2
    assert form.low > 0 and not sight.excludes(0.0)
    back = decompose_difference(hits_b, given_b, hits_a, given_a)
    assert (back[0].estimate, back[1].estimate) == pytest.approx((-form.estimate, -sight.estimate))
    assert math.isnan(decompose_difference([0], [0], [1], [1])[0].estimate)


def test_the_documented_widths_are_true() -> None:
    text = (Path(__file__).resolve().parent.parent / "docs/evaluation.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+)[^|]*\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", text, re.M)
    assert len(rows) >= 6
    for total, *widths in rows:
        for share, width in zip((0.5, 0.7, 0.9), widths, strict=True):
            interval = wilson(round(int(total) * share), int(total))
            assert f"{50 * (interval.high - interval.low):.1f}" == width, (total, share)
