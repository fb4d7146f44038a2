"""Which column of a table is the question, the answer, the pictures, the options, the id: as `data` says, else by the usual names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seegrad.config import DataConfig
from seegrad.data.cells import MISSING
from seegrad.data.files import RowSource
from seegrad.errors import UsageError, nearest

PROMPTS = ("problem", "question", "prompt", "query", "instruction", "messages", "conversations", "input", "text")
ANSWERS = ("answer", "solution", "ground_truth", "label", "gold", "target", "output", "response", "reward_model.ground_truth")
PICTURES = ("images", "image", "decoded_image", "img", "picture", "pictures", "image_path", "image_paths", "file_name", "image_url", "image_urls")
CHOICES = ("choices", "options")
IDS = ("id", "uid", "question_id", "problem_id", "pid", "index")
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
        """The other cells that are plain values: what `Example.meta` holds."""
        used = {name for name in (self.prompt, self.answer, self.choices, self.id, *self.images) if name}
        return {name: value for name, value in row.items() if name not in used and isinstance(value, str | int | float | bool)}


def find_columns(source: RowSource, data: DataConfig) -> Columns:
    """The columns of `source`. Raises UsageError naming the columns that exist when one is missing or cannot be told."""
    prompt = _one(source, "prompt_key", data.prompt_key, PROMPTS)
    answer = _one(source, "answer_key", data.answer_key, ANSWERS)
    if prompt is None or answer is None:
        part, setting, names = ("question", "prompt_key", PROMPTS) if prompt is None else ("answer", "answer_key", ANSWERS)
        raise UsageError(
            f"{source.name}: no column is named like a {part} ({', '.join(names[:5])} …); columns: {', '.join(source.columns)}; "
            f"say which: data.{setting}=NAME"
        )
    return Columns(
        prompt, answer, _pictures(source, data), _one(source, "choices_key", data.choices_key, CHOICES), _one(source, "id_key", data.id_key, IDS)
    )


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
    return next((lower[name] for name in usual if name in lower), None)


def _existing(source: RowSource, setting: str, given: str) -> str:
    if given in source.columns or ("." in given and given.split(".")[0] in source.columns):
        return given
    hint = nearest(given, source.columns)
    columns = f"; columns: {', '.join(source.columns)}" if "did you mean" in hint else ""
    raise UsageError(f"{source.name}: no column {given!r} (data.{setting}){hint.replace('known:', 'columns:')}{columns}")


def _pictures(source: RowSource, data: DataConfig) -> tuple[str, ...]:
    if data.image_keys:
        return tuple(_existing(source, "image_keys", name) for name in data.image_keys)
    lower = {name.lower(): name for name in reversed(source.columns)}
    found = [lower[name] for name in PICTURES if name in lower]
    numbered = sorted((name for name in source.columns if _NUMBERED.fullmatch(name)), key=lambda name: int(re.findall(r"\d+", name)[-1]))
    if "decoded_image" in lower and len(found) > 1:
        found = [lower["decoded_image"]]
    return tuple(found[:1] or numbered)
