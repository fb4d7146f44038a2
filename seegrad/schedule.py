"""What the step number alone settles: questions, seeds, learning rate. So a run continues from nothing but its step and the state of its policy."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from seegrad.config import Config, OptimizerConfig
from seegrad.types import AdamParams, Ints


def question_positions(num_examples: int, num_questions: int, step: int, seed: int) -> list[int]:
    """Rows of the data set that step `step` (from 1) asks. Steps walk through a fresh permutation per epoch; every epoch asks each row exactly once.

    >>> sorted(question_positions(4, 2, 1, seed=0) + question_positions(4, 2, 2, seed=0))
    [0, 1, 2, 3]
    """
    first = (step - 1) * num_questions
    return [int(_permutation(num_examples, seed, place // num_examples)[place % num_examples]) for place in range(first, first + num_questions)]


def sampling_seeds(num_questions: int, step: int, seed: int, *, first: int = 0) -> list[int]:
    """One seed per question of the step, from question number `first`; no two steps or questions share one (63 random bits from
    (seed, step, question))."""
    questions = range(first, first + num_questions)
    return [int(np.random.SeedSequence((seed, step, question)).generate_state(1, np.uint64)[0] >> 1) for question in questions]


def extra_positions(num_examples: int, num_questions: int, step: int, seed: int, attempt: int) -> list[int]:
    """Rows that replace questions of step `step` whose answers taught nothing, in try `attempt` (from 1): a draw without repeats of its own."""
    order = np.random.default_rng((seed, step, attempt)).permutation(num_examples)
    return [int(order[place % num_examples]) for place in range(num_questions)]


def learning_rate_factor(optimizer: OptimizerConfig, step: int, steps: int) -> float:
    """Share of the full learning rate at step `step` of `steps` (from 1): linear warm-up that starts above 0, then constant, cosine or linear to
    (nearly) 0. The cosine is Loshchilov & Hutter 2017 (SGDR), eq. 5, one cycle.

    >>> [learning_rate_factor(OptimizerConfig(schedule="linear", warmup_steps=2), step, 4) for step in (1, 2, 3, 4)]
    [0.5, 1.0, 1.0, 0.5]
    """
    done = step - 1
    if done < optimizer.warmup_steps:
        return (done + 1) / optimizer.warmup_steps
    progress = (done - optimizer.warmup_steps) / max(1, steps - optimizer.warmup_steps)
    if optimizer.schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * progress))
    return 1.0 - progress if optimizer.schedule == "linear" else 1.0


def adam_params(config: Config, step: int) -> AdamParams:
    """The optimizer settings of one step; both learning rates follow the schedule."""
    optimizer = config.optimizer
    factor = learning_rate_factor(optimizer, step, config.steps)
    vision = optimizer.vision_learning_rate
    return AdamParams(
        learning_rate=optimizer.learning_rate * factor,
        beta1=optimizer.beta1,
        beta2=optimizer.beta2,
        eps=optimizer.eps,
        weight_decay=optimizer.weight_decay,
        grad_clip_norm=optimizer.grad_clip_norm,
        vision_learning_rate=None if vision is None else vision * factor,
    )


@lru_cache(maxsize=2)
def _permutation(num_examples: int, seed: int, epoch: int) -> Ints:
    return np.random.default_rng((seed, epoch)).permutation(num_examples)
