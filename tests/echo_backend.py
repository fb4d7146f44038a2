"""A backend without torch and without a model: it answers some boxed digit in the bundled tokenizer's tokens and learns nothing.

Enough to run every command's loop side in a process in which torch cannot be imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from seegrad.config import ModelConfig
from seegrad.families.folder import model_folder
from seegrad.types import AdamParams, Completion, Datum, Floats, LossSpec, ModelInput, SamplingParams, StepOutput

LOGPROB = -0.5  # of every token


def open_backend(uri: str) -> EchoBackend:
    assert uri.startswith("echo:"), uri
    return EchoBackend()


class EchoBackend:
    capabilities = frozenset({"sample", "train"})

    def check_loss(self, loss: LossSpec) -> None:
        return None

    def create(self, model: ModelConfig, *, seed: int = 0) -> EchoPolicy:
        return EchoPolicy(model)

    def sampler(self, model: ModelConfig, weights: Path | None = None) -> EchoSampler:
        return EchoSampler(model, 0)

    def close(self) -> None:
        return None


class EchoSampler:
    def __init__(self, model: ModelConfig, version: int) -> None:
        self.version = version
        self._tokenizer = Tokenizer.from_file(str(model_folder(model.base) / "tokenizer.json"))

    def sample(
        self, prompts_P: Sequence[ModelInput], params: SamplingParams, num_samples: int = 1, *, seeds_P: Sequence[int] | None = None
    ) -> list[list[Completion]]:
        seeds = seeds_P if seeds_P is not None else [params.seed] * len(prompts_P)
        return [[self._one(params, seed + number) for number in range(num_samples)] for seed in seeds]

    def _one(self, params: SamplingParams, seed: int) -> Completion:
        tokens = self._tokenizer.encode(f"\\boxed{{{seed % 5 + 1}}}", add_special_tokens=False).ids[: params.max_tokens]
        logprobs_T = np.full(len(tokens), LOGPROB, np.float32)
        return Completion(tuple(tokens), logprobs_T, "stop", self._tokenizer.decode(tokens))

    def logprobs(self, datums: Sequence[Datum], temperature: float = 1.0) -> list[Floats]:
        return [np.where(datum.active_T, LOGPROB, 0).astype(np.float32) for datum in datums]


class EchoPolicy:
    def __init__(self, model: ModelConfig) -> None:
        self._model, self.version = model, 0

    def forward_backward(self, datums: Sequence[Datum], loss: LossSpec) -> StepOutput:
        logprobs_D = tuple(self.sampler().logprobs(datums))
        return StepOutput(logprobs_D, tuple(np.zeros_like(logprobs_T) for logprobs_T in logprobs_D), {"loss": 0.0})

    forward = forward_backward

    def optim_step(self, adam: AdamParams) -> Mapping[str, float]:
        self.version += 1
        return {"grad_norm": 0.0, "learning_rate": adam.learning_rate}

    def sampler(self) -> EchoSampler:
        return EchoSampler(self._model, self.version)

    reference = sampler

    def save_weights(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "weights.txt").write_text("none")

    def save_state(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "version.txt").write_text(str(self.version))

    def load_state(self, folder: Path) -> None:
        self.version = int((folder / "version.txt").read_text())
