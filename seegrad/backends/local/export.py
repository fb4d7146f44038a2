"""A trained model as one Hugging Face folder: base and adapter merged, with tokenizer, template and image processor. Any engine can serve it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

import torch

from seegrad.backends.local.checkpoint import write_model
from seegrad.backends.local.lora import merge_adapter
from seegrad.config import ModelConfig
from seegrad.errors import BackendError, UsageError
from seegrad.families.folder import family_of, model_folder
from seegrad.models.base import load_model


def export_model(model: ModelConfig, weights: Path, out: Path, *, dtype: Literal["float32", "bfloat16"] = "float32") -> None:
    """Write the model of `weights` (an adapter over `model.base`, or a whole model folder) to `out`, whole or not at all.

    The merge is done in float32; `dtype` float32 keeps it, so that logprobs equal those of base and adapter; bfloat16 halves the size and rounds.
    Raises UsageError when `out` is not a new or empty folder, BackendError when the disk refuses.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} already exists and is not an empty folder; give another --out")
    whole = (weights / "config.json").is_file()
    source = weights if whole else model_folder(model.base)
    vlm = load_model(source, family_of(source), torch.float32, "cpu")
    if not whole:
        merge_adapter(vlm, weights)
    vlm.hf.to(getattr(torch, dtype))
    vlm.hf.config.dtype = dtype
    out = out.absolute()  # `.` has no name of its own
    aside = out.with_name(f".{out.name}.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_model(aside, vlm)
        if out.exists():
            out.rmdir()
        aside.rename(out)
    except OSError as error:
        raise BackendError(f"{out} cannot be written: {error.strerror or error}; free some space or give another --out") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
