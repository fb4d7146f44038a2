"""The two forms of R1-V: GeoQA with values as answers, and counting in CLEVR pictures.

training rows   image (or images) · problem · solution `<answer> 145° </answer>`, also over several lines (or answer)
test lists      image_path · question · ground_truth, JSON lines; relative paths start at the file or at the folder that was given
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

PICTURES, QUESTIONS, ANSWERS = ("image", "images", "image_path"), ("problem", "question"), ("solution", "answer", "ground_truth")
ASK = {
    "geoqa-r1v": {"en": r"Reason step by step, then write the final answer in \boxed{}.", "zh": r"逐步推理，最后把答案写在 \boxed{} 里。"},
    "clevr-count": {"en": r"Look closely, then write the number in \boxed{}.", "zh": r"仔细观察，再把数目写在 \boxed{} 里。"},
}


def geoqa_r1v(split: str, data: DataConfig) -> Table:
    """GeoQA as R1-V gives it: the answer is a value such as 145°; split train (test: a local file)."""
    return _table("geoqa-r1v", split, data)


def clevr_count(split: str, data: DataConfig) -> Table:
    """How many things are in a CLEVR picture; split train (test: a local file, or BUAADreamer/clevr_count_70k)."""
    return _table("clevr-count", split, data)


def rows(name: str, split: str, data: DataConfig) -> RowSource:
    """The rows of a split of either set."""
    return open_rows(catalog.place(name, data), split, revision=data.revision, hub=data.hub)


def _table(name: str, split: str, data: DataConfig) -> Table:
    source = rows(name, split, data)
    columns = tuple(_column(name, source, names) for names in (PICTURES, QUESTIONS, ANSWERS))
    ids = Ids(source, "id" if "id" in source.columns else None)
    ask = ASK[name]["zh" if data.language == "zh" else "en"]
    return Table(source, lambda row, position: _raw(row, position, columns, ids, data, ask), where=f"{name} ({split})", data=data)


def _column(name: str, source: RowSource, names: tuple[str, ...]) -> str:
    """The first of `names` that the rows have."""
    found = next((column for column in names if column in source.columns), None)
    if found is None:
        catalog.need(name, source.columns, names[0])
    return found or names[0]


def _raw(row: Mapping[str, Any], position: int, columns: tuple[str, ...], ids: Ids, data: DataConfig, ask: str) -> Raw:
    picture, question, answer = columns
    text, _ = prompt_text(row.get(question), question)
    return Raw(
        id=ids.of(row.get("id"), position),
        question=catalog.framed(text, data, ask),
        answer=answer_text(row.get(answer), answer),
        pictures=tuple(listed(row.get(picture))) or (None,),  # a row without a picture is a bad row
    )
