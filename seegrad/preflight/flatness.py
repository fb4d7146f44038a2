"""How many groups of a run will have equal rewards, estimated from a few answers to a few questions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from seegrad.statistics import Array, Interval

_PRECISIONS = np.geomspace(0.05, 200, 60)  # how alike questions are: small, and each has its own reward; large, and all have the same mixture
_RESAMPLES = 1_000


def expected_flat(rewards_PG: Sequence[Sequence[float]], group_size: int) -> Interval:
    """The share of groups of `group_size` answers whose rewards are all equal, with a 95 % interval (bootstrap over questions, refitted each time).

    Estimator: the rewards of a question are drawn from a distribution of its own over the values that occur, and that distribution from a Dirichlet
    whose mean is the share of each value among all answers and whose precision is fitted by maximum likelihood (Dirichlet-multinomial; Minka 2000,
    "Estimating a Dirichlet distribution"). A group is flat with probability Σ_v E[p_v^G] under the posterior of its question. Four equal rewards
    out of four are therefore no certainty, as they would be if shares were plugged in.

    >>> expected_flat([[1, 1], [0, 0]] * 8, 4).estimate > 0.8 > 0.2 > expected_flat([[1, 0]] * 16, 4).estimate
    True
    """
    values = sorted({reward for rewards_G in rewards_PG for reward in rewards_G})
    counts_PV = np.array([[Counter(rewards_G)[value] for value in values] for rewards_G in rewards_PG], np.float64)
    mean_V = counts_PV.sum(0) / counts_PV.sum()
    fits = [_under(counts_PV, precision * mean_V, group_size) for precision in _PRECISIONS]
    likelihood_KP, flat_KP = np.array([fit[0] for fit in fits]), np.array([fit[1] for fit in fits])
    number = len(rewards_PG)
    weights_RP = np.random.default_rng(0).multinomial(number, np.full(number, 1 / number), size=_RESAMPLES)
    best_R = (weights_RP @ likelihood_KP.T).argmax(1)
    shares_R = (flat_KP[best_R] * weights_RP).sum(1) / number
    low, high = np.quantile(shares_R, [0.025, 0.975])
    return Interval(float(flat_KP[likelihood_KP.sum(1).argmax()].mean()), float(low), float(high))


def _under(counts_PV: Array, alpha_V: Array, group_size: int) -> tuple[list[float], list[float]]:
    """For each question the log-likelihood of its counts (without the multinomial coefficient), and the probability of a flat group."""
    total = float(alpha_V.sum())
    likelihood, flat = [], []
    for counts_V in counts_PV:
        pairs = [(float(alpha), int(count)) for alpha, count in zip(alpha_V, counts_V, strict=True)]
        num = sum(count for _, count in pairs)
        likelihood.append(sum(_log_rising(alpha, count) for alpha, count in pairs) - _log_rising(total, num))
        whole = _log_rising(total + num, group_size)
        flat.append(min(1.0, sum(math.exp(_log_rising(alpha + count, group_size) - whole) for alpha, count in pairs)))
    return likelihood, flat


def _log_rising(start: float, steps: int) -> float:
    """log of start · (start + 1) · … with `steps` factors."""
    return math.lgamma(start + steps) - math.lgamma(start) if steps else 0.0
