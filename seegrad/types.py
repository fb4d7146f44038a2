"""The nouns of the pipeline. Frozen, slotted, checked once in the constructor; standard library and numpy only.

Axis suffixes: `_P` prompts, `_G` attempts at one prompt, `_T` tokens, `_D` datums.

    Example ─ renderer ─▶ ModelInput ─ sampler ─▶ Completion ─ rewards ─▶ Rollout ─▶ Group ─ batch ─▶ Datum ─ policy ─▶ StepOutput
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
StopReason = Literal["stop", "length"]
Reduction = Literal["sum", "token_mean", "sequence_mean", "constant_length"]
KLEstimator = Literal["k1", "k2", "k3", "k3_unbiased"]

_EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Example:
    """One row of a data set: what is asked, the pictures, and the gold answer.

    `images` are encoded files (PNG or JPEG bytes) that `seegrad.images.clean` has already made plain RGB.
    Rewards get the whole example.

    >>> Example(id="a", question="1+1?", answer="2").choices
    ()
    """

    id: str
    question: str
    answer: str
    images: tuple[bytes, ...] = ()
    choices: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)


@dataclass(frozen=True, slots=True)
class TextChunk:
    """A run of text tokens."""

    tokens: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class ImageChunk:
    """One picture: its encoded bytes and the number of placeholder tokens that it stands for (`num_tokens` ≥ 1)."""

    data: bytes
    format: Literal["png", "jpeg"]
    num_tokens: int

    def __post_init__(self) -> None:
        if self.num_tokens < 1:
            raise ValueError(f"an image stands for at least 1 token, got num_tokens={self.num_tokens}")

    def __len__(self) -> int:
        return self.num_tokens


Chunk = TextChunk | ImageChunk


@dataclass(frozen=True, slots=True)
class ModelInput:
    """What the model reads, as chunks; `len()` counts image tokens too.

    >>> len(ModelInput((TextChunk((1, 2)), ImageChunk(b"..", "png", 4), TextChunk((3,)))))
    7
    """

    chunks: tuple[Chunk, ...]

    def __len__(self) -> int:
        return sum(len(chunk) for chunk in self.chunks)

    def __add__(self, tokens: Sequence[int]) -> ModelInput:
        """The same input with text tokens appended (merged into a trailing text chunk)."""
        if not len(tokens):
            return self
        tail = tuple(int(t) for t in tokens)
        last = self.chunks[-1] if self.chunks else None
        if isinstance(last, TextChunk):
            return ModelInput((*self.chunks[:-1], TextChunk(last.tokens + tail)))
        return ModelInput((*self.chunks, TextChunk(tail)))

    @property
    def images(self) -> tuple[ImageChunk, ...]:
        return tuple(chunk for chunk in self.chunks if isinstance(chunk, ImageChunk))

    def token_ids(self, placeholder: int) -> list[int]:
        """Token ids of length `len(self)`; every image position holds `placeholder`."""
        ids: list[int] = []
        for chunk in self.chunks:
            ids.extend(chunk.tokens if isinstance(chunk, TextChunk) else [placeholder] * chunk.num_tokens)
        return ids


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample. `temperature` 0 is greedy; `top_k` 0 and `top_p` 1 are off; stops are strings and/or token ids.

    A stop token is part of the completion (with its logprob); a stop string ends it after the token that completes the string.
    """

    max_tokens: int = 128
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens}")
        if self.temperature < 0:
            raise ValueError(f"temperature must not be negative, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")
        if self.top_k < 0:
            raise ValueError(f"top_k must not be negative, got {self.top_k}")


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """Sampled tokens, one logprob each (stop token included). `logprobs_T` is the log-softmax of (logits / temperature), before top-k/top-p, banned
    ids removed; at temperature 0 it is the temperature-1 logprob. `text` is the decoded string without a trailing stop token."""

    tokens_T: tuple[int, ...]
    logprobs_T: Floats
    stop_reason: StopReason
    text: str

    def __post_init__(self) -> None:
        if len(self.tokens_T) != len(self.logprobs_T):
            raise ValueError(f"{len(self.tokens_T)} tokens but {len(self.logprobs_T)} logprobs")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a grader gets to see of a completion: the text, its length in tokens (0: unknown), and whether it was cut at the limit.

    >>> Answer("\\\\boxed{3}").truncated
    False
    """

    text: str
    num_tokens: int = 0
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Score:
    """What a grader says of one answer. `value` is the reward part; `parsed` the answer it could read (None: none found, and the answer counts as
    unparsable); `correct` whether that answer is right (None: this part has no opinion). A reward function may also return a plain number.

    >>> Score(1.0, parsed="3", correct=True).value
    1.0
    """

    value: float
    parsed: str | None = None
    correct: bool | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Rollout:
    """One attempt at an example. `scores` are the reward parts by name (unweighted); `reward` is their weighted sum; `advantage` its credit.

    `parsed` is the answer that the reward could read from the text, or None (that is what `format_rate` counts).
    `error` names a failed grader: such a rollout has no valid reward and is never trained on.
    """

    completion: Completion
    scores: Mapping[str, float]
    reward: float
    parsed: str | None = None
    correct: bool = False
    advantage: float = 0.0
    policy_version: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """All attempts at one example, with the input they were sampled from."""

    example: Example
    model_input: ModelInput
    rollouts_G: tuple[Rollout, ...]

    @property
    def rewards_G(self) -> Floats:
        return np.array([r.reward for r in self.rollouts_G], np.float32)

    @property
    def is_flat(self) -> bool:
        """True when every valid attempt got the same reward (by equality), so that the group carries no signal."""
        valid = [r.reward for r in self.rollouts_G if r.error is None]
        return len(set(valid)) < 2


@dataclass(frozen=True, slots=True, eq=False)
class Datum:
    """One training sequence, already shifted: position t of `model_input` predicts `target_tokens_T[t]`.

    All arrays have length `len(model_input)`. Prompt and image positions hold target 0, logprob 0, advantage 0, mask 0.
    `inputs` are the per-token arrays that the loss names: `logprobs` (of the sampler), `advantages`, `mask`, `ref_logprobs`, `weights` …

    >>> d = Datum(ModelInput((TextChunk((5, 6)),)), np.array([6, 7]), {"mask": np.array([0, 1], np.float32)})
    >>> len(d)
    2
    """

    model_input: ModelInput
    target_tokens_T: Ints
    inputs: Mapping[str, Floats]

    def __post_init__(self) -> None:
        length = len(self.model_input)
        if len(self.target_tokens_T) != length:
            raise ValueError(f"model_input has {length} positions but target_tokens_T has {len(self.target_tokens_T)}")
        for name, array in self.inputs.items():
            if len(array) != length:
                raise ValueError(f"model_input has {length} positions but inputs[{name!r}] has {len(array)}")

    def __len__(self) -> int:
        return len(self.model_input)

    @property
    def active_T(self) -> NDArray[np.bool_]:
        """Positions whose logprob is needed: where `mask`, else `weights`, else `advantages` is non-zero; everywhere when none is given."""
        for name in ("mask", "weights", "advantages"):
            if name in self.inputs:
                return np.asarray(self.inputs[name] != 0)
        return np.ones(len(self), np.bool_)


@dataclass(frozen=True, slots=True)
class LossSpec:
    """Which loss, with which settings. `name` is a registered loss or `file.py:function`.

    The per-token losses of all datums are summed under `reduction`: `sum`; `token_mean` (÷ all active tokens of the batch); `sequence_mean`
    (mean over active tokens of a datum, then mean over datums); `constant_length` (sum over a datum's tokens ÷ `length`, then mean over datums).
    `denominator`, when given, replaces the count that the reduction would use, so that a batch may be sent in parts. `temperature` divides the logits
    as it did in the sampler. Two settings of `config` belong to every loss: `kl_coef` adds that much of the estimator `kl_estimator` of the KL to
    `ref_logprobs`, `entropy_coef` subtracts that much of the entropy.
    """

    name: str = "importance_sampling"
    config: Mapping[str, float] = field(default_factory=dict)
    reduction: Reduction = "token_mean"
    denominator: float | None = None
    temperature: float = 1.0
    length: float | None = None
    kl_estimator: KLEstimator = "k3"


@dataclass(frozen=True, slots=True)
class AdamParams:
    """One optimizer step. Learning rates are absolute; `vision_learning_rate` None means the same as `learning_rate`. `grad_clip_norm` 0 is off."""

    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0
    grad_clip_norm: float = 1.0
    vision_learning_rate: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class StepOutput:
    """Answer of `forward` and `forward_backward`: per datum the trainer's logprob of each target and the entropy (nats), 0 at inactive positions."""

    logprobs_D: tuple[Floats, ...]
    entropy_D: tuple[Floats, ...]
    metrics: Mapping[str, float]
