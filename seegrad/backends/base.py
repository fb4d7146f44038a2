"""The four primitives, as protocols. The loop, the evaluator and the service know only these.

    Backend ── create(...) ──▶ Policy ── sampler() ──▶ Sampler (immutable, has a version)
       │                         │ forward_backward · forward · optim_step · save_* · load_state
       └── sampler(base or checkpoint folder) ──▶ Sampler

Calls take effect in the order in which they are made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from seegrad.config import ModelConfig
from seegrad.types import AdamParams, Completion, Datum, Floats, LossSpec, ModelInput, SamplingParams, StepOutput


@runtime_checkable
class Sampler(Protocol):
    """Frozen weights that answer. Training afterwards never changes what a sampler says."""

    @property
    def version(self) -> int:
        """Number of optimizer steps behind these weights; 0 is the base."""
        ...

    def sample(
        self, prompts_P: Sequence[ModelInput], params: SamplingParams, num_samples: int = 1, *, seeds_P: Sequence[int] | None = None
    ) -> list[list[Completion]]:
        """`num_samples` completions of each prompt; result[p][g].

        A completion depends on weights, prompt, seed (`seeds_P[p]`, else `params.seed`) and g, not on its neighbours.
        Raises SamplerError when a chunk's `num_tokens` differs from what the model makes of that picture, naming both numbers.
        """
        ...

    def logprobs(self, datums: Sequence[Datum], temperature: float = 1.0) -> list[Floats]:
        """Logprob of each datum's targets (0 where not active); same definition as in `Completion`."""
        ...


@runtime_checkable
class Policy(Protocol):
    """Weights in training."""

    @property
    def version(self) -> int:
        """Number of optimizer steps taken, restored ones included."""
        ...

    def forward_backward(self, datums: Sequence[Datum], loss: LossSpec) -> StepOutput:
        """Accumulate gradients of the loss. An empty or fully masked batch gives a loss of 0 and no gradient, never NaN."""
        ...

    def forward(self, datums: Sequence[Datum], loss: LossSpec) -> StepOutput:
        """The same numbers without gradients."""
        ...

    def optim_step(self, adam: AdamParams) -> Mapping[str, float]:
        """Apply and clear the accumulated gradients; returns `grad_norm`, `learning_rate`, and for a trained tower `vision_grad_norm`.

        A gradient that is not finite is not applied: `skipped` is then 1, and gradients are cleared.
        """
        ...

    def sampler(self) -> Sampler:
        """The current weights as a sampler. Costs nothing until the weights move on while it is still in use."""
        ...

    def reference(self) -> Sampler:
        """The base weights (adapter off), version 0."""
        ...

    def save_weights(self, folder: Path) -> None:
        """For inference: a PEFT adapter folder (LoRA) or a Hugging Face model folder (full)."""
        ...

    def save_state(self, folder: Path) -> None:
        """Weights, optimizer and version: everything `load_state` needs to continue bit for bit."""
        ...

    def load_state(self, folder: Path) -> None:
        """Raises RunError when the folder is damaged or made for other settings."""
        ...


@runtime_checkable
class Backend(Protocol):
    """Opens models. `capabilities` are words such as `sample`, `train`, `lora`, `full`, `vision`, `custom_loss`."""

    @property
    def capabilities(self) -> frozenset[str]: ...

    def check_loss(self, loss: LossSpec) -> None:
        """Raises UsageError in one line for a loss that does not exist or does not have these settings. Opens no model."""
        ...

    def create(self, model: ModelConfig, *, seed: int = 0) -> Policy:
        """A policy over `model.base` (a hub id, a folder, or `tiny`); `seed` fixes the adapter's initial weights."""
        ...

    def sampler(self, model: ModelConfig, weights: Path | None = None) -> Sampler:
        """A sampler of the base model, or of it with an adapter folder, or of a full model folder given as `weights`."""
        ...

    def close(self) -> None: ...
