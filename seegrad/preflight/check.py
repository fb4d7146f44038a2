"""One finding of `seegrad doctor`, and how an error becomes one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seegrad.errors import SeegradError


@dataclass(frozen=True, slots=True)
class Check:
    """`passed` None is a remark: worth reading, no reason to stop. `detail` says what was found, `change` what to change (never empty unless it
    passed), `facts` are the numbers behind it in JSON's types.

    >>> Check("rows", True, "500 rows").word
    'ok'
    """

    name: str
    passed: bool | None
    detail: str
    change: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.passed is not True and not self.change:
            raise ValueError(f"check {self.name!r} did not pass and does not say what to change")

    @property
    def word(self) -> str:
        return {True: "ok", False: "FAIL", None: "note"}[self.passed]

    def lines(self) -> str:
        """The finding as it is printed."""
        change = f"\n      change: {self.change}" if self.change else ""
        return f"{self.word:6}{self.name}: {self.detail}{change}"

    def tree(self) -> dict[str, Any]:
        """The finding as JSON's types."""
        return {"name": self.name, "result": self.word.lower(), "detail": self.detail, "change": self.change, "facts": dict(self.facts)}


def guarded(name: str, check: Callable[[], Check], change: str) -> Check:
    """An error that is meant for users becomes a failed check; anything else is a defect and goes up."""
    try:
        return check()
    except SeegradError as error:
        return Check(name, False, str(error), change)
