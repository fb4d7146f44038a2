"""Small policies and batches for the tests of the local policy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from seegrad.backends.local.backend import LocalBackend
from seegrad.backends.local.policy import LocalPolicy
from seegrad.backends.local.sampler import LocalSampler
from seegrad.config import ModelConfig
from seegrad.types import AdamParams, Datum, LossSpec, ModelInput, SamplingParams
from tests.tinymodel import image_prompt, picture, tiny_folder

PROMPTS = (image_prompt("how many?", picture(1)), image_prompt("how many circles?", picture(2, 64, 96)))
LOSS = LossSpec("ppo")
ADAM = AdamParams(learning_rate=3e-3)


def policy(train: str = "lora", *, folder: Path | None = None, seed: int = 1, **settings: object) -> LocalPolicy:
    """A policy over the random tiny model."""
    model = ModelConfig.model_validate({"base": str(folder or tiny_folder()), "train": train, "lora_rank": 4, "device": "cpu", **settings})
    made = LocalBackend().create(model, seed=seed)
    assert isinstance(made, LocalPolicy)
    return made


def rollouts(sampler: LocalSampler, seed: int = 0, prompts: tuple[ModelInput, ...] = PROMPTS) -> list[Datum]:
    """Sampled datums with advantages −1 and 1 in turn."""
    datums = []
    for prompt, completions in zip(prompts, sampler.sample(prompts, SamplingParams(max_tokens=8, seed=seed), 3), strict=True):
        for number, completion in enumerate(completions):
            model_input = prompt + completion.tokens_T[:-1]
            start = len(prompt) - 1
            targets, mask, logprobs = (
                np.zeros(len(model_input), np.int64),
                np.zeros(len(model_input), np.float32),
                np.zeros(len(model_input), np.float32),
            )
            targets[start:], mask[start:], logprobs[start:] = completion.tokens_T, 1, completion.logprobs_T
            datums.append(Datum(model_input, targets, {"mask": mask, "logprobs": logprobs, "advantages": mask * (number % 2 * 2 - 1)}))
    return datums


def take_step(made: LocalPolicy, seed: int = 0) -> None:
    """One on-policy step."""
    made.forward_backward(rollouts(made.sampler(), seed), LOSS)
    assert made.optim_step(ADAM)["skipped"] == 0


def tensors(made: LocalPolicy) -> dict[str, torch.Tensor]:
    """Copies of everything in the model."""
    return {name: parameter.detach().clone() for name, parameter in made._vlm.hf.named_parameters()}


def changed(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    assert before.keys() == after.keys()
    return {name for name in before if not torch.equal(before[name], after[name])}


def largest_gap(first: list[np.ndarray], second: list[np.ndarray]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(first, second, strict=True))
