"""Which column of a table is the question, the answer, the pictures, the options, the id: as `data` says, else by the usual names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seegrad.config import DataConfig
from seegrad.data.cells import MISSING
from seegrad.data.files import PICTURES as PICTURE_ENDINGS
from seegrad.data.files import RowSource
from seegrad.data.pictures import listed
from seegrad.errors import DataError, UsageError, nearest

PROMPTS = ("problem", "question", "prompt", "query", "instruction", "messages", "conversations", "input", "text")
CHATS = ("messages", "conversations")
ANSWERS = ("answer", "solution", "ground_truth", "label", "gold", "target", "output", "response", "reward_model.ground_truth")
PICTURES = ("images", "image", "img", "picture", "pictures")
PICTURE_FILES = ("image_path", "image_paths", "file_name", "file_names", "image_file", "image_url", "image_urls")  # when no column holds pictures
CHOICES = ("choices", "options")
IDS = ("id", "uid", "question_id", "problem_id", "pid", "index")
LOOKED_AT = 20  # rows, for pictures in columns of any name
_NUMBERED = re.compile(r"(image|img|picture)_?\d+", re.IGNORECASE)
_PICTURE_BYTES = re.compile(rb"\x89PNG|\xff\xd8\xff|RIFF....WEBP|GIF8|BM.{13}\x00{3}|II[*+]\x00|....ftypavi", re.DOTALL)
_PICTURE_TEXT = re.compile(r"data:image/|(iVBORw0KGgo|/9j/|R0lGOD|UklGR)[\w+/=\s-]{60}")  # data URL, or base64 of PNG, JPEG, GIF, WebP


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table by their part. A dotted name is a field inside a column. `str()` says them in one line."""

    prompt: str
    answer: str
    images: tuple[str, ...]
    choices: str | None
    id: str | None
    guessed: bool = True  # the columns of pictures are not named by the user

    def __str__(self) -> str:
        parts = {"prompt": self.prompt, "answer": self.answer, "images": " ".join(self.images), "choices": self.choices, "id": self.id}
        return ", ".join(f"{part}: {name or '–'}" for part, name in parts.items())

    def check_pictures(self, row: Mapping[str, Any], folders: Sequence[Path]) -> None:
        """Raises DataError when a column that is not read holds a picture: a model must not be trained blind because of a name."""
        if not self.guessed:
            return
        used = {self.prompt, self.answer, self.choices, self.id, *self.images}
        # beside a column of pictures, the usual other names hold where the same ones come from
        others = (name for name in row if name not in used and not (self.images and name.lower() in (*PICTURES, *PICTURE_FILES)))
        other = next((place for name in others for place in _places(name, row[name], folders) if place not in used), None)
        if other is not None:
            names = ", ".join(f'"{name}"' for name in (*self.images, other))
            message = f"{other!r} holds a picture but is not read as one; say which columns are: data.image_keys='[{names}]'"
            raise DataError(message, reason="picture in a column that is not read")

    def rest(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The other cells without those of raw bytes: what `Example.meta` holds, for rewards of the user's own."""
        used = {name for name in (self.prompt, self.answer, self.choices, self.id, *self.images) if name}
        return {name: value for name, value in row.items() if name not in used and value is not None and not _has_bytes(value)}


def find_columns(source: RowSource, data: DataConfig) -> Columns:
    """The columns of `source`. Raises UsageError naming the columns that exist when one is missing or cannot be told."""
    prompt = _one(source, "prompt_key", data.prompt_key, PROMPTS)
    answer = _one(source, "answer_key", data.answer_key, ANSWERS)
    choices = _one(source, "choices_key", data.choices_key, CHOICES)
    identity = _one(source, "id_key", data.id_key, IDS)
    if answer is None and prompt is not None and prompt.lower() in CHATS:
        answer = prompt  # the assistant's last message
    if prompt is None or answer is None:
        setting, names = ("prompt_key", PROMPTS) if prompt is None else ("answer_key", ANSWERS)
        raise UsageError(
            f"{source.name}: no column is named like {'a question' if prompt is None else 'an answer'} ({', '.join(names[:5])} …); "
            f"columns: {', '.join(source.columns)}; say which: data.{setting}=NAME"
        )
    rivals = [name for name in source.columns if name.lower() in ("label", "ground_truth")]
    if choices and not data.answer_key and answer.lower() == "answer" and rivals:
        raise UsageError(f"{source.name}: both {answer!r} and {rivals[0]!r} could be the answer; say which: data.answer_key={rivals[0]}")
    if not data.prompt_key and prompt.lower() == "instruction" and (rest := next((name for name in source.columns if name.lower() == "input"), None)):
        raise UsageError(
            f"{source.name}: {prompt!r} and {rest!r} may be two parts of one question; write them into one column, "
            f"or say which one it is: data.prompt_key={prompt}"
        )
    pictures = _pictures(source, data, {prompt, answer, choices, identity})
    columns = Columns(prompt, answer, pictures, choices, identity, guessed=not data.image_keys)
    for index, row in _first_rows(source):
        try:
            columns.check_pictures(row, source.folders(index))
        except DataError as error:
            raise UsageError(f"{source.name}: {error}") from None
    return columns


def cell(row: Mapping[str, Any], name: str) -> Any:
    """A cell, or a field inside it for a dotted name; `MISSING` when the row has none."""
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return MISSING
        value = value[part]
    return value


def _one(source: RowSource, setting: str, given: str, usual: tuple[str, ...]) -> str | None:
    if given:
        return _existing(source, setting, given)
    lower = {name.lower(): name for name in reversed(source.columns)}
    first = next((name for name in usual if name.partition(".")[0] in lower), None)
    return None if first is None else ".".join([lower[first.partition(".")[0]], *first.split(".")[1:]])


def _existing(source: RowSource, setting: str, given: str) -> str:
    top = given.split(".")[0]
    if given in source.columns:
        return given
    if top in source.columns:
        _check_field(source, setting, given, top)
        return given
    hint = nearest(given, source.columns)
    columns = f"; columns: {', '.join(source.columns)}" if "did you mean" in hint else ""
    raise UsageError(f"{source.name}: no column {given!r} (data.{setting}){hint.replace('known:', 'columns:')}{columns}")


def _check_field(source: RowSource, setting: str, given: str, top: str) -> None:
    """Raises UsageError when no row has the field that a dotted name leads to."""
    fields: dict[str, None] = {}
    for value in source.column(top):
        if cell({top: value}, given) is not MISSING:
            return
        if isinstance(value, Mapping):
            fields.update(dict.fromkeys(map(str, value)))
    held = f"its fields: {', '.join(fields)}" if fields else "it has no fields"
    raise UsageError(f"{source.name}: no row has {given!r} (data.{setting}): there is a column {top!r}, but {held}")


def _pictures(source: RowSource, data: DataConfig, used: set[str | None]) -> tuple[str, ...]:
    """Columns of pictures: named by the user, named as usual, numbered (`image_1`, `image_2`), or with pictures in the first rows; else none."""
    if data.image_keys:
        return tuple(_existing(source, "image_keys", name) for name in data.image_keys)
    lower = {name.lower(): name for name in reversed(source.columns)}
    if "decoded_image" in lower:  # beside it, `image` is a path
        return (lower["decoded_image"],)
    found = [lower[name] for name in PICTURES if name in lower]
    if len(found) > 1:
        raise UsageError(f"{source.name}: both {found[0]!r} and {found[1]!r} could be the pictures; say which: data.image_keys='[\"{found[0]}\"]'")
    numbered = [name for name in source.columns if _NUMBERED.fullmatch(name)]
    files = [lower[name] for name in PICTURE_FILES if name in lower]
    usual = found or sorted(numbered, key=lambda name: int(re.findall(r"\d+", name)[-1])) or files[:1]
    if found and numbered:
        names = ", ".join(f'"{name}"' for name in (*found, *numbered))
        raise UsageError(f"{source.name}: both {found[0]!r} and {numbered[0]!r} hold pictures; say which, in order: data.image_keys='[{names}]'")
    if usual:
        return tuple(usual)
    seen: dict[str, None] = {}
    for index, row in _first_rows(source):
        folders = source.folders(index)
        seen.update(dict.fromkeys(place for name in row if name not in used for place in _places(name, row[name], folders)))
    order = {name: number for number, name in enumerate(source.columns)}
    return tuple(sorted(seen, key=lambda place: order.get(place, order.get(place.partition(".")[0], 0))))


def _has_bytes(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_bytes, value.values()))
    return any(map(_has_bytes, value)) if isinstance(value, list) else isinstance(value, bytes)


