"""From the rewards in a group to the credit of each attempt. A function maps `rewards_G` to advantages of the same length."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seegrad.types import Floats

EPS = 1e-6  # added to the standard deviation


def mean(rewards_G: Floats) -> Floats:
    """Reward minus the mean of the group (GRPO without division by the deviation, as in Dr. GRPO, arXiv 2503.20783, section 3.2).

    >>> mean(np.array([1, 0, 0, 1], np.float32)).tolist()
    [0.5, -0.5, -0.5, 0.5]
    """
    return _centred(rewards_G).astype(np.float32)


def mean_std(rewards_G: Floats) -> Floats:
    """Reward minus the mean, divided by (population standard deviation + 1e-6) of the group (GRPO, arXiv 2402.03300, section 4.1.2)."""
    centred = _centred(rewards_G)
    deviation = float(np.sqrt(np.mean(centred**2)))
    return (centred / (deviation + EPS)).astype(np.float32)


def _centred(rewards_G: Floats) -> NDArray[np.float64]:
    """In double precision, so that a group's advantages sum to zero."""
    rewards = np.asarray(rewards_G, np.float64)
    return rewards - float(rewards.mean())
