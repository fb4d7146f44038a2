"""Qwen2.5-VL: a tower with windowed attention and a plain decoder. Positions are absolute time for videos only; for a picture time stands still."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import Qwen2_5_VLForConditionalGeneration

from seegrad.errors import BackendError
from seegrad.families.base import Family
from seegrad.models.base import VLM
from seegrad.models.qwen import QwenVLM, load_parts


def load(folder: Path, family: Family, dtype: torch.dtype, device: torch.device) -> VLM:
    """The model of a folder whose config says `qwen2_5_vl`. Raises BackendError when its text layers attend to a sliding window."""
    hf, processor = load_parts(folder, Qwen2_5_VLForConditionalGeneration, dtype, device)
    model = Qwen25VL(hf, processor, folder, family)
    if "sliding_attention" in model.hf.config.text_config.layer_types:
        raise BackendError(f"{folder}: its text layers use sliding-window attention, which is not supported; set use_sliding_window to false")
    return model


class Qwen25VL(QwenVLM):
    """A `Qwen2_5_VLForConditionalGeneration`."""
