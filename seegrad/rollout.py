"""Examples → Groups: render, sample, check, grade, give credit. A failed grader is a recorded fact, not a stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from seegrad.backends.base import Sampler
from seegrad.errors import SamplerError, UsageError
from seegrad.types import Completion, Example, Floats, Group, ModelInput, Rollout, SamplingParams

AdvantageFunction = Callable[[Floats], Floats]
Grade = tuple[dict[str, float], float, str | None, bool, str | None]  # scores, reward, parsed, correct, error


class Renderer(Protocol):
    """Turns an example into the model's input (`renderers.chat.ChatRenderer`)."""

    stop_token_ids: tuple[int, ...]

    def render(self, example: Example) -> ModelInput: ...


class Grader(Protocol):
    """Grades a text (`rewards.base.Rewards`)."""

    def grade(self, example: Example, text: str) -> Grade: ...


def collect(
    sampler: Sampler,
    renderer: Renderer,
    rewards: Grader,
    advantage_fn: AdvantageFunction,
    examples_P: Sequence[Example],
    params: SamplingParams,
    num_samples: int,
    seeds_P: Sequence[int],
) -> list[Group]:
    """One group of `num_samples` attempts per example, in order; the renderer's stop tokens are added to those of `params`.

    An attempt whose grader failed keeps its error, gets advantage 0 and is left out of the group's statistics. Raises DataError for an example that
    cannot be rendered and SamplerError for completions that break the sampler's contract.
    """
    assert len(seeds_P) == len(examples_P), (len(seeds_P), len(examples_P))
    inputs_P = [renderer.render(example) for example in examples_P]
    params = replace(params, stop_token_ids=tuple(dict.fromkeys((*params.stop_token_ids, *renderer.stop_token_ids))))
    version = sampler.version
    completions_PG = sampler.sample(inputs_P, params, num_samples, seeds_P=seeds_P)
    if len(completions_PG) != len(examples_P):
        raise SamplerError(f"the sampler answered {len(completions_PG)} of {len(examples_P)} prompts")
    groups = []
    for example, model_input, completions_G in zip(examples_P, inputs_P, completions_PG, strict=True):
        _check(example, completions_G, params, num_samples)
        rollouts_G = [_graded(rewards, example, completion, version) for completion in completions_G]
        groups.append(Group(example, model_input, _credited(rollouts_G, advantage_fn)))
    return groups


def _check(example: Example, completions_G: Sequence[Completion], params: SamplingParams, num_samples: int) -> None:
    if len(completions_G) != num_samples:
        raise SamplerError(f"example {example.id!r}: the sampler gave {len(completions_G)} completions, asked for {num_samples}")
    for completion in completions_G:
        if not 1 <= len(completion.tokens_T) <= params.max_tokens:
            raise SamplerError(f"example {example.id!r}: a completion has {len(completion.tokens_T)} tokens, expected 1 to {params.max_tokens}")
        if not np.isfinite(completion.logprobs_T).all():
            raise SamplerError(f"example {example.id!r}: a completion has a logprob that is not a finite number; the weights may have diverged")


def _graded(rewards: Grader, example: Example, completion: Completion, version: int) -> Rollout:
    scores, reward, parsed, correct, error = rewards.grade(example, completion.text)
    return Rollout(completion, scores, reward, parsed, correct, policy_version=version, error=error)


def _credited(rollouts_G: Sequence[Rollout], advantage_fn: AdvantageFunction) -> tuple[Rollout, ...]:
    """Advantages among the attempts that were graded; a flat group has none."""
    valid = [index for index, rollout in enumerate(rollouts_G) if rollout.error is None]
    rewards_G = np.array([rollouts_G[index].reward for index in valid], np.float32)
    if len({rollouts_G[index].reward for index in valid}) < 2:
        return tuple(rollouts_G)
    try:
        advantages_G = np.asarray(advantage_fn(rewards_G), np.float64)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"the advantage function fails on rewards {rewards_G.tolist()}: {reason}; expected one finite number for each") from error
    if advantages_G.shape != rewards_G.shape or not np.isfinite(advantages_G).all():
        raise UsageError(f"the advantage function made {advantages_G.tolist()} of rewards {rewards_G.tolist()}; expected one finite number for each")
    credited = list(rollouts_G)
    for index, advantage in zip(valid, advantages_G, strict=True):
        credited[index] = replace(credited[index], advantage=float(advantage))
    return tuple(credited)
