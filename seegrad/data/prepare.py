"""A named data set as local parquet files, one a split, with every row looked at once.

rows of a split (hub or local) ─┬▶ OUT/SPLIT.parquet   the set's own columns, in the split's order; `data.path=OUT` reads them back
                                └▶ examples ─▶ how many are good; the others by reason
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from seegrad import images
from seegrad.config import DataConfig
from seegrad.data import geo3k, geoqa, gsm8k, r1v
from seegrad.data.catalog import CATALOG
from seegrad.data.files import RowSource
from seegrad.data.pictures import listed
from seegrad.data.rows import load_rows
from seegrad.durable import try_flock
from seegrad.errors import DataError, UsageError, nearest

PICTURES = ("image", "images", "image_path")  # columns
BATCH = 256  # rows that are held at a time
ROWS: Mapping[str, Callable[[str, DataConfig], RowSource]] = {
    "geoqa": geoqa.rows,
    "geo3k": geo3k.rows,
    "geoqa-r1v": partial(r1v.rows, "geoqa-r1v"),
    "clevr-count": partial(r1v.rows, "clevr-count"),
    "gsm8k": gsm8k.rows,
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A split that was written: its file, its number of rows, and how many of them cannot be used, by reason."""

    split: str
    path: Path
    num_rows: int
    bad: Mapping[str, int]

    @property
    def num_good(self) -> int:
        return self.num_rows - sum(self.bad.values())


def prepare(
    data: DataConfig, out: Path, splits: Sequence[str] = (), progress: Callable[[], Callable[[int, int], None]] | None = None
) -> Iterator[Prepared]:
    """Write the splits of `data.name` (all that the catalog names) to `out`, one after the other; a file appears when it is whole.

    Raises UsageError for a set that has no name here and for rows that are read from `out` itself, DataError for rows that no table can hold.
    """
    if data.name not in ROWS:
        raise UsageError(f"data set {data.name!r} is not one that is downloaded{nearest(data.name, ROWS)}; to look at it: seegrad data show")
    sources = {
        split: ROWS[data.name](split, data) for split in splits or CATALOG[data.name].splits
    }  # all, before a file is written that one may find
    for source in sources.values():
        _refuse_own_place(source, data.path, out)
    out.mkdir(parents=True, exist_ok=True)
    for split, source in sources.items():
        path = out / f"{split}.parquet"
        bad = write_parquet(source, path)
        told = progress() if progress is not None else None
        examples = load_rows(split, data.model_copy(update={"path": str(out), "revision": ""}))
        for index in range(len(examples)):
            try:
                examples[index]
            except DataError as error:
                bad[error.reason] += 1
            if told is not None:
                told(index + 1, len(examples))
        yield Prepared(split, path, len(source), dict(bad.most_common()))


def write_parquet(source: RowSource, path: Path) -> Counter[str]:
    """All rows of a source as one parquet file with the same columns, pictures as bytes; the rows that cannot even be read are left out and counted.

    The file also tells the `datasets` library which columns are pictures. Raises DataError for rows that no table can hold, and when the disk refuses
    or another process is writing the same file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    unreadable: Counter[str] = Counter()
    try:
        with _replacing(path) as file:
            schema = _schema(source)
            with pq.ParquetWriter(file, schema) as writer:
                for start in range(0, len(source), BATCH):
                    rows = list(_rows(source, range(start, min(start + BATCH, len(source))), unreadable))
                    writer.write_table(pa.Table.from_pylist(rows, schema))
    except (pa.ArrowException, OverflowError) as error:
        told = " ".join(str(error).split())[:200]
        message = (
            f"{source.name}: the rows do not fit one table: {told}; give each column cells of one type, or use the files as they are (data.path)"
        )
        raise DataError(message, reason="columns of mixed types") from None
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}; free some space or choose another --out", reason="no room") from None
    return unreadable


def _refuse_own_place(source: RowSource, given: str, out: Path) -> None:
    """A split written over the file that holds the whole set would be all that is left of it."""
    inside = next((file for file in source.files if file.resolve().is_relative_to(out.resolve())), None)
    if inside is not None:
        raise UsageError(f"the rows at {given} are read from {inside}, in the folder that is to be written; give another one with --out")


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file beside `path` that takes its place when the block ends well, else is removed. Its lock goes with the process, so that what a killed one
    left is used again, and a second one at the same time is refused."""
    part = path.with_name(f"{path.name}.part")
    while True:
        file = os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b")
        if not try_flock(file.fileno()):
            file.close()
            raise DataError(f"{path} is being written by another process; wait for it, or choose another --out", reason="no room")
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), part.stat()):
                break
        file.close()  # the other process has just finished and renamed it
    with file:
        try:
            file.truncate(0)
            yield file
            file.flush()
            os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def _rows(source: RowSource, positions: range, unreadable: Counter[str]) -> Iterator[dict[str, Any]]:
    for position in positions:
        try:
            row = source.row(position)
        except DataError as error:
            unreadable[error.reason] += 1
            continue
        for name in PICTURES:
            if name in row:
                several = isinstance(row[name], list | tuple)
                cells = [_picture(value, source.folders(position)) for value in listed(row[name])]
                row[name] = cells if several else next(iter(cells), None)
        yield row


def _picture(value: Any, folders: Sequence[Path]) -> dict[str, Any]:
    """A picture in the form of the `datasets` library; one that cannot be read keeps its path, so that its fault is the same later."""
    try:
        return {"bytes": images.decode(value, folder=folders), "path": None}
    except DataError:
        return {"bytes": None, "path": value if isinstance(value, str) else None}


def _schema(source: RowSource) -> Any:
    """The types of all columns, those of pictures as `datasets` writes them."""
    import pyarrow as pa

    picture = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    fields = []
    for name in source.columns:
        if name in PICTURES:
            fields.append((name, pa.list_(picture) if _holds_lists(source, name) else picture))
        else:
            kind = pa.array(list(source.column(name))).type
            fields.append((name, pa.string() if pa.types.is_null(kind) else kind))
    schema = pa.schema(fields)
    features = {field.name: _feature(field.type) for field in schema}
    return schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def _holds_lists(source: RowSource, name: str) -> bool:
    for position in range(len(source)):
        try:
            value = source.row(position).get(name)
        except DataError:
            continue
        if value is not None:
            return isinstance(value, list | tuple)
    return False


def _feature(kind: Any) -> Any:
    """A column's type in the words of the `datasets` library."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return {"_type": "Image"} if {field.name for field in kind} == {"bytes", "path"} else {field.name: _feature(field.type) for field in kind}
    if pa.types.is_list(kind):
        return {"feature": _feature(kind.value_type), "_type": "List"}
    return {"dtype": {"double": "float64"}.get(str(kind), str(kind)), "_type": "Value"}
