"""Reward functions in every form that people write, right ones and broken ones. Loaded as a file, in the tests and in worker processes."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from seegrad.types import Example, Score


def plain(example: Example, text: str) -> float:
    return float(text == example.answer)


def swapped(text, example):  # type: ignore[no-untyped-def]
    return float(text == example.answer)


def by_position(example: Example, text: str, /) -> float:
    return float(text == example.answer)


def text_alone(text: str) -> int:
    return len(text)


def counted(example: Example, text: str, num_tokens: int, truncated: bool) -> float:
    return num_tokens - 100.0 * truncated


def tunable(example: Example, text: str, *, limit: int, scale: float = 1.0, word: str = "x") -> float:
    return scale * min(limit, text.count(word))


def anything(example: Example, text: str, **settings: Any) -> float:
    return float(sum(settings.values()))


def pictures(example: Example, text: str) -> float:
    return float(sum(map(len, example.images)))


def described(example: Example, text: str) -> float:
    return float(example.meta["number"]) + len(example.choices)


def score(example: Example, text: str) -> Score:
    return Score(0.5, parsed=text or None, correct=text == example.answer)


def group(example: Example, texts: Sequence[str]) -> list[float]:
    """How many answers of the group say the same."""
    return [texts.count(text) / len(texts) for text in texts]


def group_counted(texts: Sequence[str], num_tokens: Sequence[int], truncated: Sequence[bool]) -> Any:
    return np.array([tokens / max(num_tokens) - cut for tokens, cut in zip(num_tokens, truncated, strict=True)])


def group_mixed(example: Example, texts: Sequence[str]) -> list[Any]:
    return [Score(1.0, text, True) if text == example.answer else Fraction(1, 4) for text in texts]


def group_broken(example: Example, texts: Sequence[str]) -> list[Any]:
    return [1.0 if text == example.answer else None for text in texts]


def group_short(example: Example, texts: Sequence[str]) -> list[float]:
    return [1.0]


def group_one_number(example: Example, texts: Sequence[str]) -> float:
    return 1.0


def group_of_text(example: Example, texts: Sequence[str]) -> str:
    return "1" * len(texts)


async def later(example: Example, text: str) -> float:
    await asyncio.sleep(0)
    return float(text == example.answer)


async def later_group(example: Example, texts: Sequence[str], base: float = 0.0) -> list[float]:
    await asyncio.sleep(0)
    return [base + len(text) for text in texts]


def wrapped_later(example: Example, text: str) -> Any:
    """A plain function that gives back something to await, as decorators make them."""
    return later(example, text)


class Judge:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, example: Example, text: str) -> float:
        return self.factor * (text == example.answer)

    def method(self, example: Example, text: str) -> float:
        return 2 * self(example, text)


class LaterJudge:
    async def __call__(self, example: Example, text: str) -> float:
        await asyncio.sleep(0)
        return 3.0 * (text == example.answer)


judge, later_judge = Judge(4.0), LaterJudge()
method = judge.method
part = functools.partial(tunable, limit=2)
later_part = functools.partial(later_group, base=1.0)


def raises(example: Example, text: str) -> float:
    return 1.0 / (len(text) - len(text))


async def raises_later(example: Example, text: str) -> float:
    await asyncio.sleep(0)
    raise LookupError("no such thing")


def exits(example: Example, text: str) -> float:
    raise SystemExit(3)


async def exits_later(example: Example, text: str) -> float:
    raise SystemExit(3)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("even this raises")


def unspeakable(example: Example, text: str) -> float:
    raise Unspeakable


def deep(example: Example, text: str) -> float:
    return deep(example, text)


def does(example: Example, text: str) -> float:
    """What the text says; on anything else, 1 when it is the answer."""
    what, _, argument = text.partition(" ")
    if what in ("sleep", "wait"):
        time.sleep(float(argument))
    elif what == "spin":
        re.match(r"(a+)+$", "a" * 80 + "b")  # holds the interpreter for ages: no thread and no handler runs meanwhile
    elif what == "exit":
        os._exit(int(argument))
    elif what == "signal":
        os.kill(os.getpid(), getattr(signal, argument))
        time.sleep(60)
    elif what == "print":
        print(argument * 1000)
        print(argument * 1000, file=sys.stderr)
    elif what == "raw":
        os.write(1, argument.encode() * 1000)
    elif what == "pid":
        Path(argument, str(os.getpid())).touch()
    elif what == "child":
        child = os.fork()
        if child == 0:
            time.sleep(600)
        Path(argument, str(child)).touch()
        time.sleep(600)
    elif what == "session":
        Path(argument, str(subprocess.Popen(["sleep", "600"], start_new_session=True).pid)).touch()
    elif what == "surrogate":
        raise ValueError("\ud800")
    elif what == "fork":
        return float(os.fork() > 0)  # both go on from here
    elif what == "interrupt":
        raise KeyboardInterrupt
    elif what == "read":
        return float(len(sys.stdin.read()))
    return float(text == example.answer)


async def does_later(example: Example, text: str) -> float:
    """As `does`, without holding up the others where that can be."""
    what, _, argument = text.partition(" ")
    if what == "wait":
        await asyncio.sleep(float(argument))
    elif what == "stubborn":
        for _ in range(600):
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue
    else:
        return does(example, text)
    return float(text == example.answer)


class Meeting:
    """Async calls that wait for one another: none returns before `meet_at` of them are under way."""

    def __init__(self) -> None:
        self.here, self.most = 0, 0

    async def __call__(self, example: Example, text: str, meet_at: int) -> float:
        self.here += 1
        self.most = max(self.most, self.here)
        while self.most < meet_at:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        self.here -= 1
        return float(self.most)


meeting = Meeting()


def torch_is_here(example: Example, text: str) -> float:
    return float("torch" in sys.modules)


def main_is_ours(example: Example, text: str) -> float:
    return float(hasattr(sys.modules["__main__"], "pytest"))
