"""Is the boxed answer the gold answer? For answers that are numbers, expressions, quantities with units, lists, intervals, ratios or a few words.

    last box → plain form → reading ─┐
    gold     → plain form → reading ─┴→ the same exact value? → yes · no · undecided or unknown notation → math-verify → yes · no

An answer is right only when it is shown to be; docs/graders.md has the rules and the table of verdicts.
"""

from __future__ import annotations

import re
from functools import lru_cache

from seegrad.rewards import library, reading, units
from seegrad.rewards.answers import Reading
from seegrad.rewards.choice import ALPHABET, letter
from seegrad.rewards.format import last_box
from seegrad.rewards.latex import plain
from seegrad.rewards.numbers import Unreadable
from seegrad.types import Example, Score


def math(example: Example, text: str, *, tolerance: float = 0.0) -> Score:
    """1 when what is in the last box is the gold answer, else 0. `tolerance`: also right is a number within this share of the gold number.

    `parsed` is the content of the box, or None when there is no box or nothing can be read in it. A missing unit is accepted, a wrong one is not.
    Raises ValueError when the gold answer cannot be read, and for a tolerance outside [0, 1).

    >>> math(Example("a", "?", "20√{2}海里"), "so \\\\boxed{20\\\\sqrt{2}}").correct
    True
    """
    if not 0 <= tolerance < 1:
        raise ValueError(f"tolerance is {tolerance}, expected a share of the gold number, from 0 to below 1 (0.01 for one percent)")
    gold = _gold(example.answer, example.question)
    box = last_box(text)
    content = box.content.strip() if box is not None else ""
    if not content:
        return Score(0.0, parsed=None, correct=False)
    shown = " ".join(content.split())
    if isinstance(gold, str):
        options = ALPHABET[: max(4, len(example.choices), ALPHABET.index(gold) + 1)]
        option = letter(content, options, example.choices)
        return Score(float(option == gold), parsed=option, correct=option == gold)
    answer = _answer(content, example.question)
    if answer is None and not library.readable(content):
        return Score(0.0, parsed=None, correct=False)
    verdict = None if gold is None or answer is None else reading.same(gold, answer, tolerance)
    if verdict is None:
        verdict = library.same(example.answer, content)
    return Score(float(verdict), parsed=shown, correct=verdict)


@lru_cache(maxsize=4096)
def _gold(answer: str, question: str) -> Reading | str | None:
    """A reading; an option letter as text; None for what only math-verify can read. Raises ValueError for what nothing can read."""
    if re.fullmatch("[A-Z]", plain(answer)):
        return plain(answer)
    try:
        return reading.read(answer, _variables(question))
    except Unreadable as error:
        if library.readable(answer):
            return None
        hint = "" if library.available() else "; more notations are known with: pip install 'seegrad[math]'"
        raise ValueError(f"the gold answer {answer!r} cannot be read ({error}), expected a number, an expression or a few words{hint}") from None


def _answer(content: str, question: str) -> Reading | None:
    try:
        return reading.read(content, _variables(question))
    except Unreadable:
        return None


@lru_cache(maxsize=1024)
def _variables(question: str) -> frozenset[str]:
    return units.variables(question)
