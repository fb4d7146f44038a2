"""Intervals and paired tests, in numpy and the standard library. Every interval is two-sided; `confidence` 0.95 unless told.

All bootstraps are one: resampling items with replacement changes only how often each distinct row of a table is drawn, and everything reported here
(mean, rate, conditional rate, difference of two of them) is a function of column sums. So the draw is multinomial over distinct rows, exactly.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

NUM_RESAMPLES = 10_000
_CHUNK_CELLS = 4_000_000  # resampled counts held at a time


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with its confidence interval. All three are NaN when there is nothing to estimate from.

    >>> Interval(0.5, 0.4, 0.6).excludes(0.0)
    True
    """

    estimate: float
    low: float
    high: float

    def excludes(self, value: float) -> bool:
        """True when the whole interval lies on one side of `value`."""
        return self.low > value or self.high < value


NOTHING = Interval(math.nan, math.nan, math.nan)


def wilson(successes: int, total: int, confidence: float = 0.95) -> Interval:
    """Score interval of a proportion, without continuity correction (Wilson 1927, JASA 22:209, as method 3 of Newcombe 1998, Stat. Med. 17:857).

    `total` 0 gives NaN. Raises ValueError when `successes` is not in 0..total.

    >>> wilson(81, 263).low.__round__(4)
    0.2553
    """
    if not 0 <= successes <= total:
        raise ValueError(f"successes must be in 0..{total}, got {successes}")
    return NOTHING if total == 0 else _score_interval(successes / total, total, confidence)


def clustered_share(hits_N: ArrayLike, totals_N: ArrayLike, confidence: float = 0.95) -> Interval:
    """Share `sum(hits) / sum(totals)` with an interval for answers that depend on each other within an item: item n has `hits_N[n]` in `totals_N[n]`.

    Wilson's interval for the effective number of answers, share · (1 − share) / variance (Dean & Pagano 2015, J. Surv. Stat. Methodol. 3:484); the
    variance is that of a ratio of sums over items (Cochran 1977, Sampling Techniques, § 6.3). The effective number is at most the number of answers;
    where no item differs from the others, it is the number of items. With one answer to each item this is `wilson`. No answers give NaN.

    >>> clustered_share([4, 0, 4, 0], [4, 4, 4, 4]) == wilson(2, 4)
    True
    """
    hits, totals = _column(hits_N, totals_N), _column(totals_N, hits_N)
    answers = float(totals.sum())
    if answers == 0:
        return NOTHING
    share = min(1.0, float(hits.sum()) / answers)
    variance = float(((hits - share * totals) ** 2).sum()) / answers**2
    same = variance <= 1e-15
    effective = np.count_nonzero(totals) if same else min(answers, share * (1 - share) / variance)
    return _score_interval(share, float(effective), confidence)


