"""Text files of rows, one reader per format: random access to any row, with an index of the file in memory (24 bytes a row) and none of its rows.

    JsonLines    where each line begins            blank lines are no rows; a line that is not JSON is a bad row
    JsonArray    where each element begins
    Csv          where each record begins          quoted line breaks; comma or tab

A file is open only while it is read, so that readers cost no descriptors and work in a forked process.
"""

from __future__ import annotations

import csv
import json
import mmap
import re
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from seegrad.errors import DataError

BOM = b"\xef\xbb\xbf"


class RowSource(Protocol):
    """Rows of named cells. `name` is what errors call the source, `files` are those it reads; `folders(i)` are where relative picture paths of row i
    may start, nearest first.

    `row` raises DataError for a row that cannot be read; `column` gives one cell of every row in order (None where there is none).
    """

    name: str
    columns: tuple[str, ...]
    files: tuple[Path, ...]

    def __len__(self) -> int: ...

    def row(self, index: int) -> dict[str, Any]: ...

    def column(self, name: str) -> Iterator[Any]: ...

    def place(self, index: int) -> str: ...

    def folders(self, index: int) -> tuple[Path, ...]: ...


class File:
    """What the readers of one file share; `row` and `__len__` are theirs."""

    columns: tuple[str, ...]

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)
        self.files: tuple[Path, ...] = (path,)
        self._stamp = _stamp(path)

    def row(self, index: int) -> dict[str, Any]:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def column(self, name: str) -> Iterator[Any]:
        for index in range(len(self)):
            try:
                yield self.row(index).get(name)
            except DataError:
                yield None

    def place(self, index: int) -> str:
        return f"{self.path.name}, row {index}"

    def check_unchanged(self) -> None:
        """An index of another file's rows would give wrong rows without a word. Raises DataError."""
        try:
            changed = _stamp(self.path) != self._stamp
        except OSError as error:
            raise DataError(f"{self.path} cannot be read any more: {error.strerror or error}", reason="file cannot be read") from None
        if changed:
            raise DataError(f"{self.path} has changed since it was opened; start again", reason="file has changed")

    def folders(self, index: int) -> tuple[Path, ...]:
        return (self.path.parent,)


class _Indexed(File):
    """A text file of which only the place of each row is kept: offset and length in bytes, and its line (from 1)."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._offsets, self._lengths, self._lines = array("q"), array("q"), array("q")

    def __len__(self) -> int:
        return len(self._offsets)

    def place(self, index: int) -> str:
        return f"{self.path.name}, line {self._lines[index]}"

    def _add(self, offset: int, length: int, line: int) -> None:
        self._offsets.append(offset)
        self._lengths.append(length)
        self._lines.append(line)

    def _read(self, index: int) -> bytes:
        self.check_unchanged()
        with self.path.open("rb") as file:
            file.seek(self._offsets[index])
            return file.read(self._lengths[index])

    def column(self, name: str) -> Iterator[Any]:
        self.check_unchanged()
        with self.path.open("rb") as file:
            for index in range(len(self)):
                file.seek(self._offsets[index])
                try:
                    yield self._cells(file.read(self._lengths[index]), index).get(name)
                except DataError:
                    yield None

    def row(self, index: int) -> dict[str, Any]:
        return self._cells(self._read(index), index)

    def _cells(self, data: bytes, index: int) -> dict[str, Any]:
        raise NotImplementedError


class JsonLines(_Indexed):
    """One JSON object a line."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        columns: dict[str, None] = {}
        for offset, line, number in _lines(path):
            if not line.strip():
                continue
            self._add(offset, len(line), number)
            try:
                columns.update(dict.fromkeys(parse_object(line)))
            except ValueError:
                continue  # a bad row: said when it is read
        self.columns = tuple(columns)

    def _cells(self, data: bytes, index: int) -> dict[str, Any]:
        try:
            return parse_object(data)
        except ValueError as error:
            raise DataError(f"line {self._lines[index]} of {self.path.name}: {error}", reason="line is not a JSON object") from None


class JsonArray(JsonLines):
    """One JSON list of objects. Raises DataError when the list is not whole."""

    _TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{},"]', re.DOTALL)

    def __init__(self, path: Path) -> None:
        _Indexed.__init__(self, path)
        columns: dict[str, None] = {}
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            line, counted = 1, 0
            for start, end in self._elements(view):
                line += _count_newlines(view, counted, start)
                counted = start
                self._add(start, end - start, line)
                try:
                    columns.update(dict.fromkeys(parse_object(view[start:end])))
                except ValueError:
                    continue
        self.columns = tuple(columns)

    def _elements(self, view: mmap.mmap) -> Iterator[tuple[int, int]]:
        """(start, end) of the elements of the outermost list, blanks around them left out."""
        depth, start, closed = 0, 0, 0
        for match in self._TOKEN.finditer(view):
            token = match.group() if match.end() - match.start() == 1 else b"text"
            if token == b'"':  # opens a text that is never closed
                break
            if token in (b"[", b"{"):
                depth += 1
                if depth == 1:
                    start = match.end()
            elif token in (b"]", b"}") or (token == b"," and depth == 1):
                depth -= token != b","
                if depth < 2 and (token == b"," or depth == 0):
                    first, last = _trimmed(view, start, match.start())
                    if last > first or token == b",":
                        yield first, last
                    start = match.end()
                if depth == 0:
                    closed = match.end()
                    break
        if not closed:
            raise DataError(f"{self.path} ends inside its list, after {len(self)} whole rows; the file was cut", reason="file cannot be read")
        if view[closed:].strip():
            raise DataError(
                f"{self.path} has text after its list: {view[closed : closed + 40]!r}; expected one list of rows", reason="file cannot be read"
            )


