"""R1-V's forms: answers in tags over one or several lines, test lists with the paths of pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

from seegrad.config import DataConfig
from seegrad.data.prepare import prepare
from seegrad.data.r1v import ASK
from seegrad.data.rows import load_rows
from seegrad.errors import DataError, UsageError
from seegrad.rewards.base import Rewards
from tests.data import schemas

COUNTS = ["3", "10", "0", "7"]


def at(name: str, path: Path, **changes: object) -> DataConfig:
    return DataConfig(name=name, path=str(path)).model_copy(update=changes)


@pytest.mark.parametrize(("name", "golds"), [("clevr-count", COUNTS), ("geoqa-r1v", list(schemas.VALUES))])
def test_answers_are_taken_out_of_their_tags(tmp_path: Path, name: str, golds: list[str]) -> None:
    schemas.write_r1v(tmp_path / "data" / "train-00000-of-00001.parquet", golds)
    rows = list(load_rows("train", at(name, tmp_path)))
    assert [row.answer for row in rows] == golds, "also of solutions over several lines"
    assert all(row.question.startswith("<image>As shown") and row.question.endswith(ASK[name]["en"]) and len(row.images) == 1 for row in rows)


@pytest.mark.parametrize(("name", "golds"), [("clevr-count", [3, 0, 12]), ("geoqa-r1v", ["145°", "<answer> 8cm </answer>"])])
def test_lists_with_paths(tmp_path: Path, name: str, golds: list[object]) -> None:
    schemas.write_r1v_list(tmp_path / "test.jsonl", golds)
    rows = list(load_rows("test", at(name, tmp_path)))
    assert [row.answer for row in rows] == [str(gold).removeprefix("<answer> ").removesuffix(" </answer>") for gold in golds]
    assert all(len(row.images) == 1 for row in rows)
    list(prepare(at(name, tmp_path), tmp_path / "out", ["test"]))
    (tmp_path / "pictures").rename(tmp_path / "elsewhere")
    again = load_rows("test", at(name, tmp_path / "out"))
    assert [(row.answer, row.images) for row in again] == [(row.answer, row.images) for row in rows], "prepared files hold the pictures"
    with pytest.raises(DataError, match=r"test\.jsonl"):
        load_rows("test", at(name, tmp_path / "test.jsonl"))[0]


@pytest.mark.parametrize(("name", "grader", "golds"), [("clevr-count", "count", COUNTS), ("geoqa-r1v", "math", list(schemas.VALUES))])
def test_every_gold_scores_one(tmp_path: Path, name: str, grader: str, golds: list[str]) -> None:
    schemas.write_r1v(tmp_path / "train.parquet", golds)
    rewards = Rewards({grader: 1.0})
    try:
        for row in load_rows("train", at(name, tmp_path)):
            grade = rewards.grade(row, f"\\boxed{{{row.answer}}}")
            assert (grade.error, grade.reward) == (None, 1.0), row.answer
            assert rewards.grade(row, "\\boxed{98765}").reward == 0
    finally:
        rewards.close()


def test_a_counting_set_with_images_and_answer_columns(tmp_path: Path) -> None:
    schemas.write_geo3k_bytes(tmp_path / "train.parquet", 2)
    rows = load_rows("train", at("clevr-count", tmp_path, language="zh"))
    assert rows[0].answer == schemas.LATEX[0]
    assert rows[0].question.endswith(ASK["clevr-count"]["zh"])


def test_a_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    schemas.write_gsm8k(tmp_path)
    with pytest.raises(UsageError, match="no column 'image'"):
        load_rows("train", at("clevr-count", tmp_path / "main"))
    with pytest.raises(UsageError, match=r"data.answer_key is for data.name=table"):
        load_rows("train", at("clevr-count", tmp_path / "main", answer_key="answer"))
