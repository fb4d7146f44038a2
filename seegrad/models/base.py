"""A vision-language model as the backends see it: a prompt goes in as chunks, hidden states and a cache come out.

    ModelInput × P ─ prefill ─▶ Prefix(hidden, cache) ─ repeat / select ─▶ cache ─ extend(tokens) ─▶ hidden
                                                                                                      │
                                                           logits (sampler) · log_probs (trainer) ◀───┘

Everything is differentiable when gradients are enabled, the cache included, so that completions may be trained on top of a shared prefix.
Shapes: P prompts, B rows, T positions of this call, L positions so far (cache and this call), H hidden size, V vocabulary, N scored positions.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache, GenerationConfig
from transformers.cache_utils import DynamicLayer

from seegrad.errors import BackendError, SamplerError, nearest
from seegrad.families.base import Family
from seegrad.families.folder import marker_ids
from seegrad.models.recurrent import RecurrentLayer
from seegrad.models.shared_attention import SharedCache, layer_states
from seegrad.types import ImageChunk, ModelInput, TextChunk

_LOGIT_CELLS = 1 << 25  # logits held at once by log_probs: 128 MiB of float32


class ImageStore(Protocol):
    """Remembers tensors by (kind, image content hash); `seegrad.backends.local.vision_cache` has the bounded one."""

    def get(self, kind: str, key: str) -> tuple[Tensor, ...] | None: ...

    def put(self, kind: str, key: str, tensors: tuple[Tensor, ...]) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """Prompts after one forward pass, left-padded to the same length T.

    `hidden_PTH` are the states after the final norm (rubbish at padding), `mask_PT` is True at real positions, `cache` holds keys and values of all T
    positions and the states of linear-attention layers, `lengths_P` counts real positions and `next_position_P` is the rotary position of the next
    text token (an image advances it by less than its token count).
    """

    hidden_PTH: Tensor
    mask_PT: Tensor
    cache: DynamicCache
    lengths_P: Tensor
    next_position_P: Tensor

    @property
    def last_PH(self) -> Tensor:
        """The state that predicts the first token after each prompt."""
        return self.hidden_PTH[:, -1]

    def select(self, rows: Tensor) -> Prefix:
        """The prompts `rows` (indices, repeats allowed), in that order."""
        return Prefix(
            self.hidden_PTH.index_select(0, rows),
            self.mask_PT.index_select(0, rows),
            select_rows(self.cache, rows),
            self.lengths_P.index_select(0, rows),
            self.next_position_P.index_select(0, rows),
        )

    def repeat(self, counts: Sequence[int]) -> Prefix:
        """Prompt p `counts[p]` times in a row."""
        return self.select(repeat_rows(counts, self.mask_PT.device))


def repeat_rows(counts: Sequence[int], device: torch.device) -> Tensor:
    """Indices that repeat row p `counts[p]` times in a row.

    >>> repeat_rows([2, 1], torch.device("cpu")).tolist()
    [0, 0, 1]
    """
    return torch.repeat_interleave(torch.arange(len(counts), device=device), torch.tensor(list(counts), device=device))


def select_rows(cache: DynamicCache, rows: Tensor) -> DynamicCache:
    """A new cache of the rows `rows`; gradients flow to the old one."""
    if not any(isinstance(layer, RecurrentLayer) for layer in cache.layers):
        return DynamicCache([(keys.index_select(0, rows), values.index_select(0, rows)) for keys, values in layer_states(cache)])
    chosen = DynamicCache()
    chosen.layers = [layer.select(rows) if isinstance(layer, RecurrentLayer) else _chosen_layer(layer, rows) for layer in cache.layers]
    return chosen


def _chosen_layer(layer: Any, rows: Tensor) -> DynamicLayer:
    chosen = DynamicLayer()
    chosen.update(layer.keys.index_select(0, rows), layer.values.index_select(0, rows))
    return chosen


class VLM(ABC):
    """One loaded model. `hf` is the transformers model (an adapter may be injected into it in place).

    `banned_ids` are the marker ids that are never sampled, `eos_ids` those that always end a completion.
    `vision_frozen` says that the vision tower's weights never change, so that features may be kept in `image_store` (None: computed each time).
    """

    def __init__(self, hf: nn.Module, folder: Path, family: Family) -> None:
        parameter = next(hf.parameters())
        self.hf: Any = hf
        self.folder = folder
        self.family = family
        self.device: torch.device = parameter.device
        self.dtype: torch.dtype = parameter.dtype
        self.tokenizer: Tokenizer = _tokenizer(folder)
        self.placeholder_id, banned = marker_ids(folder, family)
        self.banned_ids = torch.tensor(sorted(set(banned)), dtype=torch.long, device=self.device)
        self.eos_ids = _eos_ids(folder, hf)
        self.vision_frozen = True
        self.image_store: ImageStore | None = None

    # What a family provides.

    @property
    @abstractmethod
    def vocabulary_size(self) -> int:
        """Width of the logits."""

    @property
    @abstractmethod
    def context_size(self) -> int:
        """Most positions that the model was made for."""

    @property
    @abstractmethod
    def vision_prefix(self) -> str:
        """Every parameter of the vision tower (its merger included) has a name that starts with this."""

    @property
    @abstractmethod
    def language_prefix(self) -> str:
        """Every module of the language model has a name that starts with this."""

    @abstractmethod
    def prefill(self, inputs_P: Sequence[ModelInput]) -> Prefix:
        """One forward pass over whole prompts. Each picture is encoded once, however many prompts show it.

        Raises SamplerError, naming both numbers, when a chunk's `num_tokens` is not what the image processor makes of that picture.
        """

    @abstractmethod
    def extend(self, cache: DynamicCache, tokens_BT: Tensor, mask_BL: Tensor | None, start_B: Tensor) -> Tensor:
        """Text tokens after what `cache` holds; returns hidden_BTH and appends to the cache.

        `mask_BL` is True at real positions, those of this call included (right padding is allowed; None: all are real); `start_B` is the rotary
        position of each row's first new token.
        """

    @abstractmethod
    def extend_shared(self, cache: SharedCache, tokens_B: Tensor, position_B: Tensor) -> Tensor:
        """One more token of each row that continues a shared prompt; returns hidden_BH and appends to the cache. For generation only."""

    # What all families share.

    def logits(self, hidden_NH: Tensor, temperature: float) -> Tensor:
        """logits_NV in float32, divided by the temperature (0 counts as 1), banned ids at -inf."""
        logits_NV = self._scaled(hidden_NH, temperature)
        return logits_NV.index_fill_(-1, self.banned_ids, -torch.inf)

    def log_probs(self, hidden_NH: Tensor, targets_N: Tensor, temperature: float, *, entropy_gradient: bool = False) -> tuple[Tensor, Tensor]:
        """(logprobs_N, entropy_N) in float32 nats: log-softmax of logits / temperature with banned ids removed.

        A target that is itself banned is scored with the ban lifted for that id. The entropy carries a gradient only with `entropy_gradient`. Logits
        are made in chunks; with gradients they are recomputed in the backward pass when more than one chunk is needed.
        """
        rows = max(1, _LOGIT_CELLS // self.vocabulary_size)
        if len(targets_N) <= rows:
            return self._score(hidden_NH, targets_N, temperature, entropy_gradient)
        parts = []
        for chunk_NH, chunk_N in zip(hidden_NH.split(rows), targets_N.split(rows), strict=True):
            if torch.is_grad_enabled():
                parts.append(checkpoint(self._score, chunk_NH, chunk_N, temperature, entropy_gradient, use_reentrant=False))
            else:
                parts.append(self._score(chunk_NH, chunk_N, temperature, False))
        return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])

    def _scaled(self, hidden_NH: Tensor, temperature: float) -> Tensor:
        logits_NV: Tensor = self.hf.lm_head(hidden_NH).float()
        return logits_NV if temperature in (0.0, 1.0) else logits_NV / temperature

    def _score(self, hidden_NH: Tensor, targets_N: Tensor, temperature: float, entropy_gradient: bool) -> tuple[Tensor, Tensor]:
        logits_NV = self._scaled(hidden_NH, temperature)
        target_N = logits_NV.gather(-1, targets_N[:, None])
        # Writing the target's own logit back lifts the ban where the target is banned and changes nothing elsewhere.
        allowed_NV = logits_NV.index_fill(-1, self.banned_ids, -torch.inf).scatter(-1, targets_N[:, None], target_N)
        logprobs_NV = allowed_NV.log_softmax(-1)
        with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
            entropy_N = -(logprobs_NV.exp() * logprobs_NV.clamp_min(-1e4)).sum(-1)
        return logprobs_NV.gather(-1, targets_N[:, None])[:, 0], entropy_N

    def _padded(self, inputs_P: Sequence[ModelInput]) -> tuple[Tensor, Tensor, Tensor]:
        """ids_PT (left-padded with 0), mask_PT, lengths_P on the device."""
        if not inputs_P:
            raise SamplerError("no prompts were given; give at least one")
        lengths = [len(item) for item in inputs_P]
        if min(lengths) == 0:
            raise SamplerError(f"prompt {lengths.index(0)} has no tokens; a prompt needs at least one")
        width = max(lengths)
        rows, masks = [], []
        for item, length in zip(inputs_P, lengths, strict=True):
            if any(isinstance(chunk, TextChunk) and self.placeholder_id in chunk.tokens for chunk in item.chunks):
                raise SamplerError(f"a text chunk holds the image placeholder id {self.placeholder_id}; pictures are given as image chunks")
            rows.append([0] * (width - length) + item.token_ids(self.placeholder_id))
            masks.append([False] * (width - length) + [True] * length)
        ids_PT = torch.tensor(rows, dtype=torch.long, device=self.device)
        return ids_PT, torch.tensor(masks, device=self.device), torch.tensor(lengths, device=self.device)


def check_count(chunk: ImageChunk, actual: int, size: str) -> None:
    """Raise SamplerError when a chunk promises another number of tokens than the picture gives."""
    if chunk.num_tokens != actual:
        raise SamplerError(
            f"an image chunk says num_tokens={chunk.num_tokens} but this model makes {actual} tokens of the picture ({size}); "
            "render with the same model folder that samples"
        )


def causal_mask(mask_BL: Tensor, length: int, implementation: str, dtype: torch.dtype) -> Tensor | None:
    """Mask [B, 1, T, L] of the last `length` positions over all L; None where plain causal attention says the same.

    A padded query may see itself, so that its (unused) state stays finite.
    """
    total = mask_BL.shape[1]
    if length in (1, total) and bool(mask_BL.all()):
        return None
    steps_L = torch.arange(total, device=mask_BL.device)
    queries_T = steps_L[total - length :]
    allowed = (steps_L[None, :] <= queries_T[:, None])[None] & mask_BL[:, None, :] | (steps_L[None, :] == queries_T[:, None])[None]
    allowed = allowed[:, None]
    if implementation == "eager":
        return torch.zeros_like(allowed, dtype=dtype).masked_fill_(~allowed, torch.finfo(dtype).min)
    return allowed


def load_model(folder: Path, family: Family, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> VLM:
    """The model of a Hugging Face folder, in evaluation mode, all gradients off. Raises BackendError in one line when it cannot be loaded."""
    try:
        module = importlib.import_module(f"seegrad.models.{family.name}")
    except ModuleNotFoundError as error:
        if error.name != f"seegrad.models.{family.name}":
            raise
        here = [path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in ("__init__", "base")]
        raise BackendError(f"the local backend cannot run models of family {family.name!r}{nearest(family.name, here)}") from None
    try:
        model: VLM = module.load(folder, family, dtype, torch.device(device))
    except BackendError:
        raise
    except Exception as error:  # transformers, safetensors, json, pillow and torch each raise their own
        reason = " ".join(str(error).split())[:300]
        raise BackendError(f"{folder}: cannot load the model: {type(error).__name__}: {reason}; check that the folder is complete") from error
    model.hf.eval()
    model.hf.requires_grad_(False)
    return model


def _tokenizer(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise BackendError(f"{folder}: no tokenizer.json; give a complete model folder")
    return Tokenizer.from_file(str(path))


def _eos_ids(folder: Path, hf: nn.Module) -> tuple[int, ...]:
    """Ids that always end a completion: `generation_config.json` where there is one, else the model config."""
    config: Any = hf.config
    source: Any = GenerationConfig.from_pretrained(str(folder)) if (folder / "generation_config.json").is_file() else config.get_text_config()
    ids = source.eos_token_id
    return tuple(ids) if isinstance(ids, list | tuple) else () if ids is None else (int(ids),)