class Csv(_Indexed):
    """Records under a header line, in UTF-8; an empty cell is None. Raises DataError for another encoding, no header, or a quote left open."""

    def __init__(self, path: Path, delimiter: str = ",") -> None:
        super().__init__(path)
        self._delimiter = delimiter
        ends: list[tuple[int, int]] = [(0, 0)]  # (number of lines, bytes) read so far

        def texts() -> Iterator[str]:
            for offset, line, number in _lines(path):
                ends[0] = (number, offset + len(line))
                yield _decoded(line, path, number)

        last = (0, 0)
        header: list[str] | None = None
        try:
            for fields in _records(texts(), delimiter):
                first, last = last, ends[0]
                if header is None:
                    header = [name.strip() or f"unnamed_{number}" for number, name in enumerate(fields)] if any(fields) else None
                elif fields:  # a blank line is no row
                    self._add(first[1], last[1] - first[1], first[0] + 1)
        except csv.Error as error:
            convert = f"its lines end as on old Macs; convert it: tr '\\r' '\\n' < {path.name} > new.csv" if "new-line" in str(error) else str(error)
            raise DataError(f"{path}, line {ends[0][0]}: {convert}", reason="file cannot be read") from None
        if header is None:
            raise DataError(f"{path} is empty; expected a line of column names, then rows", reason="file cannot be read")
        if len(set(header)) < len(header):
            raise DataError(f"{path}: the header names a column twice: {', '.join(header)}", reason="file cannot be read")
        if len(header) == 1 and (other := next((sign for sign in ";\t|" if sign in header[0]), None)):
            expected = "a comma" if delimiter == "," else "a tab"
            raise DataError(
                f"{path}: columns are separated by {other!r}, expected {expected}; tabs belong into a .tsv file", reason="file cannot be read"
            )
        self.columns = tuple(header)
        if len(self):
            self._check_quotes()

    def _check_quotes(self) -> None:
        """A quote that is never closed swallows the rest of the file."""
        text = _decoded(self._read(len(self) - 1), self.path, self._lines[-1])
        try:
            list(_records(_kept_lines(text), self._delimiter, strict=True))
        except csv.Error as error:
            if "unexpected end" in str(error):
                raise DataError(
                    f'{self.path}: the row at line {self._lines[-1]} opens a quote (") that is never closed', reason="file cannot be read"
                ) from None

    def _cells(self, data: bytes, index: int) -> dict[str, Any]:
        text = _decoded(data, self.path, self._lines[index])
        fields = next(_records(_kept_lines(text), self._delimiter))
        if len(fields) != len(self.columns):
            raise DataError(
                f"line {self._lines[index]} of {self.path.name} has {len(fields)} fields, the header {len(self.columns)}",
                reason="wrong number of fields",
            )
        return {name: field if field else None for name, field in zip(self.columns, fields, strict=True)}


def parse_object(data: bytes) -> dict[str, Any]:
    """A JSON object in UTF-8. Raises ValueError saying what it is instead."""
    try:
        value = json.loads(data, object_pairs_hook=_once)
    except _NamedTwice as error:
        raise ValueError(str(error)) from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text: byte 0x{data[error.start]:02x}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {first_line(error)}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{type(value).__name__} where an object of columns was expected")
    return value


class _NamedTwice(ValueError):
    """An object in which one of two values would be lost."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise _NamedTwice(f"the field {next(name for name in fields if names.count(name) > 1)!r} is there twice")
    return fields


def _lines(path: Path) -> Iterator[tuple[int, bytes, int]]:
    """(offset, line with its end, line number from 1), a byte order mark left out."""
    with path.open("rb") as file:
        offset = len(BOM) if file.read(3) == BOM else 0
        file.seek(offset)
        for number, line in enumerate(file, 1):
            yield offset, line, number
            offset += len(line)


def _kept_lines(text: str) -> Iterator[str]:
    """Lines with their ends, split at \\n only (`splitlines` also splits at other characters)."""
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield text[start:end]
        start = end


def _decoded(data: bytes, path: Path, line: int) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {line}: byte 0x{data[error.start]:02x} is not UTF-8; convert it, for example: iconv -f GB18030 -t UTF-8 {path.name}",
            reason="file cannot be read",
        ) from None


def _records(lines: Iterator[str], delimiter: str, *, strict: bool = False) -> Iterator[list[str]]:
    """The records in lines of CSV. The module's limit of 128 KiB a field is the process's and too small for a picture as base64: it is lifted."""
    csv.field_size_limit(sys.maxsize)
    return csv.reader(lines, delimiter=delimiter, strict=strict)


def _trimmed(view: mmap.mmap, start: int, end: int) -> tuple[int, int]:
    blank = b" \t\r\n"
    while start < end and view[start] in blank:
        start += 1
    while end > start and view[end - 1] in blank:
        end -= 1
    return start, end


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _count_newlines(view: mmap.mmap, start: int, end: int) -> int:
    return view[start:end].count(b"\n")


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
