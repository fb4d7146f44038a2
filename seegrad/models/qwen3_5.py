"""Qwen3.5: most layers of the language model are gated delta nets, which keep a recurrent state in place of keys and values; no deepstack features.

Padding would move that state, so that a padded position on the left of a prompt is zeroed (its key, value and convolution input are then zero and the
state stays at zero), and what follows padding on the right of a continuation is never computed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, Qwen3_5ForConditionalGeneration
from transformers.cache_utils import DynamicLayer

from seegrad.families.base import Family
from seegrad.models.base import VLM
from seegrad.models.qwen import QwenVLM, load_parts
from seegrad.models.recurrent import RecurrentLayer


def load(folder: Path, family: Family, dtype: torch.dtype, device: torch.device) -> VLM:
    """The model of a folder whose config says `qwen3_5`."""
    return Qwen35(*load_parts(folder, Qwen3_5ForConditionalGeneration, dtype, device), folder, family)


class Qwen35(QwenVLM):
    """A `Qwen3_5ForConditionalGeneration`."""

    def _new_cache(self) -> DynamicCache:
        cache = DynamicCache()
        kinds = self.hf.config.text_config.layer_types
        cache.layers = [RecurrentLayer() if kind == "linear_attention" else DynamicLayer() for kind in kinds]
        return cache

    def _mask(self, mask_BL: Tensor | None, length: int) -> Any:
        padding_BT = None
        if mask_BL is not None and mask_BL.shape[1] == length:
            padding_BT = None if bool(mask_BL.all()) else mask_BL
        elif mask_BL is not None:
            past_BL = mask_BL[:, :-length]
            assert not bool((past_BL[:, :-1] & ~past_BL[:, 1:]).any()), "a continuation with padding on the right cannot be continued"
        return {"full_attention": super()._mask(mask_BL, length), "linear_attention": padding_BT}

    def _shared_mask(self) -> Any:
        return {"full_attention": super()._shared_mask(), "linear_attention": None}
