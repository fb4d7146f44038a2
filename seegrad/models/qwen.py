"""What the vision-language models of Qwen share: three-row rotary positions, pictures to patches to features, and the calls into transformers.

A family of these is a `load` and a subclass of `QwenVLM` that says what is different about its caches, masks or features.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from transformers import AutoConfig, AutoImageProcessor, DynamicCache
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils.logging import disable_progress_bar

from seegrad.errors import BackendError, DataError
from seegrad.families.base import Family
from seegrad.images import content_hash
from seegrad.models.base import VLM, Prefix, causal_mask, check_count
from seegrad.models.shared_attention import IMPLEMENTATION, SharedCache
from seegrad.types import ImageChunk, Ints, ModelInput, TextChunk

_PATCHES_PER_CALL = 1 << 14  # patches that the vision tower sees at once


def load_parts(folder: Path, model_class: Any, dtype: torch.dtype, device: torch.device) -> tuple[nn.Module, Any]:
    """(transformers model, image processor) of a folder whose config is that of `model_class`; BackendError for another."""
    config = AutoConfig.from_pretrained(str(folder))
    expected = model_class.config_class.model_type
    if config.model_type != expected:
        raise BackendError(f"{folder}: config.json says model_type {config.model_type!r}, expected {expected!r}")
    disable_progress_bar()  # a few files load in a moment; the run has its own progress display
    hf: nn.Module = model_class.from_pretrained(
        str(folder), dtype=dtype, attn_implementation={"text_config": IMPLEMENTATION, "vision_config": "sdpa"}
    )
    return hf.to(device), AutoImageProcessor.from_pretrained(str(folder), backend="pil")


class QwenVLM(VLM):
    """A `Qwen…ForConditionalGeneration`: `hf.model` holds `visual` and `language_model`."""

    def __init__(self, hf: nn.Module, processor: Any, folder: Path, family: Family) -> None:
        super().__init__(hf, folder, family)
        self.processor = processor
        self._no_mask = torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=self.device)
        self.merge_size = int(self.hf.config.vision_config.spatial_merge_size)

    @property
    def vocabulary_size(self) -> int:
        return int(self.hf.config.text_config.vocab_size)

    @property
    def context_size(self) -> int:
        return int(self.hf.config.text_config.max_position_embeddings)

    @property
    def vision_prefix(self) -> str:
        return "model.visual."

    @property
    def language_prefix(self) -> str:
        return "model.language_model."

    def prefill(self, inputs_P: Sequence[ModelInput]) -> Prefix:
        ids_PT, mask_PT, lengths_P = self._padded(inputs_P)
        chunks = [chunk for item in inputs_P for chunk in item.images]
        keys = [content_hash(chunk.data) for chunk in chunks]
        pixels = {key: self._pixels(key, chunk) for key, chunk in zip(keys, chunks, strict=True)}
        grids = {key: (int(grid[1]) // self.merge_size, int(grid[2]) // self.merge_size) for key, (_, grid) in pixels.items()}
        for key, chunk in zip(keys, chunks, strict=True):
            rows, columns = grids[key]
            check_count(chunk, rows * columns, f"a grid of {columns} by {rows}")
        features = self._features(pixels)
        positions_3PT, next_position_P = self._positions(inputs_P, keys, grids, ids_PT.shape[1])
        cache = self._new_cache()
        outputs = self.hf.model(
            input_ids=ids_PT,
            position_ids=positions_3PT,
            attention_mask=self._mask(mask_PT, ids_PT.shape[1]),
            cache=cache,
            use_cache=True,
            mm_encoder_outputs={"image": self._encoded([features[key] for key in keys])} if keys else None,
        )
        return Prefix(outputs.last_hidden_state, mask_PT, cache, lengths_P, next_position_P)

    def extend(self, cache: DynamicCache, tokens_BT: Tensor, mask_BL: Tensor | None, start_B: Tensor) -> Tensor:
        length = tokens_BT.shape[1]
        if mask_BL is None and length > 1:
            mask_BL = torch.ones(len(tokens_BT), cache.get_seq_length() + length, dtype=torch.bool, device=self.device)
        positions_BT = start_B[:, None] + torch.arange(length, device=self.device)
        language = self.hf.model.language_model
        outputs = language(
            inputs_embeds=language.embed_tokens(tokens_BT),
            position_ids=positions_BT[None].expand(3, -1, -1),
            attention_mask=self._mask(mask_BL, length),
            cache=cache,
            use_cache=True,
        )
        hidden_BTH: Tensor = outputs.last_hidden_state
        return hidden_BTH

    def extend_shared(self, cache: SharedCache, tokens_B: Tensor, position_B: Tensor) -> Tensor:
        language = self.hf.model.language_model
        outputs = language(
            inputs_embeds=language.embed_tokens(tokens_B)[:, None],
            position_ids=position_B[None, :, None].expand(3, -1, -1),
            attention_mask=self._shared_mask(),
            cache=cache.own,
            use_cache=True,
            shared=cache,
        )
        hidden_BH: Tensor = outputs.last_hidden_state[:, 0]
        return hidden_BH

    # What a family may do in another way.

    def _new_cache(self) -> DynamicCache:
        """An empty cache for the prompts."""
        return DynamicCache(config=self.hf.config)

    def _mask(self, mask_BL: Tensor | None, length: int) -> Any:
        """What the language model takes as its mask for the last `length` of L positions (None: all are real)."""
        return None if mask_BL is None else causal_mask(mask_BL, length, self._attention, self.dtype)

    def _shared_mask(self) -> Any:
        """The same for one more position over shared prompts, where the attention keeps its own mask; this keeps transformers from making one."""
        return self._no_mask

    def _encoded(self, features: Sequence[tuple[Tensor, ...]]) -> Any:
        """What the model takes as the tower's output for pictures in reading order, from what `_features` says of each."""
        pooled: Any = tuple(embeddings for (embeddings,) in features)
        return BaseModelOutputWithPooling(pooler_output=pooled)

    @property
    def _attention(self) -> str:
        return str(self.hf.config.text_config._attn_implementation)

    def _positions(self, inputs_P: Sequence[ModelInput], keys: Sequence[str], grids: dict[str, tuple[int, int]], width: int) -> tuple[Tensor, Tensor]:
        """positions_3PT (0 at padding) and the next text position of each prompt. `keys` name the pictures in reading order."""
        remaining = iter(keys)
        positions_3PT = np.zeros((3, len(inputs_P), width), np.int64)
        next_position_P = np.zeros(len(inputs_P), np.int64)
        for row, item in enumerate(inputs_P):
            runs, position = [], 0
            for chunk in item.chunks:
                if isinstance(chunk, TextChunk):
                    run_3T, position = text_positions(len(chunk), position)
                else:
                    run_3T, position = image_positions(*grids[next(remaining)], position)
                runs.append(run_3T)
            positions_3PT[:, row, width - len(item) :] = np.concatenate(runs, axis=1)
            next_position_P[row] = position
        return torch.from_numpy(positions_3PT).to(self.device), torch.from_numpy(next_position_P).to(self.device)

    def _pixels(self, key: str, chunk: ImageChunk) -> tuple[Tensor, Tensor]:
        """(patches, grid) of one picture, on the CPU: flattened patches in float32 and (time, height, width) in patches."""
        kept = self.image_store.get("pixels", key) if self.image_store is not None else None
        if kept is not None:
            return kept[0], kept[1]
        try:
            picture = Image.open(io.BytesIO(chunk.data)).convert("RGB")
        except OSError as error:
            raise DataError(f"an image chunk ({len(chunk.data)} bytes) is not a picture: {error}; give PNG or JPEG bytes") from None
        batch = self.processor(images=[picture], return_tensors="np")
        with torch.inference_mode(False):
            made = torch.from_numpy(np.ascontiguousarray(batch["pixel_values"])), torch.from_numpy(np.ascontiguousarray(batch["image_grid_thw"][0]))
        if self.image_store is not None:
            self.image_store.put("pixels", key, made)
        return made

    def _features(self, pixels: dict[str, tuple[Tensor, Tensor]]) -> dict[str, tuple[Tensor, ...]]:
        """Per picture (embeddings, deepstack level 0, 1, … if the tower has them), each [tokens, H].

        A frozen tower runs without gradients, and once per picture.
        """
        if not self.vision_frozen:
            return self._encode(pixels)
        found = {key: kept for key in pixels if self.image_store is not None and (kept := self.image_store.get("features", key)) is not None}
        missing = {key: pixels[key] for key in pixels if key not in found}
        with torch.inference_mode(False), torch.no_grad():  # plain tensors, so that a later training step may use what a sampler kept
            made = self._encode(missing)
        if self.image_store is not None:
            for key, tensors in made.items():
                self.image_store.put("features", key, tensors)
        return {**found, **made}

    def _encode(self, pixels: dict[str, tuple[Tensor, Tensor]]) -> dict[str, tuple[Tensor, ...]]:
        features: dict[str, tuple[Tensor, ...]] = {}
        for keys in _batches(pixels):
            patches = torch.cat([pixels[key][0] for key in keys]).to(self.device)
            grids = torch.stack([pixels[key][1] for key in keys]).to(self.device)
            outputs = self.hf.model.get_image_features(patches, grids)
            for index, key in enumerate(keys):
                # Copies, so that one kept picture does not hold the memory of its whole batch.
                parts = (outputs.pooler_output[index], *(level[index] for level in getattr(outputs, "deepstack_features", None) or ()))
                features[key] = tuple(part.clone() for part in parts) if self.vision_frozen else parts
        return features


def text_positions(length: int, start: int) -> tuple[Ints, int]:
    """Rotary rows [3, length] of a run of text from `start`, and the position after it."""
    return np.broadcast_to(np.arange(start, start + length), (3, length)), start + length


def image_positions(rows: int, columns: int, start: int) -> tuple[Ints, int]:
    """Rotary rows [3, rows * columns] of a picture (time, height, width; Qwen2-VL, section 2.1), and the position after it.

    >>> image_positions(1, 2, 5)[0].tolist()
    [[5, 5], [5, 5], [5, 6]]
    """
    height, width = np.divmod(np.arange(rows * columns), columns)
    return np.stack([np.zeros_like(height), height, width]) + start, start + max(rows, columns)


def _batches(pixels: dict[str, tuple[Tensor, Tensor]]) -> list[list[str]]:
    """Keys in runs of at most `_PATCHES_PER_CALL` patches (a larger picture goes alone)."""
    batches: list[list[str]] = []
    room = 0
    for key, (patches, _) in pixels.items():
        if len(patches) > room or not batches:
            batches.append([])
            room = _PATCHES_PER_CALL
        batches[-1].append(key)
        room -= len(patches)
    return batches
