"""The cache of a linear-attention layer: a convolution window and a recurrent state per row, in place of keys and values per position.

    window [B, channels, kernel]  ─┐                          ┌─ the last `kernel` inputs
                                   ├─ layer, new positions ─▶ │
    state  [B, heads, K, V]       ─┘                          └─ the state after the last position

transformers writes both in place, so that a prompt's states would change under those who still need them, and no gradient could flow back through
them. Here an update puts new tensors in place of the old. The states of a row are small and depend on all its positions, so that rows which continue
one prompt each get a copy.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import LinearAttentionLayer


class RecurrentLayer(LinearAttentionLayer):
    """States that are replaced and never written; `in_place` (generation only) lets a one-token step write into the window, which is then its own."""

    def __init__(self, window: Tensor | None = None, state: Tensor | None = None, *, in_place: bool = False) -> None:
        super().__init__()
        # transformers takes its writing one-token step unless a layer says that it records its past.
        self.record_past = not in_place
        if window is not None and state is not None:
            self._keep(window)
            self.update_recurrent_state(state)

    def select(self, rows: Tensor, *, in_place: bool = False) -> RecurrentLayer:
        """The rows `rows` (repeats allowed) as copies; gradients flow to the old ones."""
        window, state = self.states()
        return RecurrentLayer(window.index_select(0, rows), state.index_select(0, rows), in_place=in_place)

    def states(self) -> tuple[Tensor, Tensor]:
        """(window, state) of all rows, after the first update."""
        window, state = self.conv_states[0], self.recurrent_states[0]
        assert window is not None and state is not None, "nothing has been kept yet"
        return window, state

    def update_conv_state(self, conv_states: Tensor, state_idx: int = 0, conv_kernel_size: int | None = None, **kwargs: Any) -> Tensor:
        """Takes new inputs [B, channels, T]; returns them behind the window, or behind zeros where they alone are shorter than the kernel."""
        previous = self.conv_states[0]
        joined = conv_states if previous is None else torch.cat([previous, conv_states], dim=-1)
        kernel = conv_kernel_size or joined.shape[-1]
        if joined.shape[-1] < kernel:
            joined = torch.nn.functional.pad(joined, (kernel - joined.shape[-1], 0))
        self._keep(joined[..., -kernel:].clone())  # a copy, so that the window does not hold all inputs in memory
        return joined

    def update_recurrent_state(self, recurrent_states: Tensor, state_idx: int = 0, **kwargs: Any) -> Tensor:
        """Takes the state after the last position."""
        self.recurrent_states[0] = recurrent_states
        self.is_recurrent_states_initialized[0] = True
        return recurrent_states

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the rows `indices`."""
        window, state = self.states()
        self._keep(window[indices])
        self.recurrent_states[0] = state[indices]

    def _keep(self, window: Tensor) -> None:
        self.conv_states[0] = window
        self.conv_kernel_size[0] = window.shape[-1]
        self.is_conv_states_initialized[0] = self.has_previous_state[0] = True
