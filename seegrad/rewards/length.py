"""Rewards against answers that are too long or that say the same again."""

from __future__ import annotations

import re

from seegrad.types import Example

_WORD = re.compile(r"[㐀-䶿一-鿿豈-﫿]|[^\W㐀-䶿一-鿿豈-﫿]+|[^\w\s]")


def length(example: Example, text: str, num_tokens: int, max_tokens: int = 4096, buffer: int = 1024) -> float:
    """0 up to `max_tokens - buffer` tokens, then down in a straight line to -1 at `max_tokens`, and -1 beyond: the soft over-long punishment of
    DAPO (arXiv 2503.14476, section 3.4, equation 13). With `buffer` 0 it falls at once, after `max_tokens`.

    Raises ValueError when the number of tokens is not known, or for limits that mean nothing.

    >>> [length(Example("a", "?", "3"), "", tokens, max_tokens=100, buffer=20) for tokens in (80, 90, 100, 110)]
    [0.0, -0.5, -1.0, -1.0]
    """
    if max_tokens < 1 or not 0 <= buffer <= max_tokens:
        raise ValueError(f"max_tokens is {max_tokens} and buffer {buffer}, expected 0 ≤ buffer ≤ max_tokens and max_tokens ≥ 1")
    if num_tokens < 1:
        raise ValueError("the number of tokens of the answer is not known")
    over = num_tokens - (max_tokens - buffer)
    if over <= 0:
        return 0.0
    return -1.0 if over >= buffer else -over / buffer


def repetition(example: Example, text: str, n: int = 3, penalty: float = 1.0) -> float:
    """Minus `penalty` times the share of n-grams that stood in the text before: 0 when every run of `n` words is new, near `-penalty` for one that
    never ends. Words are runs of letters or digits; a Chinese character and a sign are words of their own. 0 for a text of fewer than `n` words.

    Raises ValueError for n below 1 or a penalty below 0.

    >>> repetition(Example("a", "?", "3"), "one two one two one two", n=2)
    -0.6
    """
    if n < 1 or penalty < 0:
        raise ValueError(f"n is {n} and penalty {penalty}, expected n ≥ 1 and penalty ≥ 0")
    words = _WORD.findall(text.lower())
    grams = [tuple(words[start : start + n]) for start in range(len(words) - n + 1)]
    return 0.0 if not grams else -penalty * (len(grams) - len(set(grams))) / len(grams)
