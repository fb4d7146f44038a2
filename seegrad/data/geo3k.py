r"""Geometry3K: English geometry questions with diagrams; the answer is a value, often in LaTeX.

Three publications of it are told apart by their columns and cells:

    hiyouga/geometry3k       images[] · problem with <image> · answer `2 \sqrt { 221 }` · id · choices · ground_truth (a letter)
    CAIR-HKISI/geo3k         images (bytes) · problem `<image>\n…` · answer `\boxed{x}`
    chenhegu/geo3k_imgurl    images (data URL, base64 or path) · problem · answer `270`

Options are not shown and the letter is not used: the answer is the value itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seegrad.config import DataConfig
from seegrad.data import catalog
from seegrad.data.cells import answer_text, prompt_text
from seegrad.data.files import RowSource, open_rows
from seegrad.data.ids import Ids
from seegrad.data.pictures import listed
from seegrad.data.table import Raw, Table

ASK = {
    "en": r"Reason step by step, then write the final answer in \boxed{}.",
    "zh": r"逐步推理，最后把答案写在 \boxed{} 里。",
}


def geo3k(split: str, data: DataConfig) -> Table:
    """Geometry3K's diagrams, answered with a value; splits train, dev (also: validation) and test."""
    source = rows(split, data)
    pictures = "images" if "images" in source.columns else "image"
    catalog.need("geo3k", source.columns, "problem", "answer", "images" if pictures not in source.columns else pictures)
    ids = Ids(source, "id" if "id" in source.columns else None)
    return Table(source, lambda row, position: _raw(row, position, pictures, ids, data), where=f"geo3k ({split})", data=data)


def rows(split: str, data: DataConfig) -> RowSource:
    """The rows of a split."""
    return open_rows(catalog.place("geo3k", data), split, revision=data.revision, hub=data.hub)


def _raw(row: Mapping[str, Any], position: int, pictures: str, ids: Ids, data: DataConfig) -> Raw:
    problem, _ = prompt_text(row.get("problem"), "problem")
    letter = row.get("ground_truth")
    return Raw(
        id=ids.of(row.get("id"), position),
        question=catalog.framed(problem, data, ASK["zh" if data.language == "zh" else "en"]),
        answer=answer_text(row.get("answer"), "answer"),
        pictures=tuple(listed(row.get(pictures))) or (None,),  # a row without a picture is a bad row
        meta={"ground_truth": letter} if isinstance(letter, str) else {},
    )
