"""Which column of a table is the question, the answer, the pictures, the options, the id: as `data` says, else by the usual names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from seegrad.config import DataConfig
from seegrad.data.cells import MISSING
from seegrad.data.files import RowSource
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


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table by their part. A dotted name is a field inside a column. `str()` says them in one line."""

    prompt: str
    answer: str
    images: tuple[str, ...]
    choices: str | None
    id: str | None

    def __str__(self) -> str:
        parts = {"prompt": self.prompt, "answer": self.answer, "images": " ".join(self.images), "choices": self.choices, "id": self.id}
        return ", ".join(f"{part}: {name or '–'}" for part, name in parts.items())

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
    return Columns(prompt, answer, _pictures(source, data, {prompt, answer, choices, identity}), choices, identity)


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
    if given in source.columns or ("." in given and given.split(".")[0] in source.columns):
        return given
    hint = nearest(given, source.columns)
    columns = f"; columns: {', '.join(source.columns)}" if "did you mean" in hint else ""
    raise UsageError(f"{source.name}: no column {given!r} (data.{setting}){hint.replace('known:', 'columns:')}{columns}")


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
    if usual:
        return tuple(usual)
    # a model must not be trained blind because of a name
    seen = {name for row in _first_rows(source) for name, value in row.items() if name not in used and _is_picture(value)}
    return tuple(name for name in source.columns if name in seen)


def _has_bytes(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_bytes, value.values()))
    return any(map(_has_bytes, value)) if isinstance(value, list) else isinstance(value, bytes)


def _is_picture(value: Any) -> bool:
    """Whether a cell holds a picture, or several, without a doubt."""
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(first, Mapping):
        return "bytes" in first
    if isinstance(first, bytes):
        return first.startswith((b"\x89PNG", b"\xff\xd8\xff", b"RIFF", b"GIF8"))
    return isinstance(first, str) and first.startswith("data:image/")


def _first_rows(source: RowSource) -> Iterator[dict[str, Any]]:
    for index in range(min(LOOKED_AT, len(source))):
        try:
            yield source.row(index)
        except DataError:
            continue
