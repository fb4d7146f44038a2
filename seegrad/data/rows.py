"""The rows of a data set, each checked when it is read: what a user's function gives wrong is said in one line that names the row."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

from seegrad import registry
from seegrad.config import DataConfig
from seegrad.data.pictures import check_marks, prepared
from seegrad.data.table import Table
from seegrad.errors import DataError, SeegradError, UsageError
from seegrad.types import Example

_TEXTS = ("id", "question", "answer")
_DRAWN = ("count", "choice", "ground")
_COLUMNS = ("prompt_key", "answer_key", "image_keys", "choices_key", "id_key")
_UNREAD_WHEN_DRAWN = ("path", "revision", *_COLUMNS, "template", "max_pixels")


def load_rows(split: str, data: DataConfig) -> Sequence[Example]:
    """A split of the data set that `data` names. Raises UsageError when there is no such data set, DataError when it gives no rows.

    Rows of a user's own function are checked as they are read: their pictures become plain RGB like those of a table (`max_pixels`, `blank_images`),
    and a row that cannot be made or is not an `Example` raises DataError. A setting of `data` that the data set does not read is a UsageError.
    """
    function: Callable[[str, DataConfig], Any] = registry.load("dataset", data.name)
    if data.name in registry.names("dataset"):
        _refuse_unread(data)
        rows: Sequence[Example] = function(split, data)
        return rows
    where = f"data set {data.name!r}, split {split!r}"
    rows = _attempt(lambda: function(split, data), where)
    if isinstance(rows, Table) and len(rows):
        return rows  # it checks and cleans by itself
    if not isinstance(rows, Sequence) and not (hasattr(rows, "__len__") and hasattr(rows, "__getitem__")):
        raise DataError(f"{where}: returned {type(rows).__name__}, expected a list of Example or another sequence")
    count = _attempt(lambda: len(rows), where)
    if not count:
        raise DataError(f"{where}: there are no rows; give a split that has some")
    return Rows(rows, range(count), where, data)


class Rows(Sequence[Example]):
    """A view of a user's rows. A slice is a view too, so that one bad row does not hide the others."""

    def __init__(self, rows: Any, positions: range, where: str, data: DataConfig) -> None:
        self._rows, self._positions, self._where, self._data = rows, positions, where, data

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | Sequence[Example]:
        if isinstance(index, slice):
            return Rows(self._rows, self._positions[index], self._where, self._data)
        position = self._positions[index]
        where = f"{self._where}, row {position}"
        row: Example = _attempt(lambda: self._rows[position], where)
        if problem := _problem(row):
            raise DataError(f"{where}: {problem}", reason="not an example")
        try:
            check_marks(row.question, len(row.images))
            pictures = tuple(prepared(data, self._data) for data in row.images)
        except DataError as error:
            raise DataError(f"{where}: {error}", reason=error.reason) from None
        return replace(row, images=pictures, choices=tuple(row.choices))


def _refuse_unread(data: DataConfig) -> None:
    """Raises UsageError for a setting that a drawn data set would ignore."""
    given = [name for name in _UNREAD_WHEN_DRAWN if getattr(data, name)] if data.name in _DRAWN else []
    if given:
        nothing = {int: "0", tuple: "[]"}.get(type(getattr(data, given[0])), "")
        raise UsageError(
            f"data.{given[0]}={getattr(data, given[0])!r} is not read by the drawn data set {data.name!r}; empty it with data.{given[0]}={nothing}, "
            "or read rows of your own with data.name=table"
        )


def _attempt(call: Callable[[], Any], where: str) -> Any:
    """Run the user's code; whatever it raises becomes one line with the place in their file."""
    try:
        return call()
    except SeegradError:
        raise
    except (Exception, SystemExit) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise DataError(f"{where}: raised {reason} ({frame.filename}:{frame.lineno})", reason=f"raised {type(error).__name__}") from error


def _problem(row: object) -> str | None:
    """What keeps a row from being an Example, or None."""
    if not isinstance(row, Example):
        return f"is {type(row).__name__}, expected seegrad.types.Example"
    for name in _TEXTS:
        if not isinstance(getattr(row, name), str):
            return f"{name} is {type(getattr(row, name)).__name__}, expected str"
    if not isinstance(row.images, tuple | list) or not all(isinstance(data, bytes) for data in row.images):
        inner = next((data for data in row.images if not isinstance(data, bytes)), b"") if isinstance(row.images, tuple | list) else b""
        given = f"{type(row.images).__name__} of {type(inner).__name__}" if inner else type(row.images).__name__
        return f"images is {given}, expected a tuple of bytes, each an encoded picture such as a PNG file"
    if not isinstance(row.choices, tuple | list) or not all(isinstance(choice, str) for choice in row.choices):
        return "choices must be a tuple of str"
    if not isinstance(row.meta, Mapping):
        return f"meta is {type(row.meta).__name__}, expected a mapping"
    return None
