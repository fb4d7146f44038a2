"""Rows of a table → examples: each cell read, each picture decoded and cleaned, `<image>` marks and pictures counted.

    RowSource ─ make ─▶ Raw(question, answer, pictures …) ─ decode · clean · blank ─▶ Example
      files.py    └ `table` (columns.py, cells.py) or a data set's own function

One row is read at a time and none is kept; a row that cannot be used raises DataError when it is asked for, and hides no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, overload

from seegrad import images
from seegrad.config import DataConfig
from seegrad.data.cells import answer_text, choices_of, prompt_text, with_choices
from seegrad.data.columns import Columns, cell, find_columns
from seegrad.data.files import RowSource, open_rows
from seegrad.data.ids import Ids
from seegrad.data.pictures import IMAGE_MARK, check_marks, listed, prepared, prepared_size
from seegrad.errors import DataError, UsageError
from seegrad.types import Example


@dataclass(frozen=True, slots=True)
class Raw:
    """A row before its pictures are read. `question` may hold `<image>` marks, one per picture; without any the pictures come before it.

    A picture is anything that `images.decode` reads (a Pillow picture, bytes, `{bytes, path}`, base64, a data URL, a path); relative paths start at
    `folder`, or at the place of the row's file when it is None. An empty `id` becomes the row's number.

    >>> Raw(id="7", question="<image>How many?", answer="3", pictures=(b"...",)).choices
    ()
    """

    id: str
    question: str
    answer: str
    pictures: tuple[Any, ...] = ()
    choices: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Outline:
    """A row without its pictures' pixels: the example with no pictures, (width, height) of each as the model gets it, and the sha256 of each encoded
    file."""

    example: Example
    sizes: tuple[tuple[int, int], ...]
    digests: tuple[str, ...]


Make = Callable[[Mapping[str, Any], int], Raw]
T = TypeVar("T")


class Table(Sequence[Example]):
    """Examples made of the rows of `source` by `make(row, number of the row)`; `where` names the data set in errors, `about` says how it is read.

    `make` raises DataError for a row that it cannot use. A slice is a view.
    """

    def __init__(self, source: RowSource, make: Make, *, where: str, data: DataConfig, positions: range | None = None, about: str = "") -> None:
        self.source, self.where, self.about = source, where, about
        self._make, self._data = make, data
        self._positions = range(len(source)) if positions is None else positions

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> Table: ...
    def __getitem__(self, index: int | slice) -> Example | Table:
        if isinstance(index, slice):
            return Table(self.source, self._make, where=self.where, data=self._data, positions=self._positions[index], about=self.about)
        with self._named(index) as position:
            raw = self._raw(position)
            pictures = tuple(self._each(raw, position, prepared))
            return Example(raw.id or f"row-{position}", raw.question, raw.answer, pictures, raw.choices, raw.meta)

    def question(self, index: int) -> str:
        """The question of an example, marks included, without reading its pictures. Raises DataError."""
        with self._named(index) as position:
            return self._raw(position).question

    def sizes(self, index: int) -> list[tuple[int, int]]:
        """(width, height) of the pictures of an example as the model gets them, from their headers alone. Raises DataError."""
        with self._named(index) as position:
            return self._each(self._raw(position), position, prepared_size)

    def outline(self, index: int) -> Outline:
        """What can be known of an example from its cells and its pictures' headers. Raises DataError."""
        with self._named(index) as position:
            raw = self._raw(position)
            example = Example(raw.id or f"row-{position}", raw.question, raw.answer, (), raw.choices, raw.meta)
            pictures = self._each(raw, position, lambda data, settings: (prepared_size(data, settings), images.content_hash(data)))
            return Outline(example, tuple(size for size, _ in pictures), tuple(digest for _, digest in pictures))

    @contextmanager
    def _named(self, index: int) -> Iterator[int]:
        """The position of a row in the source; an error inside the block gets the names of data set, row and file."""
        try:
            position = self._positions[index]
        except IndexError:
            raise IndexError(f"{self.where} has {len(self)} rows, asked for index {index}") from None
        try:
            yield position
        except DataError as error:
            raise DataError(f"{self.where}, row {position} ({self.source.place(position)}): {error}", reason=error.reason) from error.__cause__

    def _raw(self, position: int) -> Raw:
        """The row with its marks: as many as pictures, put before the text when there is none."""
        raw = self._make(self.source.row(position), position)
        if not raw.question.replace(IMAGE_MARK, "").strip():
            raise DataError("the question is empty", reason="empty question")
        for text in (raw.id, raw.question, raw.answer, *raw.choices):
            _check_characters(text)
        if check_marks(raw.question, len(raw.pictures)) < len(raw.pictures):
            return replace(raw, question=IMAGE_MARK * len(raw.pictures) + raw.question)
        return raw

    def _each(self, raw: Raw, position: int, read: Callable[[bytes, DataConfig], T]) -> list[T]:
        """What `read` makes of every picture; an error says which of several it is about."""
        folders = (raw.folder,) if raw.folder is not None else self.source.folders(position)
        results: list[T] = []
        for value in raw.pictures:
            try:
                results.append(read(images.decode(value, folder=folders), self._data))
            except DataError as error:
                which = f"picture {len(results) + 1} of {len(raw.pictures)}: " if len(raw.pictures) > 1 else ""
                raise DataError(f"{which}{error}", reason=error.reason) from error.__cause__
        return results


