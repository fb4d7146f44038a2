"""What `seegrad data list` and `seegrad data show` print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seegrad import images, registry
from seegrad.data.catalog import CATALOG
from seegrad.data.shapes import SPLIT_SIZES
from seegrad.errors import DataError
from seegrad.types import Example

DRAWN = ("count", "choice", "ground")


def listing() -> Iterator[str]:
    """Every registered data set: what it is, its splits, and where it comes from."""
    for name in registry.names("dataset"):
        yield f"{name:13}{(registry.load('dataset', name).__doc__ or '').strip().partition(chr(10))[0]}"
        entry = CATALOG.get(name)
        if entry is not None:
            splits = ", ".join(f"{split} {rows:,}" if rows else split for split, rows in entry.splits.items())
            yield f"{'':13}splits: {splits} · answer: {entry.answer} · reward: {entry.grader}"
            yield f"{'':13}from {', '.join(entry.hub_ids)} (licence: {entry.licence}) or data.path=…"
        elif name in DRAWN:
            yield f"{'':13}splits: {', '.join(SPLIT_SIZES)} · drawn here, no file is needed"
        else:
            yield f"{'':13}splits: those of its files · from data.path=FILE, FOLDER or OWNER/NAME"


def shown(rows: Sequence[Example], num: int) -> Iterator[tuple[Example, str]]:
    """The first rows, each with its line: number, answer, sizes of its pictures, question. A bad row is an empty example and a line that says why."""
    for number in range(min(num, len(rows))):
        try:
            example = rows[number]
        except DataError as error:
            yield Example(id="", question="", answer=""), f"#{number:<4}bad row ({error.reason}): {error}"
            continue
        sizes = " ".join("×".join(map(str, images.size(data))) for data in example.images) or "text only"
        yield example, f"#{number:<4}{_short(example.answer, 20):<21}{sizes:<11}{_short(example.question, 80)}"


def _short(text: str, width: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"
