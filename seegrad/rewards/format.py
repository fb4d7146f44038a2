"""The `\\boxed{…}` form of an answer: finding boxes, and the reward for the right form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from seegrad.types import Example

_OPENING = re.compile(r"\\boxed\s*\{")
_AFTER_BOX = re.compile(r"[\s.。$]*")


@dataclass(frozen=True, slots=True)
class Box:
    """One `\\boxed{…}` in a text: what is inside the braces, and where the whole of it starts and ends."""

    content: str
    start: int
    end: int


def format(example: Example, text: str) -> float:
    """1 for text, then exactly one box that is not empty, then nothing but a full stop, `$` or white space; else 0.

    >>> format(Example("a", "?", "3"), "1+2=3, so \\\\boxed{3}.")
    1.0
    """
    if text.count("\\boxed") != 1:
        return 0.0
    box = last_box(text)
    if box is None or not box.content.strip() or not any(character.isalnum() for character in text[: box.start]):
        return 0.0
    return float(_AFTER_BOX.fullmatch(text, box.end) is not None)


def boxes(text: str) -> Iterator[Box]:
    """Every `\\boxed{…}` whose braces close, outer ones only, in order."""
    position = 0
    while (opening := _OPENING.search(text, position)) is not None:
        end = _closing(text, opening.end())
        if end is None:
            position = opening.end()
            continue
        yield Box(text[opening.end() : end], opening.start(), end + 1)
        position = end + 1


def last_box(text: str) -> Box | None:
    """The last box, or None."""
    found = None
    for found in boxes(text):  # noqa: B007
        pass
    return found


def ascii_forms(text: str) -> str:
    """Full-width signs, digits and letters (and the minus sign U+2212) as their ASCII forms."""
    return text.translate(_ASCII_FORMS)


_ASCII_FORMS = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: " ", 0x2212: "-", 0x3001: ","}


def _closing(text: str, start: int) -> int | None:
    """Index of the brace that closes the one before `start`, or None; an escaped brace counts as text."""
    depth, position = 1, start
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 2
            continue
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return position
        position += 1
    return None
