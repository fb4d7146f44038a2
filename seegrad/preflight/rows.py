"""The rows of both splits: which can be used, why the others cannot, whether ids are unique and nothing of the test set is in the training set.

table ── outline (cells and picture headers, thousands of rows) ─┐
                                                                 ├─▶ Scan ─▶ checks
any rows ── read whole, with their pictures (the first few) ─────┘
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from seegrad import images
from seegrad.config import DataConfig
from seegrad.data.table import Table
from seegrad.errors import DataError
from seegrad.preflight.check import Check
from seegrad.types import Example

MOST_ROWS = 5_000  # of a split that are outlined; of a larger one every n-th


@dataclass(frozen=True, slots=True)
class Row:
    """A row that can be read: an example (without its pictures when only outlined), the sizes of its pictures, and what identifies its content."""

    example: Example
    sizes: tuple[tuple[int, int], ...]
    content: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """What was found in one split of `total` rows, `looked` of which were looked at. `whole` are the first rows with their pictures."""

    split: str
    total: int
    looked: int
    outlined: bool
    rows: tuple[Row, ...]
    whole: tuple[Example, ...]
    reasons: Mapping[str, int] = field(default_factory=dict)
    first_of_reason: Mapping[str, str] = field(default_factory=dict)

    @property
    def num_bad(self) -> int:
        return sum(self.reasons.values())

    @property
    def examples(self) -> list[Example]:
        return [row.example for row in self.rows]


def scan(split: str, rows: Sequence[Example], num_items: int) -> Scan:
    """Look at a split: a table by its outlines (at most `MOST_ROWS` of them), and of any split the first `num_items` rows with their pictures."""
    outlined = isinstance(rows, Table)
    found: dict[int, Row] = {}
    problems: dict[int, DataError] = {}
    positions = range(0, len(rows), max(1, -(-len(rows) // MOST_ROWS))) if outlined else range(0)
    for position in positions:
        try:
            found[position] = _outline(rows, position)
        except DataError as error:
            problems[position] = error
    whole = []
    for position in range(min(num_items, len(rows))):
        if position in problems:
            continue
        try:
            example = rows[position]
        except DataError as error:
            found.pop(position, None)
            problems[position] = error
            continue
        whole.append(example)
        if not outlined:
            found[position] = _whole(example)
    looked = len({*positions, *range(min(num_items, len(rows)))})
    first: dict[str, str] = {}
    for position in sorted(problems):
        first.setdefault(problems[position].reason, str(problems[position]))
    reasons = Counter(error.reason for error in problems.values())
    return Scan(split, len(rows), looked, outlined, tuple(found[p] for p in sorted(found)), tuple(whole), dict(reasons.most_common()), first)


def check_rows(scans: Sequence[Scan], data: DataConfig) -> Iterator[Check]:
    """Can the rows be used, are their ids unique, are the splits disjoint."""
    yield _readable(scans, data)
    if any(scan.rows for scan in scans):
        yield _ids(scans)
        if len(scans) > 1:
            yield _disjoint(scans)


def _outline(rows: Sequence[Example], position: int) -> Row:
    assert isinstance(rows, Table), type(rows)
    outline = rows.outline(position)
    return Row(outline.example, outline.sizes, (_words(outline.example), *outline.digests))


def _whole(example: Example) -> Row:
    sizes = tuple(images.size(data) for data in example.images)
    return Row(replace(example, images=()), sizes, (_words(example), *(images.content_hash(data) for data in example.images)))


def _words(example: Example) -> str:
    return " ".join((example.question, *example.choices)).replace("<image>", " ").strip()


def _readable(scans: Sequence[Scan], data: DataConfig) -> Check:
    parts = []
    for one in scans:
        seen = "" if one.looked == one.total else f" ({one.looked:,} looked at)"
        pictures = sum(len(row.sizes) for row in one.rows)
        faults = "".join(f"; {count} {reason}" for reason, count in one.reasons.items())
        parts.append(f"{one.split}: {one.total:,} rows{seen}, {len(one.rows):,} can be used, with {pictures:,} pictures{faults}")
    detail = " · ".join(parts)
    facts = {
        one.split: {"rows": one.total, "looked_at": one.looked, "usable": len(one.rows), "bad": dict(one.reasons), "first": dict(one.first_of_reason)}
        for one in scans
    }
    bad = [one for one in scans if one.num_bad]
    if not bad and all(one.rows for one in scans):
        return Check("rows", True, detail, facts=facts)
    examples = "; ".join(f"{reason}: {text}" for one in bad for reason, text in one.first_of_reason.items())
    detail += f" — for example {examples}" if examples else ""
    if any(not one.rows for one in scans):
        return Check("rows", False, detail, "give a split in which rows can be used (data.train_split, eval.split), or repair these", facts)
    if data.bad_rows == "stop":
        return Check("rows", False, detail, "repair these rows, or let the run skip and count them with data.bad_rows=skip", facts)
    change = "repair these rows; training replaces each by the next good one and counts it, evaluation leaves it out of every rate"
    return Check("rows", None, detail, change, facts)


def _ids(scans: Sequence[Scan]) -> Check:
    """A report pairs answers by id, so within a split no two rows may share one."""
    repeated = [(one.split, name, count) for one in scans for name, count in Counter(row.example.id for row in one.rows).items() if count > 1]
    facts = {"repeated": len(repeated)}
    if not repeated:
        return Check("ids", True, f"{sum(len(one.rows) for one in scans):,} ids, each once in its split", facts=facts)
    split, name, count = repeated[0]
    detail = f"{len(repeated)} ids occur more than once in a split; the first: {name!r}, {count} times in {split}"
    return Check(
        "ids", False, detail, "give every row an id of its own (data.id_key names the column), or leave ids out: row numbers are used then", facts
    )


def _disjoint(scans: Sequence[Scan]) -> Check:
    """The same content in both splits is training on the test; the same id with other content is harmless."""
    train, held_out = scans[0], scans[1]
    if train.split == held_out.split:
        change = "evaluate on rows that are not trained on (eval.split=…), else the curve shows memory"
        return Check("splits", None, f"training and evaluation both use {train.split}", change, {"shared": len(train.rows)})
    contents = {row.content: row.example.id for row in train.rows}
    shared = [(contents[row.content], row.example.id) for row in held_out.rows if row.content in contents]
    both = sum(one == other for one, other in shared)
    facts = {"shared_content": len(shared), "shared_content_and_id": both}
    looked = f"{len(train.rows):,} of {train.split} and {len(held_out.rows):,} of {held_out.split} compared"
    if not shared:
        return Check("splits", True, f"no question with the same pictures is in both ({looked})", facts=facts)
    first, second = shared[0]
    detail = (
        f"{len(shared)} rows of {held_out.split} have the question and the pictures of a row of {train.split}; {first!r} and {second!r} ({looked})"
    )
    change = f"take them out of {train.split}: what is trained on cannot be tested with"
    return Check("splits", False if both else None, detail, change, facts)
