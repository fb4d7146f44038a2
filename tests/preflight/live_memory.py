"""Bytes of torch tensors that are alive, counted storage by storage: exact, and the same on a busy machine."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class LiveMemory(TorchDispatchMode):
    """Inside the block, `peak` is the most that was alive at once of what was made in it."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._note((*args, *(kwargs or {}).values()), made=False)  # what is given and was not made in the block was there before
        output = func(*args, **(kwargs or {}))
        self._note(output, made=True)
        return output

    def _note(self, value: Any, made: bool) -> None:
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            if storage._cdata not in self._sizes:
                self._sizes[storage._cdata] = storage.nbytes() if made else 0
                self.live += self._sizes[storage._cdata]
                self.peak = max(self.peak, self.live)
                weakref.finalize(storage, self._free, storage._cdata)
        elif isinstance(value, tuple | list):
            for item in value:
                self._note(item, made)

    def _free(self, key: int) -> None:
        self.live -= self._sizes.pop(key, 0)
