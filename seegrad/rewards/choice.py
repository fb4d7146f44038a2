"""The option letter of a multiple-choice question: by the strict rule, and by a tolerant one that reads what models write into the box."""

from __future__ import annotations

import re
from functools import lru_cache

from seegrad.rewards.format import last_box
from seegrad.rewards.latex import MAX_LENGTH, plain
from seegrad.rewards.numbers import Unreadable
from seegrad.rewards.reading import read, same
from seegrad.types import Example, Score

_OPTION = re.compile(r"\\boxed\s*\{\s*([A-D])\s*\}", re.IGNORECASE)
_LETTERS = ("A", "B", "C", "D")
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LEAD = r"(?:(?:the\s+)?(?:correct\s+)?(?:answer|option|choice)\s*(?:is)?|正确答案|正确选项|答案|选项|选择|故选|应选|选)"
_LABELLED = re.compile(
    rf"{_LEAD}?\s*(?:是|为)?\s*[:=]?\s*[(\[{{]?\s*([A-Z])\s*[)\]}}]?\s*(?:选项|项)?\s*(?:[.:,)]\s*(.*))?", re.IGNORECASE | re.DOTALL
)
_OTHER_LETTER = re.compile(r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])")


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


def choice_tolerant(example: Example, text: str) -> Score:
    """1 when the last box names the gold option: as `\\text{A}`, `(A)`, `A.`, `A. 45`, `Ａ`, `选A`, or by the content of exactly one of the choices.

    The options are A to D, or as many letters as the example has choices when those are more. Raises ValueError when the gold answer is none of them.

    >>> choice_tolerant(Example("a", "?", "B"), "so \\\\boxed{\\\\text{(b)}}")
    Score(value=1.0, parsed='B', correct=True)
    """
    options = ALPHABET[: max(len(_LETTERS), len(example.choices))]
    gold = letter(example.answer, options)
    if gold is None:
        raise ValueError(f"the gold answer is {example.answer!r}, expected a letter from A to {options[-1]}")
    box = last_box(text)
    answer = None if box is None else letter(box.content, options, example.choices)
    return Score(float(answer == gold), parsed=answer, correct=answer == gold)


def letter(content: str, options: str, choices: tuple[str, ...] = ()) -> str | None:
    """The one option that a text names, or None: none, several, or a letter with the content of another option.

    >>> letter("A. 45", "ABCD", ("45", "60")), letter("A. 60", "ABCD", ("45", "60")), letter("60", "ABCD", ("45", "60")), letter("A, B", "ABCD")
    ('A', None, 'B', None)
    """
    if len(content) > MAX_LENGTH:
        return None
    form = plain(content)
    labelled = _LABELLED.fullmatch(form)
    if labelled is None:
        return _by_content(content, options, choices)
    named, rest = labelled[1].upper(), labelled[2]
    if named not in options:
        return None
    if not rest:
        return named
    meant = _by_content(rest, options, choices)
    if meant is not None:
        return named if meant == named else None
    return None if any(found.upper() in options for found in _OTHER_LETTER.findall(rest) if found.upper() != named) else named


def _by_content(content: str, options: str, choices: tuple[str, ...]) -> str | None:
    if not choices or len(choices) > len(options):
        return None
    stripped = [" ".join(text.split()) for text in choices]
    equal = [place for place, text in enumerate(stripped) if text == " ".join(content.split())]
    if not equal:
        equal = [place for place, text in enumerate(choices) if _same(text, content)]
    return options[equal[0]] if len(equal) == 1 else None


@lru_cache(maxsize=4096)
def _same(choice: str, content: str) -> bool:
    try:
        return same(read(choice), read(content)) is True
    except Unreadable:
        return False
