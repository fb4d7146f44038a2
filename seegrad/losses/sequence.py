"""Policy losses whose ratio belongs to a whole completion. Signature and inputs are those of `seegrad.losses.policy`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from seegrad.losses.policy import clipped_surrogate
from seegrad.losses.settings import NONE, bounds, dual_clip, settings

CLIP_LOW, CLIP_HIGH = 3e-4, 4e-4  # a mean over many tokens stays much nearer to 1 than one token's ratio


def gspo(logprobs_T: Tensor, inputs: Mapping[str, Tensor], config: Mapping[str, float]) -> tuple[Tensor, dict[str, Tensor]]:
    """−min(s·A, clip(s, 1 − clip_low, 1 + clip_high)·A) with s = exp(mean over the completion's tokens of logprob − old logprob).

    Every token of a completion has the completion's value; with `algorithm.reduction = "sequence_mean"` each completion then counts once, as in the
    paper. Settings and diagnostic are those of `ppo`, with bounds 3e-4 and 4e-4. Source: Zheng et al. 2025 (GSPO, arXiv 2507.18071), eqs. 5 and 7.
    """
    return _clipped("gspo", _mean_difference(logprobs_T - inputs["logprobs"], inputs["sequence"]).exp(), inputs, config)


def gspo_token(logprobs_T: Tensor, inputs: Mapping[str, Tensor], config: Mapping[str, float]) -> tuple[Tensor, dict[str, Tensor]]:
    """`gspo` with a ratio of its own for each token: s_t = sg(s)·π_t/sg(π_t), so that advantages may differ within a completion.

    Source: Zheng et al. 2025 (GSPO, arXiv 2507.18071), eqs. 13 and 14.
    """
    difference_T = _mean_difference(logprobs_T.detach() - inputs["logprobs"], inputs["sequence"])
    return _clipped("gspo_token", difference_T.exp() * (logprobs_T - logprobs_T.detach()).exp(), inputs, config)


def _clipped(name: str, ratio_T: Tensor, inputs: Mapping[str, Tensor], config: Mapping[str, float]) -> tuple[Tensor, dict[str, Tensor]]:
    values = settings(name, config, clip_low=CLIP_LOW, clip_high=CLIP_HIGH, clip_low_threshold=NONE, clip_high_threshold=NONE, dual_clip=0.0)
    return clipped_surrogate(ratio_T, inputs["advantages"], *bounds(name, values, config), dual_clip(name, values["dual_clip"]))


def _mean_difference(difference_T: Tensor, sequence_T: Tensor) -> Tensor:
    """For each token the mean of `difference_T` over the tokens of its completion."""
    num_sequences = int(sequence_T.max()) + 1 if len(sequence_T) else 0
    zeros_S = torch.zeros(num_sequences, dtype=difference_T.dtype, device=difference_T.device)
    sums_S = zeros_S.index_add(0, sequence_T, difference_T)
    counts_S = zeros_S.index_add(0, sequence_T, torch.ones_like(difference_T))
    return (sums_S / counts_S.clamp(min=1)).index_select(0, sequence_T)
