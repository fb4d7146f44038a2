"""Calling one reward part: what a function may look like, what it may give back, and how a failure of it reads.

    name ─ registry ─▶ function ─ signature, settings ─▶ Part ─ split ─▶ one call an answer, or one a group ─▶ Verdict for every answer

A function gets what it names: `example`, `text`, `num_tokens`, `truncated`; with `texts` it gets the whole group at once, and then `num_tokens` and
`truncated` are lists too. Every other parameter is a setting.
"""

from __future__ import annotations

import functools
import inspect
import math
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, SupportsFloat

import numpy as np

from seegrad import registry
from seegrad.errors import UsageError, nearest
from seegrad.types import Answer, Example, Score

FORMS = "(example, text) or, for a whole group, (example, texts)"
_GIVEN = ("example", "text", "texts", "num_tokens", "truncated")
_NUMBER_KINDS: dict[Any, tuple[type, ...]] = {int: (int,), float: (int, float), str: (str,), bool: (bool,)}


class Verdict(NamedTuple):
    """What one part says of one answer, in plain values that can cross processes; `error` says why it says nothing.

    `judges` is True when the part gave a Score, so that `parsed` and `correct` mean something.
    """

    value: float = 0.0
    parsed: str | None = None
    correct: bool | None = None
    judges: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """One reward function with its settings, ready to be called. `given` are the parameters that get what is graded."""

    name: str
    function: Callable[..., Any]
    settings: Mapping[str, Any]
    given: tuple[str, ...]
    by_position: tuple[str, ...]
    is_group: bool
    is_async: bool

    def split(self, answers: Sequence[Answer]) -> Iterator[Sequence[Answer]]:
        """What each call gets: all answers of a group, or one."""
        if self.is_group:
            yield answers
        else:
            yield from ([answer] for answer in answers)

    def call(self, example: Example, answers: Sequence[Answer]) -> Any:
        """The function's own return value for one element of `split` (an awaitable, when it is async)."""
        facts: dict[str, Any] = {"example": example}
        if self.is_group:
            facts["texts"] = [answer.text for answer in answers]
            facts["num_tokens"], facts["truncated"] = [a.num_tokens for a in answers], [a.truncated for a in answers]
        else:
            (answer,) = answers
            facts.update(text=answer.text, num_tokens=answer.num_tokens, truncated=answer.truncated)
        values = {**self.settings, **{name: facts[name] for name in self.given}}
        return self.function(*[values.pop(name) for name in self.by_position], **values)

    def read(self, example: Example, returned: Any, count: int) -> list[Verdict]:
        """One verdict for each of the `count` answers of a call. What is no finite number or Score is an error and never a 0."""
        if not self.is_group:
            return [self._verdict(example, returned)]
        try:
            several = None if isinstance(returned, str | bytes | Mapping) else list(returned)
        except Exception:
            several = None
        if several is None or len(several) != count:
            shown = "" if several is None else f" of {len(several)}"
            return [Verdict(error=self._not_expected(example, returned, f"a list of {count} numbers or Scores", shown))] * count
        return [self._verdict(example, one) for one in several]

    def failure(self, example: Example, error: BaseException, count: int) -> list[Verdict]:
        """The verdicts of a call that raised: which part, which exception, where in the grader's own file, on which sample."""
        file, line = self.definition
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == file and frame.lineno is not None:
                line = frame.lineno
        reason = f"raised {type(error).__name__}: {_shown(error, str, 500)}"
        return [Verdict(error=f"reward {self.name!r} {reason} ({file}:{line}, sample {example.id!r})")] * count

    def too_slow(self, example: Example, timeout: float, count: int) -> list[Verdict]:
        """The verdicts of a call that was stopped."""
        return self.lost(example, f"took longer than {timeout:g} s (reward.timeout) and was stopped", count)

    def lost(self, example: Example, what: str, count: int) -> list[Verdict]:
        """The verdicts of a call that did not come back, for the reason `what`."""
        file, line = self.definition
        return [Verdict(error=f"reward {self.name!r} {what} ({file}:{line}, sample {example.id!r})")] * count

    @property
    def definition(self) -> tuple[str, int]:
        """(file, line) where the function is defined; of a callable object, where its class's `__call__` is."""
        plain: Any = inspect.unwrap(_without_partial(self.function))
        plain = getattr(plain, "__func__", plain)
        code = getattr(plain, "__code__", None) or getattr(vars(type(plain)).get("__call__"), "__code__", None)
        return (code.co_filename, code.co_firstlineno) if code is not None else (getattr(plain, "__module__", "?"), 0)

    def _verdict(self, example: Example, returned: Any) -> Verdict:
        number = _as_number(returned)
        if number is None:
            return Verdict(error=self._not_expected(example, returned, "a finite number or a Score"))
        if not isinstance(returned, Score):
            return Verdict(number)
        parsed, correct = returned.parsed, returned.correct
        if not isinstance(correct, bool | np.bool_ | None):  # any text would count as right
            return Verdict(error=self._not_expected(example, returned, "Score.correct to be True, False or None"))
        return Verdict(number, None if parsed is None else _writable(str(parsed)), None if correct is None else bool(correct), True)

    def _not_expected(self, example: Example, returned: Any, expected: str, more: str = "") -> str:
        file, line = self.definition
        return f"reward {self.name!r} returned {_shown(returned, repr, 80)}{more}, expected {expected} ({file}:{line}, sample {example.id!r})"


