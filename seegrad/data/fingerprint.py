"""Whether rows are still the ones that a run began with: their order follows from them, so a continued run needs the same."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seegrad.data.shapes import Shapes
from seegrad.data.skipping import Fitting, Skipping
from seegrad.data.table import Table
from seegrad.errors import DataError
from seegrad.types import Example

PIECE = 1 << 20  # bytes
WHOLE = 64 * PIECE  # a file up to this size is read whole; of a larger one so many pieces from its start to its end


def fingerprint(rows: Sequence[Example]) -> dict[str, Any]:
    """The number of rows and, of a table, a hash of what its files hold (not of their names or times); empty for drawn rows, which cannot change.

    Pictures that lie beside a table are not looked at. Raises DataError when a file cannot be read any more.
    """
    while isinstance(rows, Skipping | Fitting):
        rows = rows.rows
    if isinstance(rows, Shapes):
        return {}
    files = [_hash(path) for path in rows.source.files] if isinstance(rows, Table) else []
    return {"rows": len(rows), "files": files}


def difference(then: dict[str, Any], now: dict[str, Any]) -> str:
    """What has changed between two fingerprints, in words; empty when nothing has."""
    if then == now:
        return ""
    if then.get("rows") != now.get("rows"):
        return f"{then.get('rows', 'other')} rows then, {now.get('rows', 'other')} now"
    return "as many rows, but their files hold something else"


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            digest.update(str(size).encode())
            num_pieces = WHOLE // PIECE
            for number in range(num_pieces):
                file.seek(number * PIECE if size <= WHOLE else number * (size - PIECE) // (num_pieces - 1))
                digest.update(file.read(PIECE))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}", reason="file cannot be read") from None
    return digest.hexdigest()
