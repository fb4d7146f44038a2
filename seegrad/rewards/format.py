"""The `\\boxed{…}` form of an answer: finding boxes, and the reward for the right form."""

from __future__ import annotations

import re
from dataclasses import dataclass

from seegrad.types import Example

_OPENING = re.compile(r"\\boxed\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
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


def boxes(text: str) -> list[Box]:
    """Every `\\boxed{…}` whose braces close, outer ones only, in order. One pass, whatever the text; an escaped brace counts as text."""
    starts = {match.end() - 1: match.start() for match in _OPENING.finditer(text)}
    found: list[tuple[int, int, int]] = []  # start of the box, its opening brace, its closing brace
    open_braces: list[int] = []
    for match in _BRACE.finditer(text):
        if match.group() == "{":
            open_braces.append(match.start())
        elif match.group() == "}" and open_braces:
            opening = open_braces.pop()
            if opening in starts:
                while found and found[-1][0] > starts[opening]:
                    found.pop()
                found.append((starts[opening], opening, match.start()))
    return [Box(text[opening + 1 : closing], start, closing + 1) for start, opening, closing in found]


def last_box(text: str) -> Box | None:
    """The last box; None without one, and when another `\\boxed` begins behind it and does not close (a second answer that was cut off)."""
    found = boxes(text)
    return found[-1] if found and text.find("\\boxed", found[-1].end) < 0 else None


def ascii_forms(text: str) -> str:
    """Full-width signs, digits and letters (and the minus sign U+2212) as their ASCII forms."""
    return text.translate(_ASCII_FORMS)


_ASCII_FORMS = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: " ", 0x2212: "-", 0x3001: ","}
