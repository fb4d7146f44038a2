"""Estimators of KL(p‖q) from tokens drawn from p, per token, in nats. Source: J. Schulman, "Approximating KL divergence" (2020)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor

Estimator = Literal["k1", "k2", "k3", "k3_unbiased"]


def k1(logprobs_T: Tensor, other_T: Tensor) -> Tensor:
    """log p − log q: unbiased, of high variance, may be negative.

    Its gradient through `logprobs_T` has expectation 0 on fresh samples, so it belongs into the reward and not into a loss.
    """
    return logprobs_T - other_T


def k2(logprobs_T: Tensor, other_T: Tensor) -> Tensor:
    """(log p − log q)²/2: biased, of low variance; on fresh samples its gradient is an unbiased estimate of the gradient of KL(p‖q)."""
    return (logprobs_T - other_T) ** 2 / 2


def k3(logprobs_T: Tensor, other_T: Tensor) -> Tensor:
    """exp(log q − log p) − (log q − log p) − 1: unbiased, of low variance, never negative. Its gradient is biased (that of KL(q‖p) at p ≈ q).

    `logprobs_T` are log p and `other_T` log q of the same tokens, in nats. GRPO's KL term (arXiv 2402.03300, eq. 4).
    """
    difference_T = other_T - logprobs_T
    return difference_T.expm1() - difference_T


def k3_unbiased(logprobs_T: Tensor, other_T: Tensor) -> Tensor:
    """The value of k3 with the gradient of k2: both are unbiased on fresh samples (arXiv 2506.09477 on which gradients are)."""
    moving_T = k2(logprobs_T, other_T)
    return k3(logprobs_T.detach(), other_T) + moving_T - moving_T.detach()


ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k1": k1, "k2": k2, "k3": k3, "k3_unbiased": k3_unbiased}
