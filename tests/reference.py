"""The slow, obvious way: plain calls into transformers, one whole sequence at a time, with nothing of seegrad's model code."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import AutoImageProcessor, Qwen3VLForConditionalGeneration

from seegrad.types import ModelInput
from tests.tinymodel import IMAGE_PAD

BANNED = (259, 260, 261, 262)


@cache
def plain_model(folder: Path) -> Any:
    return Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def plain_inputs(folder: Path, prompt: ModelInput, tokens: tuple[int, ...] = ()) -> dict[str, torch.Tensor]:
    """Keyword arguments of the transformers model for one sequence."""
    ids = torch.tensor([prompt.token_ids(IMAGE_PAD) + list(tokens)])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "mm_token_type_ids": (ids == IMAGE_PAD).int()}
    if prompt.images:
        processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
        inputs |= processor(images=[Image.open(io.BytesIO(chunk.data)) for chunk in prompt.images], return_tensors="pt")
    return inputs


def plain_logprobs(
    model: Any, folder: Path, prompt: ModelInput, tokens: tuple[int, ...], *, temperature: float = 1.0, banned: tuple[int, ...] = BANNED
) -> np.ndarray:
    """Logprob of each of `tokens` after the prompt: log-softmax of logits / temperature without the banned ids."""
    with torch.no_grad():
        logits = model(**plain_inputs(folder, prompt, tokens[:-1])).logits[0, len(prompt) - 1 :].double() / temperature
    if banned:
        logits[:, list(banned)] = -torch.inf
    return logits.log_softmax(-1)[torch.arange(len(tokens)), torch.tensor(tokens)].numpy()