@dataclass(slots=True)
class Job:
    """All answers of one group for one part. `calls` are what each call gets; `results` are filled in, one list of verdicts a call."""

    part: Part
    example: Example
    answers: Sequence[Answer]
    calls: list[Sequence[Answer]] = field(init=False)
    results: list[list[Verdict]] = field(init=False)

    def __post_init__(self) -> None:
        self.calls = list(self.part.split(self.answers))
        self.results = [[] for _ in self.calls]

    @property
    def verdicts(self) -> list[Verdict]:
        """One for each answer, in their order."""
        found = [verdict for result in self.results for verdict in result]
        assert len(found) == len(self.answers), (self.part.name, len(found), len(self.answers))
        return found


def load_part(name: str, settings: Mapping[str, Any]) -> Part:
    """The part of that name or address. Raises UsageError for what is no reward function, for settings that it does not take, and for a parameter
    without a value.

    >>> load_part("count", {}).given
    ('example', 'text')
    """
    function = registry.load("reward", name)
    if isinstance(function, type) or not callable(function):
        kind = "a class" if isinstance(function, type) else type(function).__name__
        raise UsageError(f"reward {name!r} is {kind}, expected a function {FORMS} -> number or Score, or an object that can be called like one")
    parameters = _parameters(name, function)
    kinds = {key: parameter.kind for key, parameter in parameters.items()}
    takes_more = inspect.Parameter.VAR_KEYWORD in kinds.values()
    named = [key for key, kind in kinds.items() if kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)]
    given = [key for key in named if key in _GIVEN]
    if "text" in given and "texts" in given:
        raise UsageError(f"reward {name!r} takes both text and texts, expected {FORMS}")
    if takes_more:
        given += [key for key in ("example", "text") if key not in given and not (key == "text" and "texts" in given)]
    by_position = tuple(key for key in named if kinds[key] is inspect.Parameter.POSITIONAL_ONLY and (key in given or key in settings))
    _check_settings(name, settings, [key for key in named if key not in _GIVEN], takes_more)
    _check_values(name, parameters, given, settings)
    if "text" not in given and "texts" not in given:
        raise UsageError(f"reward {name!r} takes ({', '.join(named)}), expected {FORMS}; also num_tokens and truncated")
    return Part(name, function, dict(settings), tuple(given), by_position, "texts" in given, _is_async(function))


def _parameters(name: str, function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function, eval_str=True).parameters
    except Exception:  # annotations that name nothing: they are only needed to check settings
        pass
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise UsageError(f"reward {name!r} does not say what it takes; wrap it: def grade(example, text): return …") from None


def _check_settings(name: str, settings: Mapping[str, Any], takes: Sequence[str], takes_more: bool) -> None:
    for key in settings:
        if key in _GIVEN:
            raise UsageError(f"reward.settings.{name}.{key} cannot be set: every answer brings its own {key}")
        if key not in takes and not takes_more:
            raise UsageError(f"reward {name!r} takes no setting {key!r}{nearest(key, takes) or '; it takes none'}")


def _check_values(name: str, parameters: Mapping[str, inspect.Parameter], given: Sequence[str], settings: Mapping[str, Any]) -> None:
    for key, parameter in parameters.items():
        if parameter.kind in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL) or key in given:
            continue
        if key not in settings:
            if parameter.default is inspect.Parameter.empty:
                hint = f"{_close(key)}; set reward.settings.{name}.{key}=…, or give it a default"
                raise UsageError(f"reward {name!r}: its parameter {key!r} has no value{hint}")
            continue
        allowed = _NUMBER_KINDS.get(parameter.annotation)
        value = settings[key]
        if allowed and not (isinstance(value, allowed) and (bool in allowed or not isinstance(value, bool))):
            raise UsageError(f"reward.settings.{name}.{key} is {value!r}, expected {parameter.annotation.__name__}")


def _close(key: str) -> str:
    hint = nearest(key, _GIVEN)
    return f" ({hint.removeprefix('; ')})" if "did you mean" in hint else f" (what is graded comes as {FORMS})"


def _is_async(function: Callable[..., Any]) -> bool:
    plain = _without_partial(function)
    return inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(vars(type(plain)).get("__call__"))


def _without_partial(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _as_number(returned: Any) -> float | None:
    """The finite number that a grader gave (also as Score, bool, NumPy scalar or one-element tensor), or None."""
    value = returned.value if isinstance(returned, Score) else returned
    if not isinstance(value, SupportsFloat):
        return None
    try:
        number = float(value)
    except Exception:  # arrays of several elements, among others
        return None
    return number if math.isfinite(number) else None


def _shown(thing: Any, how: Callable[[Any], str], limit: int) -> str:
    """One line about anything, also about things whose own text raises."""
    try:
        text = " ".join(how(thing).split())
    except Exception as error:
        text = f"<{type(thing).__name__} whose text raises {type(error).__name__}>"
    text = _writable(text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _writable(text: str) -> str:
    """Without lone surrogates, which no file and no terminal takes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
