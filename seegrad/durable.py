"""Files that are whole or absent: atomic replacement, append-only JSON lines, and a full disk told apart from other failures.

`write_atomic` and `append_lines` return only after the bytes are on the disk (fsync); `sync=False` leaves that to a later `sync_paths`.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from seegrad.errors import RunError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_PROBE_BYTES = 1 << 20


def dump_json(value: Any, *, indent: int | None = None) -> bytes:
    """UTF-8 JSON with a closing newline; numbers that are not finite become null, so that any reader can parse it."""
    return (json.dumps(finite(value), ensure_ascii=False, allow_nan=False, indent=indent) + "\n").encode("utf-8")


def finite(value: Any) -> Any:
    """The same tree with every NaN and infinity replaced by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def read_json(path: Path) -> Any:
    """Raises RunError naming the file when it is absent or not JSON."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RunError(f"{path} does not exist") from None
    except ValueError as error:
        raise RunError(f"{path} is not valid JSON: {error}") from None


def write_atomic(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write beside the target, then rename over it: a reader sees the old file or the new one, never a part. A failed write leaves nothing behind."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if sync:
        sync_folder(path.parent)


def append_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Append one JSON line per record. When the write fails, the file is cut back to what it was."""
    data = b"".join(dump_json(record) for record in records)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        before = os.fstat(descriptor).st_size
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        except BaseException:
            os.ftruncate(descriptor, before)
            raise
    finally:
        os.close(descriptor)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a JSON-lines file; an absent file has none. A last line without its newline was being written and is left out.

    Raises RunError naming file and line for damage anywhere else.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                record = json.loads(line)
            except ValueError as error:
                raise RunError(f"{path}:{number} is not valid JSON: {error}") from None
            if not isinstance(record, dict):
                raise RunError(f"{path}:{number} holds {type(record).__name__}, expected an object")
            yield record


def cut_lines(path: Path, keep: Callable[[dict[str, Any]], bool]) -> None:
    """Keep only the whole lines whose record passes, in one atomic replacement. Kept lines stay byte for byte."""
    if not path.exists():
        return
    with path.open("rb") as file:
        kept = [line for line in file if line.endswith(b"\n") and keep(json.loads(line))]
    data = b"".join(kept)
    if len(data) != path.stat().st_size:
        write_atomic(path, data)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    sync_paths((folder,))


def sync_paths(paths: Iterable[Path]) -> None:
    """fsync files or folders."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def is_disk_full(error: BaseException, folder: Path) -> bool:
    """Whether a failed write means that there is no space. When the error does not say (libraries hide the errno), 1 MiB is tried."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _FULL:
            return True
        cause = cause.__cause__ or cause.__context__
    probe = folder / f".probe.{os.getpid()}"
    try:
        probe.write_bytes(bytes(_PROBE_BYTES))
    except OSError as failure:
        return failure.errno in _FULL
    finally:
        probe.unlink(missing_ok=True)
    return False
