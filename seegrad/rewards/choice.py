"""The option letter of a multiple-choice question, by the strict rule: the last `\\boxed{A}` … `\\boxed{D}` decides."""

from __future__ import annotations

import re

from seegrad.types import Example, Score

_OPTION = re.compile(r"\\boxed\s*\{\s*([A-D])\s*\}", re.IGNORECASE)
_LETTERS = ("A", "B", "C", "D")


def choice(example: Example, text: str) -> Score:
    """1 when the last boxed letter is the gold letter, else 0. Nothing else may stand in the box: `\\boxed{(A)}` is no answer.

    Raises ValueError when the gold answer is not one of A to D.

    >>> choice(Example("a", "?", "B"), "2+1=3. \\\\boxed{b}")
    Score(value=1.0, parsed='B', correct=True)
    """
    gold = example.answer.strip().upper()
    if gold not in _LETTERS:
        raise ValueError(f"the gold answer is {example.answer!r}, expected A, B, C or D")
    letters = _OPTION.findall(text)
    if not letters:
        return Score(0.0, parsed=None, correct=False)
    answer = letters[-1].upper()
    return Score(float(answer == gold), parsed=answer, correct=answer == gold)
