"""A policy that fits in the head: one row of logits per kind of question, exact gradients in numpy, Adam in float64.

It keeps every promise of `backends.base` (immutable samplers, versions, seeds, whole states), so that the loop can be tested in milliseconds and
without torch.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from seegrad.config import Config
from seegrad.errors import RunError
from seegrad.rewards.base import Rewards
from seegrad.types import (
    AdamParams,
    Answer,
    Completion,
    Datum,
    Example,
    Floats,
    ImageChunk,
    LossSpec,
    ModelInput,
    SamplingParams,
    Score,
    StepOutput,
    TextChunk,
)

STOP = 10  # tokens 0-9 are digits, 10 ends
KINDS = 4  # kinds of question; the last prompt token is 20 + kind


def picture(number: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), (number * 20 % 256, 40, 90)).save(buffer, "PNG")
    return buffer.getvalue()


def examples(count: int = 12) -> list[Example]:
    """Kind k asks for the digit k + 2."""
    return [Example(f"row-{n}", f"which digit, kind {n % KINDS}?", str(n % KINDS + 2), (picture(n),), meta={"kind": n % KINDS}) for n in range(count)]


def first_digit(example: Example, text: str) -> Score:
    """1 when the answer's first digit is right; no digit cannot be parsed."""
    return Score(float(text[:1] == example.answer), parsed=text[:1] or None, correct=text[:1] == example.answer)


def brevity(example: Example, text: str) -> float:
    return 1.0 if len(text) <= 2 else 0.0


def rewards() -> Rewards:
    here = str(Path(__file__))
    return Rewards({f"{here}:first_digit": 1.0, f"{here}:brevity": 0.25}, isolate=False)


class OneByOne:
    """Rewards of a test that say `grade(example, text)`: groups are graded answer by answer."""

    def grade_groups(self, groups: Sequence[tuple[Example, Sequence[Answer]]]) -> list[list[Any]]:
        return [[self.grade(example, answer.text) for answer in answers] for example, answers in groups]

    def grade(self, example: Example, text: str) -> Any:
        raise NotImplementedError


def config(**changes: Any) -> Config:
    """Six quick steps; `changes` are whole sections or top-level settings."""
    sections: dict[str, Any] = {
        "name": "fake",
        "steps": 6,
        "rollout": {"questions_per_step": 4, "group_size": 4, "max_tokens": 6},
        "optimizer": {"learning_rate": 0.2, "warmup_steps": 2, "schedule": "cosine"},
        "save": {"every": 2, "keep": 2},
        "eval": {"every": 0, "num_items": 8},
    }
    return Config.model_validate({**sections, **changes})


class FakeRenderer:
    """Text, picture, text: the last token names the kind of question."""

    stop_token_ids: tuple[int, ...] = (STOP,)

    def render(self, example: Example) -> ModelInput:
        image = ImageChunk(example.images[0], "png", 4)
        return ModelInput((TextChunk((30,)), image, TextChunk((20 + int(example.meta["kind"]),))))


class FakeSampler:
    """A copy of the logits."""

    def __init__(self, logits_KV: Floats, version: int, skew: float = 0.0) -> None:
        self._logits_KV, self._version, self._skew = logits_KV.copy(), version, skew

    @property
    def version(self) -> int:
        return self._version

    def sample(
        self, prompts_P: Sequence[ModelInput], params: SamplingParams, num_samples: int = 1, *, seeds_P: Sequence[int] | None = None
    ) -> list[list[Completion]]:
        seeds = seeds_P if seeds_P is not None else [params.seed] * len(prompts_P)
        return [[self._one(prompt, params, (seed, number)) for number in range(num_samples)] for prompt, seed in zip(prompts_P, seeds, strict=True)]

    def _one(self, prompt: ModelInput, params: SamplingParams, seed: tuple[int, int]) -> Completion:
        generator = np.random.default_rng(seed)
        logprobs_V = log_softmax(self._logits_KV[kind_of(prompt)] / (params.temperature or 1.0))
        tokens: list[int] = []
        while len(tokens) < params.max_tokens and (not tokens or tokens[-1] != STOP):
            tokens.append(int(logprobs_V.argmax()) if params.temperature == 0 else int(generator.choice(len(logprobs_V), p=np.exp(logprobs_V))))
        text = "".join(str(token) for token in tokens if token != STOP)
        logprobs_T = (logprobs_V[tokens] + self._skew).astype(np.float32)
        return Completion(tuple(tokens), logprobs_T, "stop" if tokens[-1] == STOP else "length", text)

    def logprobs(self, datums: Sequence[Datum], temperature: float = 1.0) -> list[Floats]:
        return [self._score(datum, temperature) for datum in datums]

    def _score(self, datum: Datum, temperature: float) -> Floats:
        logprobs_V = log_softmax(self._logits_KV[kind_of(datum.model_input)] / temperature)
        return np.where(datum.active_T, logprobs_V[datum.target_tokens_T], 0).astype(np.float32)


