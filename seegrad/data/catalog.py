"""The data sets that have a name: where they are, what their splits and answers are, who may use them. One table; the modules beside it read it.

name ─▶ Entry ─ place ─▶ data.path, else the hub id ─ open_rows ─▶ rows ─ geoqa.py · geo3k.py · r1v.py · gsm8k.py ─▶ Table
"""

from __future__ import annotations

from dataclasses import dataclass

from seegrad.config import DataConfig
from seegrad.errors import UsageError, nearest

COLUMN_SETTINGS = ("prompt_key", "answer_key", "image_keys", "choices_key", "id_key")


@dataclass(frozen=True, slots=True)
class Entry:
    """A data set: its hub ids (the first is fetched when `data.path` is empty), splits with their numbers of rows (0: not counted here), the answer
    in a few words, the reward that reads it, and the licence that its page states."""

    hub_ids: tuple[str, ...]
    splits: dict[str, int]
    answer: str
    grader: str
    licence: str


CATALOG: dict[str, Entry] = {
    "geoqa": Entry(("hz2475/geoQA",), {"train": 3503, "dev": 748, "test": 100, "test-full": 759}, "a letter A to D", "choice", "MIT"),
    "geo3k": Entry(
        ("hiyouga/geometry3k", "CAIR-HKISI/geo3k", "chenhegu/geo3k_imgurl"),
        {"train": 2101, "dev": 300, "test": 601},
        r"LaTeX, such as 2 \sqrt { 221 }",
        "math",
        "see its page",
    ),
    "geoqa-r1v": Entry(("leonardPKU/GEOQA_R1V_Train_8K", "leonardPKU/GEOQA_8K_R1V"), {"train": 0}, "a value, such as 145°", "math", "see its page"),
    "clevr-count": Entry(("leonardPKU/clevr_cogen_a_train", "BUAADreamer/clevr_count_70k"), {"train": 0}, "a whole number", "count", "see its page"),
    "gsm8k": Entry(("openai/gsm8k",), {"train": 7473, "test": 1319}, "a number", "math", "MIT"),
}


def place(name: str, data: DataConfig) -> str:
    """Where the rows of a named data set are: `data.path`, else its hub id.

    Raises UsageError when `data` names columns (a named set knows its own) or a template that has no place for the question.
    """
    given = next((setting for setting in COLUMN_SETTINGS if getattr(data, setting)), None)
    if given is not None:
        raise UsageError(f"data.{given} is for data.name=table; {name!r} knows its own columns (rows with others: data.name=table data.path=…)")
    if data.template and "{prompt}" not in data.template:
        raise UsageError(f"data.template {data.template!r} has no {{prompt}}; write it where the question is to stand")
    return data.path or CATALOG[name].hub_ids[0]


def framed(question: str, data: DataConfig, ask: str) -> str:
    """The question in `data.template`, or followed by the data set's own request for an answer."""
    return data.template.replace("{prompt}", question) if data.template else f"{question}\n{ask}"


def need(name: str, columns: tuple[str, ...], *needed: str) -> None:
    """Raise UsageError when a table lacks one of the columns that a data set is read from."""
    for column in needed:
        if column not in columns:
            raise UsageError(f"data set {name!r}: there is no column {column!r}{nearest(column, columns)}; its columns are those of docs/datasets.md")
