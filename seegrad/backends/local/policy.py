"""Weights in training, in this process.

    forward_backward ─▶ gradients ─ optim_step ─▶ version + 1
                                        │ before the weights move
    sampler() ─▶ LocalSampler(view) ◀───┴── a view that somebody still holds keeps a copy of the old tensors

One lock guards the model: whoever computes with it (a step, or a sampler for the length of a call) holds it, and a sampler of older weights puts its
tensors into the model while it does. Policy and samplers may therefore be called from several threads; calls take turns.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from seegrad.backends.local.checkpoint import TENSORS, fingerprint, read_state, write_adapter, write_model, write_state
from seegrad.backends.local.lora import attach_adapter
from seegrad.backends.local.memory import keep_freed_memory
from seegrad.backends.local.sampler import LocalSampler
from seegrad.backends.local.step import run_step
from seegrad.config import ModelConfig
from seegrad.errors import RunError, UsageError
from seegrad.models.base import VLM, load_model
from seegrad.types import AdamParams, Datum, LossSpec, StepOutput

_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


class LocalPolicy:
    """The `Policy` of the local backend, over a freshly loaded `vlm` that it takes over.

    `model.train` "lora" trains an adapter whose random half follows `seed`; "full" trains the language model with its embeddings. The vision tower
    with its merger is frozen unless `model.train_vision`, and then has its own learning rate. Weights below 32 bits are stepped in a float32 copy.
    """

    def __init__(self, vlm: VLM, model: ModelConfig, seed: int = 0) -> None:
        if vlm.device.type == "cpu":
            keep_freed_memory()
        self._vlm, self._model = vlm, model
        self._lock = threading.RLock()
        self._settings = _settings(model, fingerprint(vlm))
        self._adapter: PeftModel | None = attach_adapter(vlm, model, seed) if model.train == "lora" else None
        if self._adapter is None:
            for name, parameter in vlm.hf.named_parameters():
                parameter.requires_grad_(model.train_vision or not name.startswith(vlm.vision_prefix))
        self._trained: dict[str, nn.Parameter] = {name: p for name, p in vlm.hf.named_parameters() if p.requires_grad}
        self._vision = {name for name in self._trained if name.startswith(vlm.vision_prefix)}
        if model.train_vision and not self._vision:
            raise UsageError(
                f"model.train_vision=true but model.lora_targets ({', '.join(model.lora_targets)}) names no layer of the vision tower; name one"
            )
        vlm.vision_frozen = not self._vision
        # A bfloat16 weight has too few digits to take up a small step.
        self._masters = {name: nn.Parameter(p.detach().float()) for name, p in self._trained.items() if p.dtype in (torch.bfloat16, torch.float16)}
        self._optimizer: torch.optim.AdamW | None = None
        self._version = 0
        self._view: weakref.ref[_Weights] | None = None
        self._initial: _Weights | None = None

    @property
    def version(self) -> int:
        return self._version

    def forward_backward(self, datums: Sequence[Datum], loss: LossSpec) -> StepOutput:
        """As in `Policy.forward_backward`; the metrics are those of `run_step`."""
        with self._lock:
            return run_step(self._vlm, datums, loss, max_tokens=self._model.max_train_tokens, backward=True)

    def forward(self, datums: Sequence[Datum], loss: LossSpec) -> StepOutput:
        """As in `Policy.forward`."""
        with self._lock:
            return run_step(self._vlm, datums, loss, max_tokens=self._model.max_train_tokens, backward=False)

    def optim_step(self, adam: AdamParams) -> Mapping[str, float]:
        """As in `Policy.optim_step`: AdamW (Loshchilov & Hutter 2019) on all trained tensors, after clipping the norm over all of them.

        Norms are those before clipping. Without any gradient nothing moves, the version stays, and `skipped` is 1 too.
        """
        with self._lock:
            language = [p.grad for name, p in self._trained.items() if p.grad is not None and name not in self._vision]
            vision = [p.grad for name, p in self._trained.items() if p.grad is not None and name in self._vision]
            total = get_total_norm([grad.float() for grad in language + vision])
            metrics = {"grad_norm": float(total), "learning_rate": adam.learning_rate, "skipped": 0.0}
            if self._vision:
                metrics["vision_grad_norm"] = float(get_total_norm([grad.float() for grad in vision]))
            if not language + vision or not bool(torch.isfinite(total)):
                metrics["skipped"] = 1.0
            else:
                self._before_change()
                self._step(adam, total)
                self._version += 1
            self._clear_gradients()
            return metrics

    def sampler(self) -> LocalSampler:
        """The current weights as a sampler; they are copied only when they are about to move while it is still held."""
        with self._lock:
            view = self._view() if self._view is not None else None
            if view is None:
                view = _Weights(self._trained, self._lock)
                self._view = weakref.ref(view)
            return self._sampler(self._version, view)

    def reference(self) -> LocalSampler:
        """The base weights: the adapter off, or for full training a copy of the weights before the first step (made at the first call)."""
        with self._lock:
            if self._adapter is not None:
                return self._sampler(0, _AdapterOff(self._adapter, self._lock))
            if self._initial is None:
                self._initial = _Weights(self._trained, self._lock, self._base_tensors())
            return self._sampler(0, self._initial)

    def save_weights(self, folder: Path) -> None:
        """A PEFT adapter folder, or for full training a Hugging Face model folder with its tokenizer and processor files."""
        with self._lock:
            if self._adapter is not None:
                write_adapter(folder, self._adapter)
            else:
                write_model(folder, self._vlm)

    def save_state(self, folder: Path) -> None:
        """Trained tensors, optimizer moments, gradients not yet applied, and the version. Layout: `checkpoint.py`."""
        with self._lock:
            tensors = {f"weights/{name}": p.detach() for name, p in self._trained.items()}
            tensors |= {f"master/{name}": p.detach() for name, p in self._masters.items()}
            tensors |= {f"grad/{name}": p.grad for name, p in self._trained.items() if p.grad is not None}
            for name, p in self._stepped().items():
                kept = self._optimizer.state.get(p, {}) if self._optimizer is not None else {}
                tensors |= {f"adam/{moment}/{name}": kept[moment] for moment in _MOMENTS if moment in kept}
            write_state(folder, tensors, self._version, self._settings)

    def load_state(self, folder: Path) -> None:
        """Everything `save_state` wrote; nothing changes when it raises. Raises RunError naming the damaged file or the setting that differs."""
        tensors, version = read_state(folder, self._settings)
        with self._lock:
            self._check(tensors, folder / TENSORS)
            self._before_change()
            with torch.no_grad():
                for name, p in self._trained.items():
                    p.copy_(tensors[f"weights/{name}"])
                    p.grad = tensors[f"grad/{name}"].to(p) if f"grad/{name}" in tensors else None
                for name, p in self._masters.items():
                    p.copy_(tensors[f"master/{name}"])
            self._optimizer = None
            if any(name.startswith("adam/") for name in tensors):
                self._optimizer = self._new_optimizer()
                for name, p in self._stepped().items():
                    if f"adam/step/{name}" in tensors:
                        exp_avg, exp_avg_sq, step = (tensors[f"adam/{moment}/{name}"] for moment in _MOMENTS)
                        self._optimizer.state[p] = {"exp_avg": exp_avg.to(p), "exp_avg_sq": exp_avg_sq.to(p), "step": step}
            self._version = version

    def _sampler(self, version: int, view: _Weights | _AdapterOff) -> LocalSampler:
        batch, tokens = self._model.max_sample_batch, self._model.max_train_tokens
        return LocalSampler(self._vlm, version, view, max_sample_batch=batch, max_train_tokens=tokens)

    def _stepped(self) -> dict[str, nn.Parameter]:
        """What the optimizer moves: the trained tensors, or their float32 copies."""
        return {**self._trained, **self._masters}

    def _step(self, adam: AdamParams, total_norm: Tensor) -> None:
        stepped = self._stepped()
        for name, master in self._masters.items():
            grad = self._trained[name].grad
            master.grad = None if grad is None else grad.float()
        if adam.grad_clip_norm:
            clip_grads_with_norm_(list(stepped.values()), adam.grad_clip_norm, total_norm)
        self._optimizer = self._optimizer or self._new_optimizer()
        for group in self._optimizer.param_groups:
            own = adam.vision_learning_rate if group["vision"] else None
            group["lr"] = adam.learning_rate if own is None else own
            group["betas"], group["eps"], group["weight_decay"] = (adam.beta1, adam.beta2), adam.eps, adam.weight_decay
        self._optimizer.step()
        with torch.no_grad():
            for name, master in self._masters.items():
                self._trained[name].copy_(master)

    def _new_optimizer(self) -> torch.optim.AdamW:
        stepped = self._stepped()
        groups: list[dict[str, Any]] = [{"params": [], "vision": False}, {"params": [], "vision": True}]
        for name, p in stepped.items():
            groups[name in self._vision]["params"].append(p)
        return torch.optim.AdamW([group for group in groups if group["params"]])

    def _clear_gradients(self) -> None:
        for p in (*self._trained.values(), *self._masters.values()):
            p.grad = None

    def _before_change(self) -> None:
        """Whoever still holds a sampler of the current weights gets a copy of them."""
        view = self._view() if self._view is not None else None
        if view is not None:
            view.keep()
        self._view = None

    def _base_tensors(self) -> dict[str, Tensor]:
        if self._version == 0:
            return {name: p.detach().clone() for name, p in self._trained.items()}
        base = dict(load_model(self._vlm.folder, self._vlm.family, self._vlm.dtype, self._vlm.device).hf.named_parameters())
        return {name: base[name].detach() for name in self._trained}

    def _check(self, tensors: Mapping[str, Tensor], path: Path) -> None:
        needed = {f"weights/{name}": p for name, p in self._trained.items()} | {f"master/{name}": p for name, p in self._masters.items()}
        for key, parameter in needed.items():
            if key not in tensors:
                raise RunError(f"{path} has no tensor {key!r}, which these settings train; continue with the settings it was written with")
            if tensors[key].shape != parameter.shape:
                given, expected = list(tensors[key].shape), list(parameter.shape)
                raise RunError(f"{path}: tensor {key!r} has shape {given}, expected {expected}; continue with the settings it was written with")


class _Weights:
    """The trained tensors of one version: those in the model until it moves on, then a copy of its own."""

    def __init__(self, trained: Mapping[str, nn.Parameter], lock: threading.RLock, kept: dict[str, Tensor] | None = None) -> None:
        self._trained, self._lock, self._kept = trained, lock, kept

    def keep(self) -> None:
        self._kept = {name: p.detach().clone() for name, p in self._trained.items()}

    @contextmanager
    def active(self) -> Iterator[None]:
        with self._lock:
            self._swap()
            try:
                yield
            finally:
                self._swap()

    def _swap(self) -> None:
        for name, tensor in (self._kept or {}).items():
            parameter = self._trained[name]
            self._kept[name], parameter.data = parameter.data, tensor  # type: ignore[index]  # storage changes hands, nothing is copied


class _AdapterOff:
    """The base weights under an adapter."""

    def __init__(self, adapter: PeftModel, lock: threading.RLock) -> None:
        self._adapter, self._lock = adapter, lock

    @contextmanager
    def active(self) -> Iterator[None]:
        with self._lock, self._adapter.disable_adapter():
            yield


def _settings(model: ModelConfig, base: str) -> dict[str, Any]:
    """What must be equal for a state to be continued, in JSON's types."""
    settings: dict[str, Any] = {"base": base, "dtype": model.dtype, "train": model.train, "train_vision": model.train_vision}
    if model.train == "lora":
        alpha = float(model.lora_rank if model.lora_alpha is None else model.lora_alpha)
        settings |= {"lora_rank": model.lora_rank, "lora_alpha": alpha, "lora_targets": list(model.lora_targets)}
    return settings
