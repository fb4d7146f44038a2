"""GSM8K: arithmetic word problems without pictures. The worked solution ends with `#### 18`; the number after it is the answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seegrad.config import DataConfig
from seegrad.data import catalog
from seegrad.data.cells import prompt_text
from seegrad.data.files import RowSource, open_rows
from seegrad.data.ids import Ids
from seegrad.data.table import Raw, Table
from seegrad.errors import DataError

CONFIGURATION = "main"  # the set is published twice; `socratic` holds the same questions with other solutions
ASK = {
    "en": r"Reason step by step, then write the final number in \boxed{}.",
    "zh": r"逐步推理，最后把结果写在 \boxed{} 里。",
}
_MARK = re.compile(r"####\s*(.+?)\s*$")


def gsm8k(split: str, data: DataConfig) -> Table:
    """GSM8K's word problems, text only, answered with a number; splits train and test."""
    source = rows(split, data)
    catalog.need("gsm8k", source.columns, "question", "answer")
    ids = Ids(source, None)
    return Table(source, lambda row, position: _raw(row, position, ids, data), where=f"gsm8k ({split})", data=data)


def rows(split: str, data: DataConfig) -> RowSource:
    """The rows of a split, of the configuration `main` where there are several."""
    where = catalog.place("gsm8k", data)
    path = Path(where).expanduser()
    several = (path / CONFIGURATION).is_dir() or (not path.exists() and where == catalog.CATALOG["gsm8k"].hub_ids[0])
    return open_rows(f"{where}/{CONFIGURATION}" if several else where, split, revision=data.revision, hub=data.hub)


def _raw(row: Mapping[str, Any], position: int, ids: Ids, data: DataConfig) -> Raw:
    question, _ = prompt_text(row.get("question"), "question")
    return Raw(
        id=ids.of(None, position),
        question=catalog.framed(question, data, ASK["zh" if data.language == "zh" else "en"]),
        answer=final_number(row.get("answer")),
    )


def final_number(solution: Any) -> str:
    """What follows the last `####`, without commas between digits. Raises DataError.

    >>> final_number("10 * 108 = 1,080\\n#### 1,080")
    '1080'
    """
    match = _MARK.search(solution.strip().rpartition("\n")[2]) if isinstance(solution, str) else None
    if match is None:
        raise DataError("'answer' does not end with a line `#### NUMBER`", reason="no final number")
    return re.sub(r"(?<=\d),(?=\d)", "", match[1])
