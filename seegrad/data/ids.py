"""An id for every row: its own when no other row has it, else with the number of the row."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seegrad.data.cells import is_missing
from seegrad.data.columns import cell
from seegrad.data.files import RowSource


class Ids:
    """Ids of the rows of a source. 8 bytes a row are kept, read in one pass over the column when the first id is asked for.

    A missing id becomes `row-N`, and one that several rows have `ID-row-N`, with N the number of the row from 0.
    """

    def __init__(self, source: RowSource, column: str | None) -> None:
        self._source, self._column = source, column
        self._hashes: NDArray[np.uint64] | None = None

    def of(self, value: Any, position: int) -> str:
        """The id of the row at `position`, whose own id is `value`."""
        name = "" if is_missing(value) else str(value).strip()
        if not name:
            return f"row-{position}"
        return name if self._count(name) == 1 else f"{name}-row-{position}"

    def _count(self, name: str) -> int:
        """How many rows have this id."""
        if self._hashes is None:
            name_of_column = self._column or ""
            top = name_of_column if name_of_column in self._source.columns else name_of_column.partition(".")[0]
            values = (cell({top: value}, name_of_column) for value in self._source.column(top))
            hashes = [_hash(str(value).strip()) for value in values if not is_missing(value)]
            self._hashes = np.sort(np.array(hashes, np.uint64))
        low, high = (int(np.searchsorted(self._hashes, np.uint64(_hash(name)), side)) for side in ("left", "right"))
        return high - low


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
