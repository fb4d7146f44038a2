"""Several graders, one reward: the weighted sum of the parts that a config names."""

from __future__ import annotations

import inspect
import math
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, SupportsFloat, cast

import numpy as np

from seegrad import registry
from seegrad.errors import UsageError
from seegrad.types import Example, Score

RewardFunction = Callable[[Example, str], Score | float]


class Grade(NamedTuple):
    """What the graders say of one answer; `error` names a grader that failed, and then `reward` is 0 and means nothing."""

    scores: dict[str, float]
    reward: float
    parsed: str | None
    correct: bool
    error: str | None


class Rewards:
    """The reward parts of a run, loaded once. Raises UsageError for an unknown name, a file that does not load, or a weight that is not finite.

    >>> Rewards({"count": 1.0, "format": 0.2}).grade(Example("a", "?", "3"), "1+2=3, \\\\boxed{3}").reward
    1.2
    """

    def __init__(self, parts: Mapping[str, float]) -> None:
        if not parts:
            raise UsageError("reward.parts is empty; name at least one reward, for example reward.parts.count=1")
        self.parts: dict[str, float] = dict(parts)
        self._functions: dict[str, RewardFunction] = {}
        for name, weight in self.parts.items():
            if not math.isfinite(weight):
                raise UsageError(f"reward {name!r} has weight {weight}, expected a finite number")
            function = registry.load("reward", name)
            if not callable(function):
                raise UsageError(f"reward {name!r} is {type(function).__name__}, expected a function (example, text) -> number or Score")
            self._functions[name] = function

    def grade(self, example: Example, text: str) -> Grade:
        """Grade one answer with every part.

        `parsed` and `correct` come from the first part that says whether the answer is right. When none does, `parsed` comes from the first that
        returns a Score (else it is the text), and an answer is correct when the first part gives at least 1. A part that raises, or returns
        anything but a finite number or a Score, is an error and never a score of 0.
        """
        verdicts: dict[str, Score | float] = {}
        errors: list[str] = []
        for name, function in self._functions.items():
            try:
                verdict = function(example, text)
            except (Exception, SystemExit) as error:
                errors.append(_describe(name, function, example, error))
                continue
            if (number := _as_number(verdict)) is None:
                errors.append(_not_expected(name, function, example, verdict))
                continue
            if isinstance(verdict, Score):
                if not isinstance(verdict.correct, bool | np.bool_ | None):  # any text would count as right
                    errors.append(_not_expected(name, function, example, verdict, "Score.correct to be True, False or None"))
                    continue
                verdict = verdict if isinstance(verdict.parsed, str | None) else replace(verdict, parsed=str(verdict.parsed))
            verdicts[name] = verdict if isinstance(verdict, Score) else number
        scores = {name: verdict.value if isinstance(verdict, Score) else verdict for name, verdict in verdicts.items()}
        scores = {name: float(value) for name, value in scores.items()}
        parsed, correct = self._opinion(verdicts, scores, text)
        reward = sum(self.parts[name] * value for name, value in scores.items())
        if not math.isfinite(reward):
            errors.append(f"the weighted sum of {scores} is not a finite number (sample {example.id!r})")
        if errors:
            return Grade(scores, 0.0, parsed, False, "; ".join(errors))
        return Grade(scores, reward, parsed, correct, None)

    def _opinion(self, verdicts: Mapping[str, Score | float], scores: Mapping[str, float], text: str) -> tuple[str | None, bool]:
        opinions = [verdict for verdict in verdicts.values() if isinstance(verdict, Score)]
        for opinion in opinions:
            if opinion.correct is not None:
                return opinion.parsed, bool(opinion.correct)
        first = next(iter(self.parts))
        return (opinions[0].parsed if opinions else text), scores.get(first, 0.0) >= 1


def _as_number(verdict: Any) -> float | None:
    """The finite number that a grader gave (also as Score, bool, NumPy scalar or one-element tensor), or None."""
    value = verdict.value if isinstance(verdict, Score) else verdict
    if not isinstance(value, SupportsFloat):
        return None
    try:
        number = float(value)
    except Exception:  # arrays of several elements, among others
        return None
    return number if math.isfinite(number) else None


def _describe(name: str, function: RewardFunction, example: Example, error: BaseException) -> str:
    """One line: which grader, which exception, where in the grader's own file, on which sample."""
    file, line = _definition(function)
    for frame in traceback.extract_tb(error.__traceback__)[1:]:  # the first frame is the caller above
        if frame.filename == file and frame.lineno is not None:
            line = frame.lineno
    reason = " ".join(str(error).split())
    return f"reward {name!r} raised {type(error).__name__}: {reason} ({file}:{line}, sample {example.id!r})"


def _not_expected(name: str, function: RewardFunction, example: Example, verdict: Any, expected: str = "a finite number or a Score") -> str:
    file, line = _definition(function)
    shown = " ".join(repr(verdict).split())
    shown = shown if len(shown) <= 80 else shown[:79] + "…"
    return f"reward {name!r} returned {shown}, expected {expected} ({file}:{line}, sample {example.id!r})"


def _definition(function: RewardFunction) -> tuple[str, int]:
    """(file, line) where a grader is defined; of a callable object, where its class's `__call__` is."""
    plain: Any = inspect.unwrap(cast(Callable[..., Any], function))
    while hasattr(plain, "func"):  # functools.partial
        plain = plain.func
    plain = getattr(plain, "__func__", plain)
    code = getattr(plain, "__code__", None) or getattr(vars(type(plain)).get("__call__"), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code is not None else (getattr(plain, "__module__", "?"), 0)
