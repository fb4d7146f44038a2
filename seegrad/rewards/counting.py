"""Rewards of counting tasks: the right number in the last box, and words before it that say what was counted."""

from __future__ import annotations

import re

from seegrad.rewards.format import ascii_forms, boxes, last_box
from seegrad.types import Example, Score

# What a kind of thing may be called in an answer; a kind that is not here is looked for by its own name.
NAMES = {
    "triangle": ("triangle", "三角"),
    "circle": ("circle", "圆"),
    "square": ("square", "正方形", "方形", "方块"),
}
_ENGLISH = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
]
_ENGLISH += ["sixteen", "seventeen", "eighteen", "nineteen", "twenty"]
_DIGITS = {"零": 0, "〇": 0, "一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9}
_CHINESE = "".join(_DIGITS) + "十"
_TEXT_COMMAND = re.compile(r"\\(?:text|mathrm|mathbf|textbf)\s*\{([^{}]*)\}")
_NUMERAL = re.compile(r"([+-]?)\s*(\d{1,3}(?:,\d{3})+|\d+)(?:\.(\d+))?(.*)", re.ASCII | re.DOTALL)
_ENGLISH_WORD = re.compile(rf"({'|'.join(_ENGLISH)})(?![a-z])(.*)", re.IGNORECASE | re.DOTALL)
_CHINESE_WORD = re.compile(rf"([{_CHINESE}]+)(.*)", re.DOTALL)


def count(example: Example, text: str) -> Score:
    """1 when the number in the last box equals the gold number, else 0; `3`, `３`, `3.0`, `three`, `三个`, `3 red circles` are the same number.

    Raises ValueError when the gold answer is not a number.

    >>> count(Example("a", "?", "3"), "圆形：1+2=3。\\\\boxed{3}")
    Score(value=1.0, parsed='3', correct=True)
    """
    gold = number(example.answer)
    if gold is None:
        raise ValueError(f"the gold answer is {example.answer!r}, expected a number")
    box = last_box(text)
    answer = number(box.content) if box is not None else None
    return Score(float(answer == gold), parsed=answer, correct=answer == gold)


def description(example: Example, text: str) -> float:
    """1 when the words before the first box (the whole text when there is none) name the kind that was asked for, in Chinese or English, else 0.

    The kind is `example.meta["kind"]`; raises ValueError when the row has none.
    """
    kind = example.meta.get("kind")
    if not isinstance(kind, str) or not kind:
        raise ValueError(f"meta['kind'] is {kind!r}, expected the kind of thing that the question asks for")
    first = next(iter(boxes(text)), None)
    words = (text if first is None else text[: first.start]).lower()
    return float(any(name in words for name in NAMES.get(kind, (kind.lower(),))))


def number(text: str) -> str | None:
    """The one number that a short text states, in a canonical form (`3`, `-2`, `2.5`), or None. What follows the number may only name things.

    >>> number(" ＋３.0 "), number("3 or 4"), number("三个圆形")
    ('3', None, '3')
    """
    plain = _TEXT_COMMAND.sub(r" \1 ", ascii_forms(text)).strip().strip("$").strip()
    if found := _NUMERAL.fullmatch(plain):
        sign, whole, fraction, rest = found.groups()
        return _canonical(sign, whole.replace(",", ""), fraction or "") if _names_things(rest, after_digit=True) else None
    if found := _ENGLISH_WORD.fullmatch(plain):
        return str(_ENGLISH.index(found[1].lower())) if _names_things(found[2]) else None
    if found := _CHINESE_WORD.fullmatch(plain):
        value = _chinese(found[1])
        return str(value) if value is not None and _names_things(found[2]) else None
    return None


def _canonical(sign: str, whole: str, fraction: str) -> str:
    digits = (whole.lstrip("0") or "0") + ("." + fraction.rstrip("0")).rstrip(".")
    return "-" + digits if sign == "-" and digits != "0" else digits


def _names_things(rest: str, *, after_digit: bool = False) -> bool:
    """True for nothing, or for words without another number; `3x` and `3 x` are algebra, not three things."""
    if after_digit and re.match(r"[a-z-]", rest, re.IGNORECASE):
        return False
    words = re.findall(r"[a-z]+", rest.lower())
    only_words = all(character.isalpha() or character.isspace() or character in "-.。" for character in rest)
    return only_words and not any(len(word) == 1 or word in _ENGLISH for word in words) and not any(digit in rest for digit in _CHINESE)


def _chinese(word: str) -> int | None:
    """Chinese numerals from 零 to 九十九; None for anything else."""
    tens, ten, ones = word.partition("十")
    if len(tens) > 1 or len(ones) > 1 or "十" in ones:
        return None
    if not ten:
        return _DIGITS[word]
    return 10 * (_DIGITS[tens] if tens else 1) + (_DIGITS[ones] if ones else 0)
