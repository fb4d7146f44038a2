"""Files that are whole or absent: atomic replacement, append-only JSON lines, a folder's lock, and a full disk told apart from other failures.

`write_atomic` and `append_lines` return only after the bytes are on the disk (fsync); `sync=False` leaves that to a later `sync_paths`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from seegrad.errors import RunError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_PROBE_BYTES = 1 << 20


def dump_json(value: Any, *, indent: int | None = None) -> bytes:
    """UTF-8 JSON with a closing newline; numbers that are not finite become null, so that any reader can parse it. Text that UTF-8 has no bytes for
    (half a surrogate pair, from a file name or a grader) is written as its JSON escape and reads back the same."""
    text = json.dumps(finite(value), ensure_ascii=False, allow_nan=False, indent=indent) + "\n"
    return text.encode("utf-8", "backslashreplace")


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
    """Raises RunError naming the file when it is absent, cannot be read or is not JSON."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RunError(f"{path} does not exist") from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from None
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


def remove_partial(*folders: Path) -> None:
    """Delete what killed calls of `write_atomic` left in these folders; nobody may be writing there."""
    for folder in folders:
        for path in folder.glob(".*.tmp"):
            path.unlink()


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
            yield _record(line, f"{path}:{number}")


def cut_lines(path: Path, keep: Callable[[dict[str, Any]], bool]) -> None:
    """Keep only the whole lines whose record passes, in one atomic replacement. Kept lines stay byte for byte.

    Raises RunError, and changes nothing, when a whole line is damaged.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        kept = [line for number, line in enumerate(file, 1) if line.endswith(b"\n") and keep(_record(line, f"{path}:{number}"))]
    data = b"".join(kept)
    if len(data) != path.stat().st_size:
        write_atomic(path, data)


def parse_lines(data: bytes, path: Path) -> Iterator[dict[str, Any]]:
    """The records in bytes that were read from `path`. Raises RunError naming the line."""
    for number, line in enumerate(data.splitlines(), 1):
        yield _record(line, f"{path}: line {number}")


def _record(line: bytes, place: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise RunError(f"{place} is not valid JSON: {error}; repair or delete that line") from None
    if not isinstance(record, dict):
        raise RunError(f"{place} holds {type(record).__name__}, expected an object; repair or delete that line")
    return record


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


def lock_folder(path: Path) -> int:
    """An open descriptor of `lock` with an exclusive flock (dropped by the system when the process dies). A reader may hold it for an instant."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise RunError(f"{path} cannot be used as a run directory: {error.strerror}; give another --out") from error
    try:
        for _ in range(5):
            if try_flock(descriptor):
                os.pwrite(descriptor, f"{os.getpid():<10}\n".encode(), 0)  # always as long: a full disk has room for it the next time
                return descriptor
            time.sleep(0.02)
        owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
    except OSError as error:
        os.close(descriptor)
        raise RunError(f"{path} cannot be locked: {error.strerror}; free some space or give another --out") from error
    os.close(descriptor)
    raise RunError(f"{path} is being written by process {owner}; wait for it, stop it, or give another --out")


def try_flock(descriptor: int) -> bool:
    """Take the exclusive lock of an open file; False when another process has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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
