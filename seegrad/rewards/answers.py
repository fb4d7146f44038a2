"""What an answer can state."""

from __future__ import annotations

from dataclasses import dataclass

from seegrad.rewards.numbers import Exact
from seegrad.rewards.units import Unit


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value and its unit (None: none given). `rounded` holds (digits after the point, significant digits) of a plain decimal."""

    value: Exact
    unit: Unit | None
    rounded: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Named:
    """`x = 3`, `∠ABC = 40°`: a value that says what it is the value of."""

    name: str
    value: Reading


@dataclass(frozen=True, slots=True)
class Several:
    """Parts in order: `brackets` is "" for a bare list, "⟦⟧" for a set (without order; also `1 or 2` and `±3`), "∧" for
    relations that hold together (`x > 2 and x ≠ 3`), else the brackets as written."""

    brackets: str
    parts: tuple[Reading, ...]


@dataclass(frozen=True, slots=True)
class Ratio:
    """`3:2`. `literal` is set where it may be a time of day, and then nothing is reduced."""

    parts: tuple[Exact, ...]
    literal: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """`1 < x ≤ 3` or `x + y = 3`: values with the relations between them, read so that they point to the larger side."""

    signs: tuple[str, ...]
    parts: tuple[Quantity, ...]


@dataclass(frozen=True, slots=True)
class Words:
    """An answer without digits that is no expression, folded: 等腰三角形, Yes, ①③."""

    text: str


Reading = Quantity | Named | Several | Ratio | Relation | Words
