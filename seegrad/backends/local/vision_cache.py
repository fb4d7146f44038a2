"""What a picture became, kept by its content: preprocessed patches always, the tower's features while the tower is frozen."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict

from torch import Tensor

DEFAULT_BYTES = 256 << 20


class VisionCache:
    """A bounded store of tensors by (kind, content hash); the least recently used go first. Safe to use from several threads.

    >>> cache = VisionCache(max_bytes=100)
    >>> cache.get("features", "a") is None, cache.hit_rate("features")
    (True, 0.0)
    """

    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self.hits: Counter[str] = Counter()
        self.misses: Counter[str] = Counter()
        self._kept: OrderedDict[tuple[str, str], tuple[Tensor, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, kind: str, key: str) -> tuple[Tensor, ...] | None:
        """The kept tensors, or None; counts a hit or a miss."""
        with self._lock:
            tensors = self._kept.get((kind, key))
            if tensors is None:
                self.misses[kind] += 1
                return None
            self.hits[kind] += 1
            self._kept.move_to_end((kind, key))
            return tensors

    def put(self, kind: str, key: str, tensors: tuple[Tensor, ...]) -> None:
        """Keep tensors; ones larger than the whole store are not kept. They must carry no gradient."""
        assert not any(tensor.requires_grad for tensor in tensors), kind
        size = _size(tensors)
        with self._lock:
            old = self._kept.pop((kind, key), None)
            self.num_bytes -= _size(old) if old is not None else 0
            if size > self.max_bytes:
                return
            self._kept[(kind, key)] = tensors
            self.num_bytes += size
            while self.num_bytes > self.max_bytes:
                _, evicted = self._kept.popitem(last=False)
                self.num_bytes -= _size(evicted)

    def drop(self, kind: str) -> None:
        """Forget everything of a kind (features, when the tower's weights are replaced)."""
        with self._lock:
            for entry in [entry for entry in self._kept if entry[0] == kind]:
                self.num_bytes -= _size(self._kept.pop(entry))

    def hit_rate(self, kind: str) -> float:
        """Share of look-ups of a kind that were answered; 0 before the first."""
        asked = self.hits[kind] + self.misses[kind]
        return self.hits[kind] / asked if asked else 0.0


def _size(tensors: tuple[Tensor, ...]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
