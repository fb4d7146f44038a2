"""The IoU reward of grounding tasks: how much the boxed rectangle overlaps the gold one."""

from __future__ import annotations

import math
import re

from seegrad import images
from seegrad.rewards.format import ascii_forms, last_box
from seegrad.types import Example, Score

THRESHOLD = 0.5  # of IoU, from which an answer counts as correct
Rectangle = tuple[float, float, float, float]
_KEY = re.compile(r"bbox_?2d", re.IGNORECASE)  # how some models name the rectangle; its 2 is no coordinate
_NUMBER = re.compile(r"(?<![\d.])[+-]?\d+(?:\.\d+)?", re.ASCII)


def iou(example: Example, text: str, *, relative: float = 0.0) -> Score:
    """The intersection over union of the rectangle in the last box with the gold `x1,y1,x2,y2`; correct from 0.5 on.

    Coordinates are continuous pixels (width is x2 − x1); an empty or inverted rectangle overlaps nothing. Brackets and spaces are tolerated; `parsed`
    is None unless the box holds exactly four numbers. `relative` (for example 1000) says that answers count both sides of the first image from 0 to
    that number; without it they are pixels, like the gold. Raises ValueError when the gold answer is no rectangle, for a negative or infinite
    `relative`, and for one without an image.

    >>> iou(Example("a", "?", "0,0,10,10"), "\\\\boxed{[5, 0, 10, 10]}").value
    0.5
    """
    gold = rectangle(example.answer)
    if gold is None or overlap(gold, gold) < 1:
        raise ValueError(f"the gold answer is {example.answer!r}, expected x1,y1,x2,y2 with x1 < x2 and y1 < y2")
    scale = _scale(example, relative)
    box = last_box(text)
    answer = rectangle(box.content) if box is not None else None
    if answer is None:
        return Score(0.0, parsed=None, correct=False)
    value = overlap((answer[0] * scale[0], answer[1] * scale[1], answer[2] * scale[0], answer[3] * scale[1]), gold)
    return Score(value, parsed=",".join(f"{side:g}" for side in answer), correct=value >= THRESHOLD)


def _scale(example: Example, relative: float) -> tuple[float, float]:
    """Pixels per unit of an answer's coordinates, along and across."""
    if not 0 <= relative < math.inf:
        raise ValueError(f"relative is {relative}, expected the number that stands for a whole side (1000), or 0 for pixels")
    if not relative:
        return 1.0, 1.0
    if not example.images:
        raise ValueError(f"relative is {relative:g}, but sample {example.id!r} has no image whose size would be meant")
    width, height = images.size(example.images[0])
    return width / relative, height / relative


def rectangle(text: str) -> Rectangle | None:
    """The four numbers of a text, or None when there are fewer or more, or one is too large to be a coordinate."""
    numbers = [float(number) for number in _NUMBER.findall(_KEY.sub(" ", ascii_forms(text)))]
    if len(numbers) != 4 or not all(math.isfinite(value) for value in numbers):
        return None
    return (numbers[0], numbers[1], numbers[2], numbers[3])


def overlap(a: Rectangle, b: Rectangle) -> float:
    """Intersection over union in [0, 1]; 0 when either has no area.

    >>> overlap((0, 0, 2, 2), (1, 0, 3, 2))
    0.3333333333333333
    """
    if min(a[2] - a[0], a[3] - a[1], b[2] - b[0], b[3] - b[1]) <= 0:
        return 0.0
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(width, 0.0) * max(height, 0.0)
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
    return min(max(shared / union, 0.0), 1.0) if 0 < union < math.inf else 0.0