def _check_characters(text: str) -> None:
    """Half of a surrogate pair cannot be written to any file."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        shown = repr(text[:60].encode("ascii", "backslashreplace").decode())
        message = f"{shown} has half a character (U+{ord(text[error.start]):04X}); expected valid Unicode"
        raise DataError(message, reason="text with half a character") from None


def table(split: str, data: DataConfig) -> Table:
    """The registered data set `table`: rows of the user's own at `data.path`, their columns named by `data` or found by the usual names."""
    if not data.path:
        raise UsageError("data set 'table' needs data.path: a file, a glob, a folder or a hub id such as owner/name")
    source = open_rows(data.path, split, revision=data.revision, hub=data.hub)
    columns = find_columns(source, data)
    if data.template and "{prompt}" not in data.template:
        raise UsageError(f"data.template {data.template!r} has no {{prompt}}; write it where the question is to stand")
    ids = Ids(source, columns.id)

    def make(row: Mapping[str, Any], position: int) -> Raw:
        columns.check_pictures(row, source.folders(position))
        return _raw(row, position, columns, ids, data.template)

    where = f"{data.path} ({split})"
    return Table(source, make, where=where, data=data, about=f"{where}: {len(source)} rows{_files(source, data.path)}; columns: {columns}")


def _files(source: RowSource, path: str) -> str:
    """Which files rows come from, where `path` does not say it: one with another ending or a longer name may stand beside them."""
    names = [file.name for file in source.files]
    if not names or names == [Path(path).name]:
        return ""
    return f" from {', '.join(names[:4])}{f' and {len(names) - 4} more files' if len(names) > 4 else ''}"


def _raw(row: Mapping[str, Any], position: int, columns: Columns, ids: Ids, template: str) -> Raw:
    choices = choices_of(cell(row, columns.choices)) if columns.choices else ()
    question, slots = prompt_text(cell(row, columns.prompt), columns.prompt)
    question = with_choices(question, choices)
    pictures = _filled(slots, [picture for name in columns.images for picture in listed(cell(row, name))])
    question = template.replace("{prompt}", question) if template else question
    check_marks(question, len(pictures), field=repr(columns.prompt), holder=" and ".join(map(repr, columns.images)))
    return Raw(
        id=ids.of(cell(row, columns.id) if columns.id else None, position),
        question=question,
        answer=answer_text(cell(row, columns.answer), columns.answer, choices),
        pictures=pictures,
        choices=choices,
        meta=columns.rest(row),
    )


def _filled(slots: Sequence[Any], pictures: Sequence[Any]) -> tuple[Any, ...]:
    """Pictures in the order of the marks: a mark without one of its own (None) takes the next of `pictures`; what is left comes last."""
    waiting = list(pictures)
    filled = []
    for slot in slots:
        if slot is not None:
            filled.append(slot)
        elif waiting:
            filled.append(waiting.pop(0))
    return (*filled, *waiting)
