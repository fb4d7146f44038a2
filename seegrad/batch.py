"""Groups → Datums: flat groups and failed attempts are dropped, the rest is shifted by one, prompt and image positions are masked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seegrad.types import Datum, Floats, Group, ModelInput, Rollout


def to_datums(groups: Sequence[Group], *, trained: bool | None = True, mask_truncated: bool = False) -> tuple[list[Datum], list[tuple[int, int]]]:
    """One datum per attempt that carries signal, and its (index of the group, index of the attempt in it).

    Left out are groups without credit (all advantages 0, as in flat groups), attempts whose grader failed, attempts without tokens, and with
    `mask_truncated` attempts that were cut at the limit (they keep their share in the group's statistics: over-long masking of DAPO, section 3.4);
    `trained=False` gives those (with tokens) instead of the rest, None gives all. `inputs` are `logprobs` (the sampler's), `advantages` and `mask`;
    for a prompt of P and a completion of T tokens all arrays have length P + T − 1, and the last T positions predict the completion.
    """
    datums: list[Datum] = []
    origins: list[tuple[int, int]] = []
    for group_index, group in enumerate(groups):
        credited = has_credit(group)
        for attempt, rollout in enumerate(group.rollouts_G):
            masked = mask_truncated and rollout.completion.stop_reason == "length"
            carries_signal = credited and rollout.error is None and not masked
            if (trained is None or carries_signal == trained) and rollout.completion.tokens_T:
                datums.append(_datum(group.model_input, rollout))
                origins.append((group_index, attempt))
    return datums, origins


def has_credit(group: Group, mask_truncated: bool = False) -> bool:
    """Whether any attempt has an advantage; with `mask_truncated` any that was not cut at the limit."""
    return any(rollout.advantage and not (mask_truncated and rollout.completion.stop_reason == "length") for rollout in group.rollouts_G)


def _datum(prompt: ModelInput, rollout: Rollout) -> Datum:
    tokens_T = rollout.completion.tokens_T
    model_input = prompt + tokens_T[:-1]
    length, start = len(model_input), len(prompt) - 1
    assert start >= 0 and start + len(tokens_T) == length, (len(prompt), len(tokens_T), length)
    targets = np.zeros(length, np.int64)
    targets[start:] = tokens_T
    logprobs, advantages, mask = _zeros(length), _zeros(length), _zeros(length)
    logprobs[start:] = rollout.completion.logprobs_T
    advantages[start:] = rollout.advantage
    mask[start:] = 1
    return Datum(model_input, targets, {"logprobs": logprobs, "advantages": advantages, "mask": mask})


def _zeros(length: int) -> Floats:
    return np.zeros(length, np.float32)