def _places(name: str, value: Any, folders: Sequence[Path]) -> Iterator[str]:
    """The cell, or the fields inside it, that hold a picture, or several, without a doubt."""
    if isinstance(value, Mapping) and "bytes" not in value:
        for key, inner in value.items():
            yield from _places(f"{name}.{key}", inner, folders)
    elif any(_is_picture(item, folders) for item in listed(value)[:1]):
        yield name


def _is_picture(value: Any, folders: Sequence[Path]) -> bool:
    if isinstance(value, Mapping):
        return value.get("bytes") is not None
    if isinstance(value, bytes):
        return _PICTURE_BYTES.match(value) is not None
    if not isinstance(value, str):
        return False
    return _PICTURE_TEXT.match(value) is not None or (value[-5:].lower().endswith(PICTURE_ENDINGS) and _exists(value, folders))


def _exists(path: str, folders: Sequence[Path]) -> bool:
    try:
        return any((folder / path.strip().replace("\\", "/")).is_file() for folder in folders)
    except (OSError, ValueError):  # no possible name
        return False


def _first_rows(source: RowSource) -> Iterator[tuple[int, dict[str, Any]]]:
    for index in range(min(LOOKED_AT, len(source))):
        try:
            yield index, source.row(index)
        except DataError:
            continue
