"""Low-rank adapters (PEFT) inside a loaded model: which layers, attaching, loading, merging."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors import SafetensorError
from torch import nn

from seegrad.config import ModelConfig
from seegrad.errors import RunError, UsageError, nearest
from seegrad.models.base import VLM

WORDS = ("attention", "mlp", "all-linear")  # of `lora_targets`, beside names of modules
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")


def attach_adapter(vlm: VLM, model: ModelConfig, seed: int) -> PeftModel:
    """Put a fresh adapter into `vlm.hf`, in place; it changes nothing until its first step. `seed` fixes its random half.

    Only the adapter's tensors require gradients. Raises UsageError for a target that the model does not have.
    """
    config = LoraConfig(
        r=model.lora_rank,
        lora_alpha=model.lora_rank if model.lora_alpha is None else model.lora_alpha,  # type: ignore[arg-type]  # PEFT divides it; a fraction is fine
        lora_dropout=0.0,
        bias="none",
        target_modules=adapter_targets(vlm, model),
    )
    with torch.random.fork_rng(devices=[vlm.device] if vlm.device.type == "cuda" else []):
        torch.manual_seed(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # PEFT asks transformers by an older name
            peft_model = get_peft_model(vlm.hf, config)
    if not isinstance(peft_model, PeftModel):
        raise AssertionError(f"expected a PeftModel, got {type(peft_model).__name__}")
    vlm.hf.eval()
    return peft_model


def adapter_targets(vlm: VLM, model: ModelConfig) -> list[str]:
    """Names for PEFT: every linear layer of the language model (and of the vision tower when it trains), or those in `lora_targets`.

    A target is the end of a module's name, or a word for many: `attention` and `mlp` are the linear layers in modules called so (`self_attn`, `attn`,
    `linear_attn`; `mlp`), `all-linear` is what is adapted without targets. The output head and the embeddings are adapted only when they are named.
    Layer kinds are named by their last part where that is unambiguous.
    """
    layers = {name: layer for name, layer in vlm.hf.named_modules() if isinstance(layer, nn.Linear | nn.Embedding)}
    allowed = [name for name in layers if model.train_vision or not name.startswith(vlm.vision_prefix)]
    prefixes = (vlm.language_prefix, vlm.vision_prefix) if model.train_vision else (vlm.language_prefix,)
    linear = [name for name in allowed if name.startswith(prefixes) and isinstance(layers[name], nn.Linear)]
    chosen: dict[str, None] = {}
    for target in model.lora_targets or ("all-linear",):
        if target in WORDS:
            chosen.update(dict.fromkeys(name for name in linear if target in ("all-linear", _part(name))))
            continue
        found = _ending_in(target, allowed)
        if not found and _ending_in(target, list(layers)):
            raise UsageError(f"model.lora_targets: {target!r} is in the vision tower, which does not train; set model.train_vision=true")
        if not found:
            raise UsageError(
                f"model.lora_targets: the model has no layer {target!r}{nearest(target, {*WORDS, *(name.rsplit('.', 1)[-1] for name in allowed)})}"
            )
        chosen.update(dict.fromkeys(found))
    return _shortened(list(chosen), vlm.hf)


def load_adapter(vlm: VLM, folder: Path) -> PeftModel:
    """Put the adapter of a PEFT folder into `vlm.hf`, in place, frozen. Raises RunError naming a file that is missing or damaged."""
    for name in ADAPTER_FILES:
        if not (folder / name).is_file():
            raise RunError(f"{folder} is not an adapter folder: no {name}; give a folder written by save_weights or by PEFT")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            peft_model = PeftModel.from_pretrained(vlm.hf, str(folder), is_trainable=False)
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise RunError(f"{folder / ADAPTER_FILES[1]}: cannot be loaded as an adapter of this model: {' '.join(str(error).split())[:300]}") from error
    vlm.hf.eval()
    return peft_model


def merge_adapter(vlm: VLM, folder: Path) -> None:
    """Add the adapter of a PEFT folder into the weights of `vlm.hf`, which is then a plain model again."""
    merged: Any = load_adapter(vlm, folder).merge_and_unload()
    vlm.hf = merged


def _part(name: str) -> str:
    """`attention`, `mlp`, or nothing: what a layer belongs to by the names of the modules around it.

    >>> _part("model.language_model.layers.0.self_attn.q_proj"), _part("model.visual.merger.linear_fc1")
    ('attention', '')
    """
    around = name.split(".")[:-1]
    return "attention" if any("attn" in word for word in around) else "mlp" if "mlp" in around else ""


def _ending_in(target: str, names: Sequence[str]) -> list[str]:
    return [name for name in names if name == target or name.endswith(f".{target}")]


def _shortened(names: Sequence[str], hf: nn.Module) -> list[str]:
    """Last parts instead of full names for the kinds that are chosen wholly, because every reader of an adapter folder understands those."""
    chosen, every = set(names), [name for name, _ in hf.named_modules()]
    short = {name.rsplit(".", 1)[-1] for name in names}
    whole = {leaf for leaf in short if all(name in chosen for name in _ending_in(leaf, every))}
    return sorted(whole) + [name for name in names if name.rsplit(".", 1)[-1] not in whole]