class FakePolicy:
    """Importance-sampling policy gradient on a table of logits. `skew` is added to every sampler logprob: a planted off-policy error."""

    def __init__(self, seed: int = 0, skew: float = 0.0) -> None:
        self.logits_KV = np.random.default_rng(seed).normal(0, 0.3, (KINDS, STOP + 1))
        self.moments_2KV = np.zeros((2, *self.logits_KV.shape))
        self.gradient_KV = np.zeros_like(self.logits_KV)
        self.base_KV = self.logits_KV.copy()
        self.skew = skew
        self.adams: list[AdamParams] = []
        self.losses: list[LossSpec] = []
        self.batches: list[list[Datum]] = []
        self._version = 0

    @property
    def version(self) -> int:
        return self._version

    def forward_backward(self, datums: Sequence[Datum], loss: LossSpec) -> StepOutput:
        self.losses.append(loss)
        self.batches.append(list(datums))
        num_tokens = sum(int(datum.active_T.sum()) for datum in datums)
        logprobs_D, entropy_D, total = [], [], 0.0
        for datum in datums:
            kind, active_T = kind_of(datum.model_input), datum.active_T
            logprobs_V = log_softmax(self.logits_KV[kind] / loss.temperature)
            probabilities_V = np.exp(logprobs_V)
            logprobs_T = np.where(active_T, logprobs_V[datum.target_tokens_T], 0).astype(np.float32)
            weight_T = np.exp(logprobs_T - datum.inputs["logprobs"]) * datum.inputs["advantages"] * active_T / num_tokens
            for target, weight in zip(datum.target_tokens_T, weight_T, strict=True):
                self.gradient_KV[kind] += weight * (probabilities_V - np.eye(len(probabilities_V))[target])
            total -= float(weight_T.sum())
            logprobs_D.append(logprobs_T)
            entropy_D.append(np.where(active_T, -(probabilities_V * logprobs_V).sum(), 0).astype(np.float32))
        metrics = {"loss": total, **({"kl": 0.0} if "kl_coef" in loss.config else {})}
        return StepOutput(tuple(logprobs_D), tuple(entropy_D), metrics)

    def forward(self, datums: Sequence[Datum], loss: LossSpec) -> StepOutput:
        before = self.gradient_KV.copy()
        output = self.forward_backward(datums, loss)
        self.gradient_KV = before
        return output

    def optim_step(self, adam: AdamParams) -> Mapping[str, float]:
        self.adams.append(adam)
        self._version += 1
        gradient, first, second = self.gradient_KV, *self.moments_2KV
        self.moments_2KV = np.stack([adam.beta1 * first + (1 - adam.beta1) * gradient, adam.beta2 * second + (1 - adam.beta2) * gradient**2])
        mean = self.moments_2KV[0] / (1 - adam.beta1**self._version)
        square = self.moments_2KV[1] / (1 - adam.beta2**self._version)
        self.logits_KV = self.logits_KV - adam.learning_rate * mean / (np.sqrt(square) + adam.eps)
        norm = float(np.sqrt((gradient**2).sum()))
        self.gradient_KV = np.zeros_like(gradient)
        return {"grad_norm": norm, "learning_rate": adam.learning_rate}

    def sampler(self) -> FakeSampler:
        return FakeSampler(self.logits_KV, self._version, self.skew)

    def reference(self) -> FakeSampler:
        return FakeSampler(self.base_KV, 0)

    def save_weights(self, folder: Path) -> None:
        folder.mkdir()
        np.save(folder / "logits.npy", self.logits_KV)

    def save_state(self, folder: Path) -> None:
        folder.mkdir()
        np.save(folder / "state.npy", np.concatenate([self.logits_KV[None], self.moments_2KV]))
        (folder / "version.json").write_text(json.dumps({"version": self._version}))

    def load_state(self, folder: Path) -> None:
        try:
            state = np.load(folder / "state.npy")
            self._version = int(json.loads((folder / "version.json").read_text())["version"])
        except (OSError, ValueError) as error:
            raise RunError(f"{folder} is damaged: {error}") from error
        self.logits_KV, self.moments_2KV = state[0], state[1:]
        self.gradient_KV = np.zeros_like(self.logits_KV)


class Quiet:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.lines: list[tuple[int, dict[str, float]]] = []
        self.shown: list[Any] = []
        self.done = -1

    def __enter__(self) -> Quiet:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def start(self, done: int, steps: int) -> None:
        self.done = done

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self.lines.append((step, dict(metrics)))

    def note(self, text: str) -> None:
        self.notes.append(text)

    def samples(self, groups: Sequence[Any]) -> None:
        self.shown.extend(groups)


def kind_of(model_input: ModelInput) -> int:
    return next(token - 20 for chunk in reversed(model_input.chunks) if isinstance(chunk, TextChunk) for token in chunk.tokens if token >= 20)


def log_softmax(logits_V: Any) -> Any:
    shifted = logits_V - logits_V.max()
    return shifted - np.log(np.exp(shifted).sum())
