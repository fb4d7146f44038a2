"""Generation over shared prompts: attention of many rows to the keys and values of few prompts, without copying a prompt to each of its rows.

    prompt keys  [P, K, L, D]  ──┐
                                 ├─▶ scores ─▶ one softmax ─▶ weighted values of both parts
    own keys     [B, K, S, D]  ──┘

Shapes: P prompts, B rows, G most rows of one prompt, K key-value heads, R query heads per key-value head, L prompt positions, S generated positions,
D head size. The attention function is registered with transformers as `seegrad`; without shared prompts it is transformers' own `sdpa`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from seegrad.models.recurrent import RecurrentLayer

IMPLEMENTATION = "seegrad"
_FIRST_ROOM = 32  # positions that a row's own cache starts with; doubled when full


class SharedCache:
    """Keys and values of rows that continue prompts. Row order must keep the rows of a prompt together. For generation only: no gradients.

    `own` is the transformers cache of what each row has generated; `prompts` holds (keys, values) of each attention layer, by its number. The small
    states of linear-attention layers are copied to each row and are in `own` alone.
    """

    def __init__(self, prompts: DynamicCache, mask_PL: Tensor, counts_P: Sequence[int]) -> None:
        layers: list[Any] = list(prompts.layers)
        self.prompts = {number: (layer.keys, layer.values) for number, layer in enumerate(layers) if not isinstance(layer, RecurrentLayer)}
        self.padding_PL: Tensor | None = None if bool(mask_PL.all()) else ~mask_PL
        self._arrange(torch.tensor(list(counts_P), device=mask_PL.device))
        self.own = DynamicCache()
        self.own.layers = [
            layer.select(self.prompt_B, in_place=True) if isinstance(layer, RecurrentLayer) else _RoomyLayer()  # type: ignore[no-untyped-call]
            for layer in layers
        ]

    @property
    def num_rows(self) -> int:
        return len(self.prompt_B)

    def select(self, rows: Tensor) -> None:
        """Keep the rows `rows` (ascending indices); prompts without rows go too."""
        counts_P = torch.bincount(self.prompt_B[rows], minlength=len(self.rows_PG))
        self.own.batch_select_indices(rows)
        if bool((counts_P == 0).any()):
            kept = counts_P.nonzero()[:, 0]
            self.prompts = {number: (keys[kept], values[kept]) for number, (keys, values) in self.prompts.items()}
            self.padding_PL = None if self.padding_PL is None else self.padding_PL[kept]
            counts_P = counts_P[kept]
        self._arrange(counts_P)

    def _arrange(self, counts_P: Tensor) -> None:
        """Work out which rows stand where: `rows_PG` (short groups repeat their last row), and `prompt_B`, `slot_B` to come back."""
        starts_P = counts_P.cumsum(0) - counts_P
        self.prompt_B = torch.repeat_interleave(torch.arange(len(counts_P), device=counts_P.device), counts_P)
        self.slot_B = torch.arange(len(self.prompt_B), device=counts_P.device) - starts_P[self.prompt_B]
        slots_G = torch.arange(int(counts_P.max()), device=counts_P.device)
        self.rows_PG = starts_P[:, None] + torch.minimum(slots_G[None], counts_P[:, None] - 1)


class _RoomyLayer(DynamicLayer):
    """A cache layer that writes new positions in place, into buffers that double when full; `keys` and `values` are views of the filled part."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._filled = 0
            self._buffers = [_room(part, _FIRST_ROOM) for part in (key_states, value_states)]
        start, self._filled = self._filled, self._filled + key_states.shape[-2]
        while self._filled > self._buffers[0].shape[-2]:
            self._buffers = [torch.cat([buffer, torch.empty_like(buffer)], dim=-2) for buffer in self._buffers]
        for buffer, part in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, start : self._filled] = part
        return self._show()

    def batch_select_indices(self, indices: Tensor) -> None:
        if self.is_initialized:
            self._buffers = [buffer[indices] for buffer in self._buffers]
            self._show()

    def _show(self) -> tuple[Tensor, Tensor]:
        self.keys, self.values = (buffer[:, :, : self._filled] for buffer in self._buffers)
        return self.keys, self.values


def layer_states(cache: DynamicCache) -> list[tuple[Tensor, Tensor]]:
    """What every layer keeps: (keys, values), each [rows, heads, positions, size], or (window, state) of a linear-attention layer."""
    layers: list[Any] = list(cache.layers)
    return [layer.states() if isinstance(layer, RecurrentLayer) else (layer.keys, layer.values) for layer in layers]


def _room(states: Tensor, length: int) -> Tensor:
    return states.new_empty(*states.shape[:2], length, states.shape[-1])


def attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, shared: SharedCache | None = None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Attention as transformers calls it; [B, positions, heads, D]. With `shared`, one query position per row over its prompt and its own past."""
    if shared is None:
        output, nothing = sdpa_attention_forward(module, query, key, value, mask, **kwargs)
        return output, nothing
    assert query.shape[2] == 1, query.shape
    prompt_keys, prompt_values = shared.prompts[int(module.layer_idx)]  # type: ignore[arg-type]
    num_rows, num_heads, _, size = query.shape
    num_prompts, num_groups, length = len(prompt_keys), shared.rows_PG.shape[1], prompt_keys.shape[2]
    # Scores in float32 whatever the weights are, as fused kernels do.
    query_BKRD = (query.float() * kwargs["scaling"]).view(num_rows, key.shape[1], -1, size)
    own_BKRS = query_BKRD @ key.float().transpose(-1, -2)
    query_PKXD = query_BKRD[shared.rows_PG].transpose(1, 2).reshape(num_prompts, key.shape[1], -1, size)  # X: rows of the prompt times R
    prompt_PKXL = query_PKXD @ prompt_keys.float().transpose(-1, -2)
    if shared.padding_PL is not None:
        prompt_PKXL.masked_fill_(shared.padding_PL[:, None, None], -torch.inf)
    own_PKXS = own_BKRS[shared.rows_PG].transpose(1, 2).reshape(*prompt_PKXL.shape[:3], -1)
    weights = torch.cat([prompt_PKXL, own_PKXS], dim=-1).softmax(-1).to(value.dtype)
    from_prompt_PKXD = weights[..., :length] @ prompt_values
    own_weights_BKRS = _to_rows(weights[..., length:], shared, num_groups)
    output_BKRD = _to_rows(from_prompt_PKXD, shared, num_groups) + own_weights_BKRS @ value
    return output_BKRD.reshape(num_rows, 1, num_heads, size), None


def _to_rows(grouped_PKXZ: Tensor, shared: SharedCache, num_groups: int) -> Tensor:
    prompts, heads, _, last = grouped_PKXZ.shape
    return grouped_PKXZ.reshape(prompts, heads, num_groups, -1, last).transpose(1, 2)[shared.prompt_B, shared.slot_B]


AttentionInterface.register(IMPLEMENTATION, attend)
AttentionMaskInterface.register(IMPLEMENTATION, sdpa_mask)
