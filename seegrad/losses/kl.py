"""The low-variance KL estimator, per token, from samples of one distribution."""

from __future__ import annotations

from torch import Tensor


def k3(logprobs_T: Tensor, other_T: Tensor) -> Tensor:
    """Estimates KL(p‖q) from tokens drawn from p: exp(log q − log p) − (log q − log p) − 1, never negative.

    `logprobs_T` are log p and `other_T` log q of the same tokens, in nats. Source: J. Schulman, "Approximating KL divergence" (2020), estimator k3.
    """
    difference_T = other_T - logprobs_T
    return difference_T.expm1() - difference_T
