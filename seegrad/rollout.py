"""Examples → Groups: render, sample, check, grade, give credit. A failed grader is a recorded fact, not a stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from seegrad.advantages import Credit
from seegrad.backends.base import Sampler
from seegrad.errors import SamplerError
from seegrad.types import Answer, Completion, Example, Floats, Group, ModelInput, Rollout, SamplingParams

AdvantageFunction = Callable[..., object]  # see seegrad.advantages
Grade = tuple[dict[str, float], float, str | None, bool, str | None]  # scores, reward, parsed, correct, error


class Renderer(Protocol):
    """Turns an example into the model's input (`renderers.chat.ChatRenderer`)."""

    stop_token_ids: tuple[int, ...]

    def render(self, example: Example) -> ModelInput: ...


class Grader(Protocol):
    """Grades the answers of many groups at once (`rewards.base.Rewards`)."""

    def grade_groups(self, groups: Sequence[tuple[Example, Sequence[Answer]]]) -> Sequence[Sequence[Grade]]: ...


def collect(
    sampler: Sampler,
    renderer: Renderer,
    rewards: Grader,
    advantage_fn: AdvantageFunction,
    examples_P: Sequence[Example],
    params: SamplingParams,
    num_samples: int,
    seeds_P: Sequence[int],
    *,
    adjust: Callable[[Sequence[Group]], Sequence[Group]] | None = None,
) -> list[Group]:
    """One group of `num_samples` attempts per example, in order; the renderer's stop tokens are added to those of `params`. `adjust` may change
    rewards before credit is given.

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
    for example, completions_G in zip(examples_P, completions_PG, strict=True):
        _check(example, completions_G, params, num_samples)
    grades_PG = rewards.grade_groups([(example, answers(completions_G)) for example, completions_G in zip(examples_P, completions_PG, strict=True)])
    rollouts_PG = [
        [_graded(completion, grade, version) for completion, grade in zip(completions_G, grades_G, strict=True)]
        for completions_G, grades_G in zip(completions_PG, grades_PG, strict=True)
    ]
    groups = [Group(example, prompt, tuple(rollouts_G)) for example, prompt, rollouts_G in zip(examples_P, inputs_P, rollouts_PG, strict=True)]
    return give_credit(groups if adjust is None else adjust(groups), advantage_fn)


def give_credit(groups: Sequence[Group], advantage_fn: AdvantageFunction) -> list[Group]:
    """The groups with advantages: among the attempts of a group that were graded, or over all groups where the function looks at all of them."""
    credited_PG = _credited([group.rollouts_G for group in groups], advantage_fn if isinstance(advantage_fn, Credit) else Credit(advantage_fn))
    return [replace(group, rollouts_G=rollouts_G) for group, rollouts_G in zip(groups, credited_PG, strict=True)]


def answers(completions_G: Sequence[Completion]) -> list[Answer]:
    """What graders get to see of the completions."""
    return [Answer(completion.text, len(completion.tokens_T), completion.stop_reason == "length") for completion in completions_G]


def _check(example: Example, completions_G: Sequence[Completion], params: SamplingParams, num_samples: int) -> None:
    if len(completions_G) != num_samples:
        raise SamplerError(f"example {example.id!r}: the sampler gave {len(completions_G)} completions, asked for {num_samples}")
    for completion in completions_G:
        if not 1 <= len(completion.tokens_T) <= params.max_tokens:
            raise SamplerError(f"example {example.id!r}: a completion has {len(completion.tokens_T)} tokens, expected 1 to {params.max_tokens}")
        if not np.isfinite(completion.logprobs_T).all():
            raise SamplerError(f"example {example.id!r}: a completion has a logprob that is not a finite number; the weights may have diverged")


def _graded(completion: Completion, grade: Grade, version: int) -> Rollout:
    scores, reward, parsed, correct, error = grade
    return Rollout(completion, scores, reward, parsed, correct, policy_version=version, error=error)


def _credited(rollouts_PG: Sequence[Sequence[Rollout]], credit: Credit) -> list[tuple[Rollout, ...]]:
    """Advantages among the attempts that were graded. A flat group has none; flat means equal rewards, or equal parts where parts are credited."""
    valid_PG = [[index for index, rollout in enumerate(rollouts_G) if rollout.error is None] for rollouts_G in rollouts_PG]
    graded_PG = [[rollouts_G[index] for index in valid_G] for rollouts_G, valid_G in zip(rollouts_PG, valid_PG, strict=True)]
    rewards_PG = [np.array([rollout.reward for rollout in graded_G], np.float32) for graded_G in graded_PG]
    parts_PG = [_parts(graded_G) for graded_G in graded_PG]
    signal_P = [
        number
        for number, graded_G in enumerate(graded_PG)
        if len({tuple(rollout.scores.items()) if credit.by_part else rollout.reward for rollout in graded_G}) > 1
    ]
    advantages_PG = credit([rewards_PG[number] for number in signal_P], [parts_PG[number] for number in signal_P])
    credited = [list(rollouts_G) for rollouts_G in rollouts_PG]
    for number, advantages_G in zip(signal_P, advantages_PG, strict=True):
        for index, advantage in zip(valid_PG[number], advantages_G, strict=True):
            credited[number][index] = replace(credited[number][index], advantage=float(advantage))
    return [tuple(rollouts_G) for rollouts_G in credited]


def _parts(graded_G: Sequence[Rollout]) -> dict[str, Floats]:
    """Reward part → its value for each attempt."""
    names = graded_G[0].scores if graded_G else {}
    return {name: np.array([rollout.scores[name] for rollout in graded_G], np.float32) for name in names}
