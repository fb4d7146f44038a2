"""Rows of a table → examples: each cell read, each picture decoded and cleaned, `<image>` marks and pictures counted.

    RowSource ─ make ─▶ Raw(question, answer, pictures …) ─ decode · clean · blank ─▶ Example
      files.py    └ `table` (columns.py, cells.py) or a data set's own function

One row is read at a time and none is kept; a row that cannot be used raises DataError when it is asked for, and hides no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

from seegrad import images
from seegrad.config import DataConfig
from seegrad.data.cells import answer_text, choices_of, is_missing, prompt_text, with_choices
from seegrad.data.columns import Columns, cell, find_columns
from seegrad.data.files import RowSource, open_rows
from seegrad.data.ids import Ids
from seegrad.errors import DataError, UsageError
from seegrad.types import Example

IMAGE_MARK = "<image>"  # where a picture stands in a question
MAX_ASPECT = 200.0  # no side is more than this many times the other: image processors refuse narrower pictures, so white is added


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


Make = Callable[[Mapping[str, Any], int], Raw]


class Table(Sequence[Example]):
    """Examples made of the rows of `source` by `make(row, number of the row)`; `where` names the data set in errors.

    `make` raises DataError for a row that it cannot use. A slice is a view.
    """

    def __init__(self, source: RowSource, make: Make, *, where: str, data: DataConfig, positions: range | None = None) -> None:
        self.source, self.where = source, where
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
            return Table(self.source, self._make, where=self.where, data=self._data, positions=self._positions[index])
        position = self._position(index)
        try:
            raw = self._raw(position)
            pictures = tuple(self._clean(data, number) for number, data in enumerate(self._encoded(raw, position), 1))
        except DataError as error:
            raise DataError(f"{self.where}, {self._place(position)}: {error}", reason=error.reason) from error.__cause__
        return Example(raw.id or f"row-{position}", raw.question, raw.answer, pictures, raw.choices, raw.meta)

    def question(self, index: int) -> str:
        """The question of an example, marks included, without reading its pictures. Raises DataError."""
        return self._checked(index)[0].question

    def sizes(self, index: int) -> list[tuple[int, int]]:
        """(width, height) of the pictures of an example, from their headers alone. Raises DataError."""
        raw, position = self._checked(index)
        try:
            return [images.size(data) for data in self._encoded(raw, position)]
        except DataError as error:
            raise DataError(f"{self.where}, {self._place(position)}: {error}", reason=error.reason) from error.__cause__

    def _checked(self, index: int) -> tuple[Raw, int]:
        position = self._position(index)
        try:
            return self._raw(position), position
        except DataError as error:
            raise DataError(f"{self.where}, {self._place(position)}: {error}", reason=error.reason) from error.__cause__

    def _position(self, index: int) -> int:
        try:
            return self._positions[index]
        except IndexError:
            raise IndexError(f"{self.where} has {len(self)} rows, asked for index {index}") from None

    def _place(self, position: int) -> str:
        return f"row {position} ({self.source.place(position)})"

    def _raw(self, position: int) -> Raw:
        """The row with its marks: as many as pictures, put before the text when there is none."""
        raw = self._make(self.source.row(position), position)
        if not raw.question.replace(IMAGE_MARK, "").strip():
            raise DataError("the question is empty", reason="empty question")
        num_marks, num_pictures = raw.question.count(IMAGE_MARK), len(raw.pictures)
        if num_marks not in (0, num_pictures):
            raise DataError(
                f"the question has {num_marks} {IMAGE_MARK} marks but there are {num_pictures} pictures; write one mark per picture, or none",
                reason="wrong number of <image> marks",
            )
        if num_pictures and not num_marks:
            return Raw(raw.id, IMAGE_MARK * num_pictures + raw.question, raw.answer, raw.pictures, raw.choices, raw.meta, raw.folder)
        return raw

    def _encoded(self, raw: Raw, position: int) -> list[bytes]:
        folders = (raw.folder,) if raw.folder is not None else self.source.folders(position)
        return [_decode(value, folders) for value in raw.pictures]

    def _clean(self, data: bytes, number: int) -> bytes:
        clean = images.clean(data)
        return images.blank(clean) if self._data.blank_images else clean


def table(split: str, data: DataConfig) -> Table:
    """The registered data set `table`: rows of the user's own at `data.path`, their columns named by `data` or found by the usual names."""
    if not data.path:
        raise UsageError("data set 'table' needs data.path: a file, a glob, a folder or a hub id such as owner/name")
    source = open_rows(data.path, split, revision=data.revision, hub=data.hub)
    columns = find_columns(source, data)
    if data.template and "{prompt}" not in data.template:
        raise UsageError(f"data.template {data.template!r} has no {{prompt}}; write it where the question is to stand")
    ids = Ids(source, columns.id)
    return Table(source, lambda row, position: _raw(row, position, columns, ids, data.template), where=f"{data.path} ({split})", data=data)


def _raw(row: Mapping[str, Any], position: int, columns: Columns, ids: Ids, template: str) -> Raw:
    choices = choices_of(cell(row, columns.choices)) if columns.choices else ()
    question, inner_pictures = prompt_text(cell(row, columns.prompt), columns.prompt)
    question = with_choices(question, choices)
    pictures = [*inner_pictures]
    for name in columns.images:
        value = cell(row, name)
        pictures += value if isinstance(value, list | tuple) else [] if is_missing(value) else [value]
    return Raw(
        id=ids.of(cell(row, columns.id) if columns.id else None, position),
        question=template.replace("{prompt}", question) if template else question,
        answer=answer_text(cell(row, columns.answer), columns.answer, choices),
        pictures=tuple(pictures),
        choices=choices,
        meta=columns.rest(row),
    )


def _decode(value: Any, folders: Sequence[Path]) -> bytes:
    """An encoded picture; a relative path is looked for in each folder in turn."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, Mapping) and value.get("bytes"):
        return bytes(value["bytes"])
    path = Path(str(value["path"] if isinstance(value, Mapping) else value))
    found = next((folder / path for folder in folders if (folder / path).is_file()), None)
    if found is None:
        raise DataError(f"picture {str(path)!r} does not exist (looked in {', '.join(map(str, folders))})", reason="picture file is missing")
    return found.read_bytes()
