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
from seegrad.losses.settings import NONE, bounds, dual_clip, settings


def importance_sampling(logprobs_T: Tensor, inputs: Mapping[str, Tensor], config: Mapping[str, float]) -> Tensor:
    """−exp(logprob − old logprob) · advantage. Inputs `logprobs` (of the sampler) and `advantages`; no settings.

    Source: the importance-weighted policy gradient, as in Schulman et al. 2015 (TRPO), eq. 14, per token.
    """
    settings("importance_sampling", config)
    return -(logprobs_T - inputs["logprobs"]).exp() * inputs["advantages"]


def ppo(logprobs_T: Tensor, inputs: Mapping[str, Tensor], config: Mapping[str, float]) -> tuple[Tensor, dict[str, Tensor]]:
    """The clipped surrogate: −min(r·A, clip(r, 1 − clip_low, 1 + clip_high)·A), r = exp(logprob − old logprob).

    Settings: `clip_low` and `clip_high` (0.2 each), or the bounds of r themselves as `clip_low_threshold` and `clip_high_threshold`; `dual_clip`
    (0: off; else above 1): where A < 0 the loss is at most −dual_clip·A. Diagnostic `clip_fraction`: share of tokens whose gradient a clip removes.
    Sources: Schulman et al. 2017 (PPO, arXiv 1707.06347), eq. 7; separate bounds from Yu et al. 2025 (DAPO, arXiv 2503.14476), section 3.1; dual clip
    from Ye et al. 2020 (arXiv 1912.09729).
    """
    return _clipped("ppo", logprobs_T, inputs, config, low=0.2, high=0.2)


def dapo(logprobs_T: Tensor, inputs: Mapping[str, Tensor], config: Mapping[str, float]) -> tuple[Tensor, dict[str, Tensor]]:
    """`ppo` with the bounds of DAPO: `clip_low` 0.2, `clip_high` 0.28 ("clip higher"). Meant for `algorithm.reduction = "token_mean"`.

    Source: Yu et al. 2025 (DAPO, arXiv 2503.14476), section 3.1; the token mean is its section 3.3.
    """
    return _clipped("dapo", logprobs_T, inputs, config, low=0.2, high=0.28)


def dr_grpo(logprobs_T: Tensor, inputs: Mapping[str, Tensor], config: Mapping[str, float]) -> tuple[Tensor, dict[str, Tensor]]:
    """`ppo` as Dr. GRPO uses it. What sets it apart lies outside: advantage `mean` and `algorithm.reduction = "constant_length"`.

    Source: Liu et al. 2025 (Dr. GRPO, arXiv 2503.20783), section 3.2.
    """
    return _clipped("dr_grpo", logprobs_T, inputs, config, low=0.2, high=0.2)


def cispo(logprobs_T: Tensor, inputs: Mapping[str, Tensor], config: Mapping[str, float]) -> tuple[Tensor, dict[str, Tensor]]:
    """−sg(clip(r, clip_low_threshold, clip_high_threshold))·A·logprob, where sg stops the gradient: no token ever loses its gradient.

    Settings: the bounds of r, 0 and 4; or `clip_low`, `clip_high` as distances from 1. Diagnostic `clip_fraction`: share of tokens whose weight
    a bound changes. Source: MiniMax 2025 (MiniMax-M1, arXiv 2506.13585), section 3.1, the CISPO objective.
    """
    values = settings("cispo", config, clip_low_threshold=0.0, clip_high_threshold=4.0, clip_low=NONE, clip_high=NONE)
    low, high = bounds("cispo", values, config)
    ratio_T = (logprobs_T.detach() - inputs["logprobs"]).exp()
    weight_T = ratio_T.clamp(low, high)
    return -weight_T * inputs["advantages"] * logprobs_T, {"clip_fraction": (weight_T != ratio_T).float()}


def sapo(logprobs_T: Tensor, inputs: Mapping[str, Tensor], config: Mapping[str, float]) -> Tensor:
    """−(4/τ)·sigmoid(τ·(r − 1))·A: a gate that closes softly as r leaves 1. τ is `tau_positive` (1.0) where A > 0, else `tau_negative` (1.05).

    Source: Gao et al. 2025 (SAPO, arXiv 2511.20347), the gate and its two temperatures.
    """
    values = settings("sapo", config, tau_positive=1.0, tau_negative=1.05)
    for name, value in values.items():
        if not value > 0:
            raise UsageError(f"loss 'sapo' needs {name} above 0, got {value}")
    advantages_T = inputs["advantages"]
    tau_T = torch.full_like(logprobs_T.detach(), values["tau_negative"]).masked_fill(advantages_T > 0, values["tau_positive"])
    ratio_T = (logprobs_T - inputs["logprobs"]).exp()
    return -(4 / tau_T) * (tau_T * (ratio_T - 1)).sigmoid() * advantages_T


def dro(logprobs_T: Tensor, inputs: Mapping[str, Tensor], config: Mapping[str, float]) -> Tensor:
    """−(logprob·A − β/2·(logprob − old logprob)²): a policy gradient held near the sampler by a square, for off-policy data. Setting `beta` (0.05).

    Source: Richemond et al. 2024 (DRO, arXiv 2405.19107), the policy objective, per token with the advantage as given.
    """
    beta = settings("dro", config, beta=0.05)["beta"]
    if beta < 0:
        raise UsageError(f"loss 'dro' needs beta of at least 0, got {beta}")
    return -(logprobs_T * inputs["advantages"] - beta / 2 * (logprobs_T - inputs["logprobs"]) ** 2)


def _clipped(
    name: str, logprobs_T: Tensor, inputs: Mapping[str, Tensor], config: Mapping[str, float], *, low: float, high: float
) -> tuple[Tensor, dict[str, Tensor]]:
    values = settings(name, config, clip_low=low, clip_high=high, clip_low_threshold=NONE, clip_high_threshold=NONE, dual_clip=0.0)
    ratio_T = (logprobs_T - inputs["logprobs"]).exp()
    return clipped_surrogate(ratio_T, inputs["advantages"], *bounds(name, values, config), dual_clip(name, values["dual_clip"]))


def clipped_surrogate(ratio_T: Tensor, advantages_T: Tensor, low: float, high: float, dual: float = 0.0) -> tuple[Tensor, dict[str, Tensor]]:
    """−min(r·A, clip(r, low, high)·A), with `dual` > 0 at most −dual·A where A < 0; and `clip_fraction`, 1 where a clip removes the gradient."""
    plain_T, clipped_T = ratio_T * advantages_T, ratio_T.clamp(low, high) * advantages_T
    loss_T = -torch.minimum(plain_T, clipped_T)
    removed_T = clipped_T < plain_T
    if dual:
        bound_T = -dual * advantages_T
        bounded_T = (advantages_T < 0) & (loss_T > bound_T)
        loss_T = torch.where(bounded_T, bound_T, loss_T)
        removed_T = removed_T | bounded_T
    return loss_T, {"clip_fraction": removed_T.float()}
