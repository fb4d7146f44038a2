"""Rows that cannot be used: each is counted by reason and replaced by the nearest good row after it, so that a run goes on and says so.

    rows ─ Fitting (the prompt renders, and is not too long) ─ Skipping ─▶ the loop

Which row stands in for which follows from the rows alone: a continued run asks for the same rows and gets the same ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import overload

from seegrad.data.table import Table
from seegrad.errors import DataError
from seegrad.types import Example


class Fitting(Sequence[Example]):
    """The same rows, each checked to have a prompt of at most `max_tokens` tokens (0: any number) by `count`, which raises DataError for an example
    that cannot be rendered. Prompts are never cut. A slice is a view."""

    def __init__(self, rows: Sequence[Example], count: Callable[[Example], int], max_tokens: int = 0) -> None:
        self.rows, self._count, self._max_tokens = rows, count, max_tokens

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> Fitting: ...
    def __getitem__(self, index: int | slice) -> Example | Fitting:
        if isinstance(index, slice):
            return Fitting(self.rows[index], self._count, self._max_tokens)
        example = self.rows[index]
        where = f"row {range(len(self))[index]} ({example.id})"
        try:
            num_tokens = self._count(example)
        except DataError as error:
            raise DataError(f"{where}: {error}", reason=error.reason) from error
        if self._max_tokens and num_tokens > self._max_tokens:
            raise DataError(
                f"{where}: the prompt has {num_tokens} tokens, data.max_prompt_tokens is {self._max_tokens}",
                reason="prompt too long",
            )
        return example


class Skipping(Sequence[Example]):
    """Rows in which a bad one is replaced by the nearest good one after it (after the last comes the first).

    Raises DataError with the counts when no row is good. Nothing of a row is kept but the reason why it is bad.

    >>> rows = Skipping([Example(id="a", question="?", answer="1")])
    >>> rows[0].id, dict(rows.tally), rows.is_bad(0)
    ('a', {}, False)
    """

    def __init__(self, rows: Sequence[Example]) -> None:
        self.rows = rows
        self._reasons: dict[int, str] = {}
        self._news: list[str] = []

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        start = range(len(self))[index]
        for step in range(len(self)):
            position = (start + step) % len(self)
            if position in self._reasons:
                continue
            try:
                return self.rows[position]
            except DataError as error:
                self._note(position, error)
        raise DataError(f"none of the {len(self)} rows can be used: {self.summary()}; the first: {self._first}", reason="no good row")

    @property
    def tally(self) -> Counter[str]:
        """How many different rows were met that are bad, by reason."""
        return Counter(self._reasons.values())

    def is_bad(self, index: int) -> bool:
        """Whether the row was found to be bad when it was asked for."""
        return index in self._reasons

    def summary(self) -> str:
        """The counts in one line, the most frequent reason first."""
        return ", ".join(f"{count} {reason}" for reason, count in sorted(self.tally.items(), key=lambda item: (-item[1], item[0])))

    def news(self) -> list[str]:
        """The first bad row of each reason that was met since the last call."""
        told, self._news = self._news, []
        return told

    def _note(self, position: int, error: DataError) -> None:
        if not self._reasons:
            self._first = str(error)
        if error.reason not in self._reasons.values():
            self._news.append(f"a bad row ({error.reason}) is replaced by the next good one: {error}")
        self._reasons[position] = error.reason


def bad_rows_met(rows: Sequence[Example]) -> list[str]:
    """What a person should be told of the rows read since the last call."""
    return rows.news() if isinstance(rows, Skipping) else []


def replaced_rows(rows: Sequence[Example], positions: Iterable[int]) -> dict[str, float]:
    """The metric of one step: how many of its rows, already read, were bad and replaced. Nothing for rows that are not skipped."""
    return {"data/replaced": float(sum(rows.is_bad(position) for position in positions))} if isinstance(rows, Skipping) else {}


def skipped_rows(rows: Sequence[Example]) -> str:
    """The end of a run in one line: bad rows that were met, by reason; empty when there were none."""
    if not isinstance(rows, Skipping) or not rows.tally:
        return ""
    return f"{rows.tally.total()} of {len(rows)} rows were bad and replaced ({rows.summary()}); data.bad_rows=stop ends a run at the first one"


def about_rows(rows: Sequence[Example]) -> str:
    """How a table is read, in one line, so that a wrongly guessed column is seen before it costs anything; empty for other rows."""
    while isinstance(rows, Skipping | Fitting):
        rows = rows.rows
    return rows.about if isinstance(rows, Table) else ""
