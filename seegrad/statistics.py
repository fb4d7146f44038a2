"""Intervals and paired tests, in numpy and the standard library. Every interval is two-sided; `confidence` 0.95 unless told.

All bootstraps are one: resampling items with replacement changes only how often each distinct row of a table is drawn, and everything reported here
(mean, rate, conditional rate, difference of two of them) is a function of column sums. So the draw is multinomial over distinct rows, exactly.
"""

from __future__ import annotations

import math
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
    if total == 0:
        return NOTHING
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = successes / total
    centre = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    low = 0.0 if successes == 0 else (centre - half) / scale
    high = 1.0 if successes == total else (centre + half) / scale
    return Interval(share, low, high)


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


def quantile_edges(values: Sequence[int], num_bins: int) -> list[int]:
    """Upper edges (inclusive) of at most `num_bins` bins that hold about equally many of the whole numbers; the last edge is the largest value.

    >>> quantile_edges([1, 2, 3, 4, 5, 6], 3)
    [2, 4, 6]
    """
    if not values:
        return []
    shares = np.arange(1, num_bins + 1) / num_bins
    return sorted({int(edge) for edge in np.quantile(np.asarray(values), shares, method="inverted_cdf")})


def _mean(sums: Array) -> Array:
    return np.asarray(sums[..., 0] / sums[..., 1])


def _ratio_difference(sums: Array) -> Array:
    return np.asarray(sums[..., 2] / sums[..., 3] - sums[..., 0] / sums[..., 1])


def _column(values: ArrayLike, other: ArrayLike) -> Array:
    array, length = np.asarray(values, np.float64), len(np.asarray(other))
    if array.shape != (length,):
        raise ValueError(f"paired values must have equal lengths, got {array.shape} and {length}")
    return array