def bootstrap(
    table_NK: ArrayLike,
    statistic: Callable[[Array], Array],
    *,
    confidence: float = 0.95,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap over items (Efron 1979, Ann. Stat. 7:1; Efron & Tibshirani 1993, ch. 13).

    Row n of `table_NK` holds the K numbers of item n. `statistic` maps column sums, shape (…, K + 1), the last being the number of items drawn, to
    shape (…). Resamples where it is undefined (NaN) are left out. No items, or an undefined estimate, gives NaN.
    Raises ValueError when `table_NK` is not two-dimensional or not finite.

    >>> bootstrap([[1.0], [1.0]], lambda sums: sums[..., 0] / sums[..., 1]).low
    1.0
    """
    table = np.asarray(table_NK, np.float64)
    if table.ndim != 2:
        raise ValueError(f"a bootstrap table is items × columns, got shape {table.shape}")
    if not np.isfinite(table).all():
        raise ValueError("a bootstrap table must be finite")
    total = len(table)
    if total == 0:
        return NOTHING
    table = np.concatenate([table, np.ones((total, 1))], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        estimate = float(statistic(table.sum(axis=0)))
        if math.isnan(estimate):
            return NOTHING
        rows, counts = np.unique(table, axis=0, return_counts=True)
        rng = np.random.default_rng(seed)
        chunk = max(1, _CHUNK_CELLS // len(rows))
        draws: list[Array] = []
        for start in range(0, num_resamples, chunk):
            drawn = rng.multinomial(total, counts / total, size=min(chunk, num_resamples - start))
            draws.append(np.asarray(statistic(drawn @ rows), np.float64))
    tail = (1 - confidence) / 2
    low, high = np.nanquantile(np.concatenate(draws), [tail, 1 - tail])
    return Interval(estimate, float(low), float(high))


def bootstrap_mean(values_N: ArrayLike, *, confidence: float = 0.95, num_resamples: int = NUM_RESAMPLES, seed: int = 0) -> Interval:
    """Mean of `values_N` with its percentile bootstrap interval."""
    values = np.asarray(values_N, np.float64).reshape(-1, 1)
    return bootstrap(values, _mean, confidence=confidence, num_resamples=num_resamples, seed=seed)


def paired_difference(a_N: ArrayLike, b_N: ArrayLike, *, confidence: float = 0.95, num_resamples: int = NUM_RESAMPLES, seed: int = 0) -> Interval:
    """Mean of b − a over the same items, items resampled in pairs. Raises ValueError when the lengths differ."""
    return bootstrap_mean(_column(b_N, a_N) - _column(a_N, b_N), confidence=confidence, num_resamples=num_resamples, seed=seed)


def paired_conditional_difference(
    hits_a_N: ArrayLike,
    given_a_N: ArrayLike,
    hits_b_N: ArrayLike,
    given_b_N: ArrayLike,
    *,
    confidence: float = 0.95,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Difference b − a of two conditional rates `sum(hits · given) / sum(given)`, recomputed for the same resampled items.

    The two conditions may hold on different items. All four are 0/1 of equal length.
    """
    given_a, given_b = _column(given_a_N, given_b_N), _column(given_b_N, given_a_N)
    table = np.stack([_column(hits_a_N, given_a_N) * given_a, given_a, _column(hits_b_N, given_b_N) * given_b, given_b], axis=1)
    return bootstrap(table, _ratio_difference, confidence=confidence, num_resamples=num_resamples, seed=seed)


def decompose_difference(
    hits_a_N: ArrayLike,
    given_a_N: ArrayLike,
    hits_b_N: ArrayLike,
    given_b_N: ArrayLike,
    *,
    confidence: float = 0.95,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = 0,
) -> tuple[Interval, Interval]:
    """The difference b − a of `mean(hits)` as a sum of two: what the change of the condition's rate explains, and what the change of the rate under
    the condition explains. With f = mean(given) and c = sum(hits) / sum(given), they are Δf · mean(c) and Δc · mean(f) (Kitagawa 1955, JASA 50:1168).

    `hits` are at most `given` in every item. Undefined (NaN) when a or b never meets the condition.

    >>> [round(part.estimate, 3) for part in decompose_difference([1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1])]
    [0.25, 0.0]
    """
    columns = (_column(hits_a_N, given_a_N), _column(given_a_N, given_b_N), _column(hits_b_N, given_b_N), _column(given_b_N, given_a_N))
    table = np.stack(columns, axis=1)

    def part(statistic: Callable[[Array], Array]) -> Interval:
        return bootstrap(table, statistic, confidence=confidence, num_resamples=num_resamples, seed=seed)

    return part(_by_condition), part(_under_condition)


def mcnemar(only_a: int, only_b: int) -> float:
    """Exact two-sided p value that two paired answers are equally often right, from the counts of items that only one of them got right.

    Under the hypothesis, `only_b` is Binomial(only_a + only_b, ½) (McNemar 1947, Psychometrika 12:153; exact form as in Agresti, Categorical Data
    Analysis, section on matched pairs). No discordant item gives 1.

    >>> mcnemar(1, 9)
    0.021484375
    """
    if only_a < 0 or only_b < 0:
        raise ValueError(f"counts must not be negative, got {only_a} and {only_b}")
    discordant = only_a + only_b
    term, tail = 1, 1  # C(n, 0) and its running sum, exact integers
    for k in range(min(only_a, only_b)):
        term = term * (discordant - k) // (k + 1)
        tail += term
    return min(1.0, float(Fraction(2 * tail, 2**discordant)))


def sign_flip(differences_N: ArrayLike, grid: int) -> float:
    """Exact two-sided p value of the paired permutation test: how often |sum of differences| is at least as large as seen when every sign is a coin
    toss (Fisher 1935, The Design of Experiments, § 21). The differences are rounded to whole multiples of 1/`grid`; with differences of -1, 0 and 1
    this is `mcnemar`, else the distribution of the sum comes from its Fourier transform, the product of cosines, with an error below 1e-9.

    >>> sign_flip([0.5, 0.5, 0.5], grid=2)
    0.25
    """
    steps = np.rint(np.asarray(differences_N, np.float64) * grid).astype(np.int64)
    steps = steps[steps != 0]
    if len(steps) == 0:
        return 1.0
    steps //= np.gcd.reduce(steps)
    if (np.abs(steps) == 1).all():
        return mcnemar(int((steps < 0).sum()), int((steps > 0).sum()))
    sizes, counts = np.unique(np.abs(steps), return_counts=True)
    reach = int(np.abs(steps).sum())
    length = 2 * reach + 2  # sums -reach .. reach, no wrap-around
    frequency = np.arange(length // 2 + 1)
    transform = np.ones(len(frequency))
    for size, count in zip(sizes, counts, strict=True):
        transform *= np.cos(2 * np.pi * ((size * frequency) % length) / length) ** count
    chance = np.fft.irfft(transform, length)  # of sum s at index s, of -s at index length - s
    seen = abs(int(steps.sum()))
    inside = chance[0] + 2 * chance[1:seen].sum() if seen else 0.0
    return float(min(1.0, max(0.0, 1 - inside)))


def pass_at_k(num_right: int, num_answers: int, k: int) -> float:
    """Chance that k of the answers, drawn without replacement, hold a right one: 1 − C(n − c, k) / C(n, k), the unbiased estimate of pass@k
    (Chen et al. 2021, Evaluating Large Language Models Trained on Code, arXiv:2107.03374, eq. 1). Raises ValueError unless 1 ≤ k ≤ `num_answers`.

    >>> pass_at_k(1, 4, 2)
    0.5
    """
    if not (0 <= num_right <= num_answers and 1 <= k <= num_answers):
        raise ValueError(f"pass@{k} needs at least {k} answers and a count of right ones among them, got {num_right} of {num_answers}")
    return float(1 - Fraction(math.comb(num_answers - num_right, k), math.comb(num_answers, k)))


def majority_at_k(answers: Sequence[str | None], right: Sequence[bool], k: int) -> float:
    """How often the most frequent of k answers is right (self-consistency, Wang et al. 2022, arXiv:2203.11171), over the disjoint runs of k answers
    in order. None (nothing readable) does not vote; a tie is decided by lot (its mean counts); no vote at all is wrong.

    >>> majority_at_k(["3", "4", "3", None], [True, False, True, False], 4)
    1.0
    """
    if not 1 <= k <= len(answers) or len(answers) != len(right):
        raise ValueError(f"maj@{k} needs at least {k} answers with one verdict each, got {len(answers)} and {len(right)}")
    blocks = [range(first, first + k) for first in range(0, len(answers) - k + 1, k)]
    return sum(_vote([answers[n] for n in block], [right[n] for n in block]) for block in blocks) / len(blocks)


def quantile_edges(values: Sequence[int], num_bins: int) -> list[int]:
    """Upper edges (inclusive) of at most `num_bins` bins that hold about equally many of the whole numbers; the last edge is the largest value.

    >>> quantile_edges([1, 2, 3, 4, 5, 6], 3)
    [2, 4, 6]
    """
    if not values:
        return []
    shares = np.arange(1, num_bins + 1) / num_bins
    return sorted({int(edge) for edge in np.quantile(np.asarray(values), shares, method="inverted_cdf")})


def _score_interval(share: float, total: float, confidence: float) -> Interval:
    """Wilson's interval; the number of trials need not be whole."""
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    centre = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    low = 0.0 if share == 0 else (centre - half) / scale
    high = 1.0 if share == 1 else (centre + half) / scale
    return Interval(share, low, high)


def _vote(answers: Sequence[str | None], right: Sequence[bool]) -> float:
    counts = Counter(answer for answer in answers if answer is not None)
    most = max(counts.values(), default=0)
    leading = [answer for answer, count in counts.items() if count == most]
    # One answer may be judged differently in two texts: its verdict is then the mean.
    verdicts = [[good for answer, good in zip(answers, right, strict=True) if answer == leader] for leader in leading]
    return sum(sum(verdict) / len(verdict) for verdict in verdicts) / len(verdicts) if verdicts else 0.0


def _by_condition(sums: Array) -> Array:
    rate_a, rate_b = sums[..., 1] / sums[..., 4], sums[..., 3] / sums[..., 4]
    under_a, under_b = sums[..., 0] / sums[..., 1], sums[..., 2] / sums[..., 3]
    return np.asarray((rate_b - rate_a) * (under_a + under_b) / 2)


def _under_condition(sums: Array) -> Array:
    rate_a, rate_b = sums[..., 1] / sums[..., 4], sums[..., 3] / sums[..., 4]
    under_a, under_b = sums[..., 0] / sums[..., 1], sums[..., 2] / sums[..., 3]
    return np.asarray((under_b - under_a) * (rate_a + rate_b) / 2)


def _mean(sums: Array) -> Array:
    return np.asarray(sums[..., 0] / sums[..., 1])


def _ratio_difference(sums: Array) -> Array:
    return np.asarray(sums[..., 2] / sums[..., 3] - sums[..., 0] / sums[..., 1])


def _column(values: ArrayLike, other: ArrayLike) -> Array:
    array, length = np.asarray(values, np.float64), len(np.asarray(other))
    if array.shape != (length,):
        raise ValueError(f"paired values must have equal lengths, got {array.shape} and {length}")
    return array
