"""Qwen3-VL: the tower's deepstack features go into the first layers of the language model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Qwen3VLForConditionalGeneration
from transformers.models.qwen3_vl.modeling_qwen3_vl import BaseModelOutputWithDeepstackFeatures

from seegrad.families.base import Family
from seegrad.models.base import VLM
from seegrad.models.qwen import QwenVLM, load_parts


def load(folder: Path, family: Family, dtype: torch.dtype, device: torch.device) -> VLM:
    """The model of a folder whose config says `qwen3_vl`."""
    return Qwen3VL(*load_parts(folder, Qwen3VLForConditionalGeneration, dtype, device), folder, family)


class Qwen3VL(QwenVLM):
    """A `Qwen3VLForConditionalGeneration`."""

    def _encoded(self, features: Sequence[tuple[Tensor, ...]]) -> Any:
        levels: list[Any] = [tuple(item[level] for item in features) for level in range(len(features[0]))]
        return BaseModelOutputWithDeepstackFeatures(pooler_output=levels[0], deepstack_features=levels[1:])
