"""The IoU reward of grounding tasks: how much the boxed rectangle overlaps the gold one."""

from __future__ import annotations

import math
import re

from seegrad.rewards.format import ascii_forms, last_box
from seegrad.types import Example, Score

THRESHOLD = 0.5  # of IoU, from which an answer counts as correct
Rectangle = tuple[float, float, float, float]
_NUMBER = re.compile(r"(?<![\d.])[+-]?\d+(?:\.\d+)?", re.ASCII)


def iou(example: Example, text: str) -> Score:
    """The intersection over union of the rectangle in the last box with the gold `x1,y1,x2,y2`; correct from 0.5 on.

    Coordinates are continuous pixels (width is x2 − x1); an empty or inverted rectangle overlaps nothing. Brackets and spaces are tolerated; `parsed`
    is None unless the box holds exactly four numbers. Raises ValueError when the gold answer is no rectangle.

    >>> iou(Example("a", "?", "0,0,10,10"), "\\\\boxed{[5, 0, 10, 10]}").value
    0.5
    """
    gold = rectangle(example.answer)
    if gold is None or overlap(gold, gold) < 1:
        raise ValueError(f"the gold answer is {example.answer!r}, expected x1,y1,x2,y2 with x1 < x2 and y1 < y2")
    box = last_box(text)
    answer = rectangle(box.content) if box is not None else None
    if answer is None:
        return Score(0.0, parsed=None, correct=False)
    value = overlap(answer, gold)
    return Score(value, parsed=",".join(f"{side:g}" for side in answer), correct=value >= THRESHOLD)


def rectangle(text: str) -> Rectangle | None:
    """The four numbers of a text, or None when there are fewer or more, or one is too large to be a coordinate."""
    numbers = [float(number) for number in _NUMBER.findall(ascii_forms(text))]
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
