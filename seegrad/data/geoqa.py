r"""GeoQA: Chinese geometry questions with one diagram and four options; the answer is a letter.

    5,010 rows ─ original_split ─┬▶ train       all 3,503
                                 ├▶ dev         all 748
                                 ├▶ test-full   all 759
                                 └▶ test        those 759 in the order of `datasets.Dataset.shuffle(seed=42)`, the last 100

The model sees subject, options and request, then the diagram. The explanation that a row also has is in no part of an example.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seegrad.config import DataConfig
from seegrad.data import catalog
from seegrad.data.cells import choices_of, is_missing
from seegrad.data.files import ENDINGS, Picked, RowSource, open_file, open_rows, part_positions, split_part, where_equal
from seegrad.data.ids import Ids
from seegrad.data.pictures import IMAGE_MARK, listed
from seegrad.data.table import Raw, Table
from seegrad.errors import DataError, UsageError, nearest

SPLITS = catalog.CATALOG["geoqa"].splits
TEST_SEED, TEST_ROWS = 42, 100
ASK = {
    "zh": r"先写出简短的推理，再在最后给出所选选项的字母，写成 \boxed{A}、\boxed{B}、\boxed{C} 或 \boxed{D}。",
    "en": r"Reason briefly, then end with the letter of your option: \boxed{A}, \boxed{B}, \boxed{C} or \boxed{D}.",
}
_ORIGINAL = {"train": "train", "dev": "dev", "test": "test", "test-full": "test"}  # what the column says
_FILES = {"train": ("train",), "dev": ("dev",), "test": ("test", "test-full"), "test-full": ("test-full", "test")}


def geoqa(split: str, data: DataConfig) -> Table:
    """GeoQA's diagrams with four options; splits train, dev, test (the 100 of the published runs) and test-full."""
    source = rows(split, data)
    catalog.need("geoqa", source.columns, "subject", "choices", "label", "image")
    ids = Ids(source, "id" if "id" in source.columns else None)
    return Table(source, lambda row, position: _raw(row, position, ids, data), where=f"geoqa ({split})", data=data)


def rows(split: str, data: DataConfig) -> RowSource:
    """The rows of a split: out of the whole set, or from a file of the split's name as `seegrad data prepare geoqa` writes it."""
    name, part = split_part(split)
    if name not in SPLITS:
        raise UsageError(f"data set 'geoqa' has no split {name!r}{nearest(name, SPLITS)}")
    where = catalog.place("geoqa", data).replace("{split}", name)
    source = _of_its_own(where, name) or _of_the_whole(where, name, data)
    if name == "test" and len(source) > TEST_ROWS:
        source = Picked(source, shuffled(len(source))[-TEST_ROWS:], f"{source.name}, last {TEST_ROWS} when shuffled")
    return source if part is None else Picked(source, part_positions(len(source), *part), f"{source.name}, part {split}")


def shuffled(length: int, seed: int = TEST_SEED) -> array[int]:
    """The order that `datasets.Dataset.shuffle(seed)` gives to `length` rows: position i holds the old number of the row that comes i-th.

    >>> list(shuffled(5))
    [4, 2, 3, 1, 0]
    """
    return array("q", np.random.default_rng(seed).permutation(length).tolist())


def _of_its_own(where: str, split: str) -> RowSource | None:
    """The rows of a folder's file for this split. A file of a split's name that holds rows of others too (a whole set may be called train.parquet)
    is none, and one of at most 100 test rows is not the whole test split."""
    files = {name: _pure(Path(where).expanduser(), name) for name in _FILES[split]}
    return next((file for name, file in files.items() if file is not None and (name == split or len(file) > TEST_ROWS)), None)


def _pure(folder: Path, split: str) -> RowSource | None:
    path = next((path for ending in ENDINGS if (path := folder / f"{split}{ending}").is_file()), None)
    if path is None:
        return None
    source = open_file(path)
    return source if "original_split" not in source.columns or all(value == _ORIGINAL[split] for value in source.column("original_split")) else None


def _of_the_whole(where: str, split: str, data: DataConfig) -> RowSource:
    folder = Path(where).expanduser()
    if any(_pure(folder, other) is not None for other in SPLITS if other != split):  # a folder of splits, not of the whole set
        raise UsageError(f"{where} has no file for the split {split!r}, such as {split}.parquet; write every split: seegrad data prepare geoqa")
    everything = open_rows(where, "", revision=data.revision, hub=data.hub)
    catalog.need("geoqa", everything.columns, "original_split")
    own = _ORIGINAL[split]
    chosen = where_equal(everything, "original_split", lambda value: value == own, f"{everything.name} ({own})")
    if not len(chosen):
        found = ", ".join(sorted({str(value) for value in everything.column("original_split")}))
        raise DataError(f"{everything.name}: no row's original_split is {own!r}; there are {found}", reason="no rows")
    return chosen


def _raw(row: Mapping[str, Any], position: int, ids: Ids, data: DataConfig) -> Raw:
    subject, choices = _text(row.get("subject"), "subject"), choices_of(row.get("choices"))
    if len(choices) != len("ABCD") or not all(choice.strip() for choice in choices):
        raise DataError(f"'choices' has {sum(map(bool, choices))} options, expected 4", reason="not four options")
    options = "\n".join(f"{letter}. {choice}" for letter, choice in zip("ABCD", choices, strict=True))
    question = catalog.framed(f"{subject}\n{options}", data, ASK["en" if data.language == "en" else "zh"])
    return Raw(
        id=ids.of(row.get("id"), position),
        question=question if IMAGE_MARK in question else question + IMAGE_MARK,
        answer=_letter(row.get("label")),
        pictures=tuple(listed(row.get("image"))) or (None,),
        choices=choices,
        meta=_meta(row),
    )


def _text(value: Any, column: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise DataError(
            f"{column!r} is empty" if is_missing(value) else f"{column!r} is {type(value).__name__}, expected text", reason="empty question"
        )
    return value.strip()


def _letter(label: Any) -> str:
    """0 to 3 as A to D, also as text or as a float of a column with gaps."""
    match = re.fullmatch(r"([0-3])(\.0)?", str(label).strip()) if isinstance(label, int | float | str) and not isinstance(label, bool) else None
    if match is None:
        raise DataError(f"'label' is {label!r}, expected 0, 1, 2 or 3", reason="label is not 0 to 3")
    return "ABCD"[int(match[1])]


def _meta(row: Mapping[str, Any]) -> dict[str, Any]:
    """What may be counted by: the original split and the geometry that a question is about."""
    point = row.get("formal_point")
    points = [str(item) for item in point] if isinstance(point, Sequence) and not isinstance(point, str) else [point] if point else []
    return {"original_split": row.get("original_split", ""), "formal_point": ", ".join(map(str, points))}
