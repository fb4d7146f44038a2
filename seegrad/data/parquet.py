"""Parquet files: any row at any time, with the row groups that were used last in memory, and never more than `CACHE_BYTES` of them.

    row i ─▶ its row group ─ small ─▶ decoded, kept in the cache that the files of a table share
                           └ large ─▶ unpacked once into a temporary Arrow file that is mapped, so that one row costs one row

Files that pandas wrote have one row group of any size; read whole, it would be held in memory for the length of a run. The temporary file lies where
TMPDIR says; once it is mapped it has no name, and goes with the process.
"""

from __future__ import annotations

import tempfile
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from seegrad.data.formats import File, first_line
from seegrad.errors import DataError

CACHE_BYTES = 128 << 20  # of decoded row groups; the one that was used last stays whatever its size
LARGE_GROUP = 64 << 20  # bytes of a row group, unpacked, from which it is mapped instead
BATCH_BYTES = 2 << 20  # read at a time while a large row group is unpacked
_FAULTS = (pyarrow.ArrowException, OSError)


class GroupCache:
    """Decoded row groups by file and number, the ones that were used last."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._limit, self._bytes = limit, 0
        self._tables: OrderedDict[tuple[Path, int], pyarrow.Table] = OrderedDict()

    def get(self, key: tuple[Path, int]) -> pyarrow.Table | None:
        if key in self._tables:
            self._tables.move_to_end(key)
        return self._tables.get(key)

    def put(self, key: tuple[Path, int], table: pyarrow.Table) -> None:
        self._tables[key] = table
        self._bytes += table.nbytes
        while len(self._tables) > 1 and self._bytes > self._limit:
            self._bytes -= self._tables.popitem(last=False)[1].nbytes


class Parquet(File):
    """A parquet file. Raises DataError when it is none, or a damaged one."""

    def __init__(self, path: Path, cache: GroupCache | None = None, large_group: int = LARGE_GROUP) -> None:
        super().__init__(path)
        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                self._metadata = file.metadata
                self.columns = tuple(file.schema_arrow.names)
        except _FAULTS as error:
            raise DataError(
                f"{path} is not a whole parquet file ({path.stat().st_size} bytes): {first_line(error)}", reason="file cannot be read"
            ) from None
        if len(set(self.columns)) < len(self.columns):
            raise DataError(f"{path} names a column twice: {', '.join(self.columns)}", reason="file cannot be read")
        self._starts = [0]
        for group in range(self._metadata.num_row_groups):
            self._starts.append(self._starts[-1] + self._metadata.row_group(group).num_rows)
        self._cache = cache or GroupCache()
        self._large_group = large_group
        self._mapped: dict[int, pyarrow.Table] = {}
        self._faults: dict[int, str] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._starts[-1]

    def row(self, index: int) -> dict[str, Any]:
        group = bisect_right(self._starts, index) - 1
        try:
            cells: dict[str, Any] = self._group(group).slice(index - self._starts[group], 1).to_pylist()[0]
        except (pyarrow.ArrowException, UnicodeDecodeError) as error:
            raise DataError(f"the cells cannot be read: {first_line(error)}", reason="row cannot be read") from None
        return cells

    def column(self, name: str) -> Iterator[Any]:
        if name not in self.columns:
            yield from (None for _ in range(len(self)))
            return
        try:
            with self._open() as file:
                for batch in file.iter_batches(batch_size=4096, columns=[name]):
                    yield from batch.column(0).to_pylist()
        except _FAULTS as error:
            raise DataError(f"{self.path}: column {name!r} cannot be read: {first_line(error)}", reason="file cannot be read") from None

    def _open(self) -> pyarrow.parquet.ParquetFile:
        """The file, read in small pieces: `pre_buffer` would hold a row group whole."""
        return pyarrow.parquet.ParquetFile(self.path, metadata=self._metadata, buffer_size=1 << 20, pre_buffer=False)

    def _group(self, group: int) -> pyarrow.Table:
        with self._lock:
            table = self._mapped.get(group)
            if table is None:
                table = self._cache.get((self.path, group))
            if table is None:
                table = self._load(group)
            return table

    def _load(self, group: int) -> pyarrow.Table:
        if group not in self._faults:
            self.check_unchanged()
            try:
                if self._metadata.row_group(group).total_byte_size > self._large_group:
                    self._mapped[group] = self._unpacked(group)
                    return self._mapped[group]
                with self._open() as file:
                    table = file.read_row_group(group)
                self._cache.put((self.path, group), table)
                return table
            except _FAULTS as error:
                self._faults[group] = first_line(error)
        raise DataError(f"row group {group} of {self.path.name} cannot be read: {self._faults[group]}", reason="row cannot be read")

    def _unpacked(self, group: int) -> pyarrow.Table:
        """The row group as a table whose bytes are a mapped file."""
        facts = self._metadata.row_group(group)
        batch_size = max(1, facts.num_rows * BATCH_BYTES // facts.total_byte_size)
        with tempfile.NamedTemporaryFile(prefix="seegrad-rows-", suffix=".arrow") as place:
            try:
                with self._open() as file, pyarrow.ipc.new_file(place.file, file.schema_arrow) as writer:
                    for batch in file.iter_batches(batch_size=batch_size, row_groups=[group]):
                        writer.write_batch(batch)
                place.flush()
            except OSError as error:
                if error.errno is None:
                    raise
                raise DataError(
                    f"{self.path.name} has a row group of {facts.total_byte_size >> 20} MiB that cannot be unpacked in {tempfile.gettempdir()}: "
                    f"{error.strerror}; set TMPDIR to a folder with room, or write the file with smaller row groups",
                    reason="row cannot be read",
                ) from None
            with pyarrow.memory_map(place.name) as source:
                return pyarrow.ipc.open_file(source).read_all()
