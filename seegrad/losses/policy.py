"""Policy-gradient losses, per token.

A loss gets the active tokens of many datums in one row: `loss(logprobs_T, inputs, config)`. `logprobs_T` carries the gradient, `inputs` holds the
datums' arrays (and `sequence`, the number of the datum that a token belongs to), all of shape T. It returns the loss of each token, optionally with
a dict of per-token diagnostics, whose means over all active tokens become metrics. Sums and denominators are the step's business.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from seegrad.errors import UsageError
from seegrad.losses.settings import settings


def importance_sampling(logprobs_T: Tensor, inputs: Mapping[str, Tensor], config: Mapping[str, float]) -> Tensor:
    """−exp(logprob − old logprob) · advantage. Inputs `logprobs` (of the sampler) and `advantages`; no settings.

    Source: the importance-weighted policy gradient, as in Schulman et al. 2015 (TRPO), eq. 14, per token.
    """
    settings("importance_sampling", config)
    return -(logprobs_T - inputs["logprobs"]).exp() * inputs["advantages"]


def ppo(logprobs_T: Tensor, inputs: Mapping[str, Tensor], config: Mapping[str, float]) -> tuple[Tensor, dict[str, Tensor]]:
    """The clipped surrogate: −min(r·A, clip(r, 1 − clip_low, 1 + clip_high)·A), r = exp(logprob − old logprob).

    Settings: `clip_low` and `clip_high` (0.2 each), `dual_clip` (0: off; else above 1): where A < 0 the loss is at most −dual_clip·A.
    Diagnostic `clip_fraction`: share of tokens whose gradient a clip removes. Sources: Schulman et al. 2017 (PPO), eq. 7; separate bounds from
    Yu et al. 2025 (DAPO), §3.1; dual clip from Ye et al. 2020, eq. 5.
    """
    values = settings("ppo", config, clip_low=0.2, clip_high=0.2, dual_clip=0.0)
    low, high, dual = values["clip_low"], values["clip_high"], values["dual_clip"]
    if not 0 <= low < 1 or high < 0:
        raise UsageError(f"loss 'ppo' needs 0 <= clip_low < 1 and clip_high >= 0, got clip_low={low} clip_high={high}")
    if dual and dual <= 1:
        raise UsageError(f"loss 'ppo' needs dual_clip above 1 (or 0 for off), got {dual}")
    advantages_T = inputs["advantages"]
    ratio_T = (logprobs_T - inputs["logprobs"]).exp()
    plain_T, clipped_T = ratio_T * advantages_T, ratio_T.clamp(1 - low, 1 + high) * advantages_T
    loss_T = -torch.minimum(plain_T, clipped_T)
    removed_T = clipped_T < plain_T
    if dual:
        bound_T = -dual * advantages_T
        bounded_T = (advantages_T < 0) & (loss_T > bound_T)
        loss_T = torch.where(bounded_T, bound_T, loss_T)
        removed_T = removed_T | bounded_T
    return loss_T, {"clip_fraction": removed_T.float()}
