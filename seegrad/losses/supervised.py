"""Supervised losses, per token; the signature is that of `seegrad.losses.policy`."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from seegrad.losses.settings import settings


def cross_entropy(logprobs_T: Tensor, inputs: Mapping[str, Tensor], config: Mapping[str, float]) -> Tensor:
    """−logprob · weight. Input `weights` (1 everywhere when the datums have none); no settings."""
    settings("cross_entropy", config)
    return -logprobs_T * inputs["weights"] if "weights" in inputs else -logprobs_T
