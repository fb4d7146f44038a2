"""The local backend: one process, one device, `local:`."""

from __future__ import annotations

from pathlib import Path

import torch

from seegrad.backends.base import Policy, Sampler
from seegrad.backends.local.lora import load_adapter, merge_adapter
from seegrad.backends.local.policy import LocalPolicy
from seegrad.backends.local.sampler import LocalSampler
from seegrad.backends.local.step import try_loss
from seegrad.backends.local.vision_cache import VisionCache
from seegrad.config import ModelConfig
from seegrad.errors import BackendError, UsageError
from seegrad.families.folder import family_of, model_folder
from seegrad.models.base import VLM, load_model
from seegrad.types import LossSpec

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def open_backend(uri: str = "local:") -> LocalBackend:
    """The backend of a `local:` URI. Raises UsageError when something follows the colon."""
    if uri not in ("local", "local:"):
        raise UsageError(f"backend {uri!r}: the local backend takes no address; write model.backend=local: and choose the device with model.device")
    return LocalBackend()


class LocalBackend:
    """Opens models in this process. Each policy and each sampler of `sampler` loads its own copy of the weights."""

    @property
    def capabilities(self) -> frozenset[str]:
        cuda = {"cuda"} if torch.cuda.is_available() else set[str]()
        return frozenset({"sample", "train", "lora", "full", "vision", "custom_loss"} | cuda)

    def check_loss(self, loss: LossSpec) -> None:
        """As in `Backend.check_loss`: the loss is tried on two tokens."""
        try_loss(loss)

    def create(self, model: ModelConfig, *, seed: int = 0) -> Policy:
        """As in `Backend.create`. Raises BackendError in one line when the model cannot be loaded."""
        return LocalPolicy(open_model(model), model, seed)

    def sampler(self, model: ModelConfig, weights: Path | None = None) -> Sampler:
        """As in `Backend.sampler`: `weights` is a PEFT adapter folder (adapter_config.json) or a whole model folder (config.json)."""
        adapter = None
        if weights is not None and (weights / "adapter_config.json").is_file():
            adapter = weights
        elif weights is not None and (weights / "config.json").is_file():
            model = model.model_copy(update={"base": str(weights)})
        elif weights is not None:
            raise BackendError(f"{weights} holds neither adapter_config.json nor config.json; give an adapter folder or a model folder")
        vlm = open_model(model)
        if adapter is not None and vlm.dtype == torch.float32:
            merge_adapter(vlm, adapter)  # decodes faster, and float32 loses nothing by it
        elif adapter is not None:
            load_adapter(vlm, adapter)
        return LocalSampler(vlm, max_sample_batch=model.max_sample_batch, max_train_tokens=model.max_train_tokens)

    def close(self) -> None:
        """Nothing is held beyond the policies and samplers themselves."""


def open_model(model: ModelConfig) -> VLM:
    """The base model of a config on its device, with a picture cache. Raises BackendError in one line when it cannot be loaded."""
    device = choose_device(model.device)
    folder = model_folder(model.base)
    vlm = load_model(folder, family_of(folder), _DTYPES[model.dtype], device)
    vlm.image_store = VisionCache()
    return vlm


def choose_device(name: str) -> torch.device:
    """`auto` is CUDA when there is one, else the CPU. Raises BackendError for a device that is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise BackendError(f"model.device={name!r} cannot be used: {reason}; try model.device=cpu or model.device=auto") from None
    return device
