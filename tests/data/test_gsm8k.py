"""GSM8K: text only; the number after the last `####` is the answer; only the configuration `main` is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from seegrad.config import DataConfig
from seegrad.data.gsm8k import ASK, final_number
from seegrad.data.prepare import prepare
from seegrad.data.rows import load_rows
from seegrad.errors import DataError
from seegrad.rewards.base import Rewards
from tests.data import schemas


def at(path: Path | str, **changes: object) -> DataConfig:
    return DataConfig(name="gsm8k", path=str(path)).model_copy(update=changes)


def test_rows(tmp_path: Path) -> None:
    schemas.write_gsm8k(tmp_path, 3)
    rows = load_rows("train", at(tmp_path))
    assert [row.answer for row in rows] == ["18", "1080", "2160"], "commas are no part of a number"
    assert all(row.images == () and "<image>" not in row.question and row.question.endswith(ASK["en"]) for row in rows)
    assert not any("####" in row.question or "<<" in row.question for row in rows), "the solution is not shown"
    assert len({row.id for row in rows}) == 3


def test_one_configuration_and_both_splits(tmp_path: Path) -> None:
    schemas.write_gsm8k(tmp_path, 5)
    assert [len(load_rows(split, at(tmp_path))) for split in ("train", "test", "train[:-2]")] == [5, 5, 3]
    assert len(load_rows("test", at(tmp_path / "socratic"))) == 8, "the other one when it is named"
    assert [(part.split, part.num_good) for part in prepare(at(tmp_path), tmp_path / "out")] == [("train", 5), ("test", 5)]
    assert [row.answer for row in load_rows("test", at(tmp_path / "out"))] == [row.answer for row in load_rows("test", at(tmp_path))]


@pytest.mark.parametrize(
    ("solution", "number"),
    [
        ("#### 18", "18"),
        ("10\n#### 1,080", "1080"),
        ("#### 3\nso\n#### -2.5\n", "-2.5"),
        ("x\n####$1,234,567", "$1234567"),
        ("it costs 5, 6 or 7\n#### 7", "7"),
    ],
)
def test_the_final_number(solution: str, number: str) -> None:
    assert final_number(solution) == number


@pytest.mark.parametrize("solution", ["18", "", None, "#### 18\nand more", "####"])
def test_a_solution_without_one_is_a_bad_row(solution: str | None) -> None:
    with pytest.raises(DataError) as caught:
        final_number(solution)
    assert caught.value.reason == "no final number"


def test_every_gold_scores_one(tmp_path: Path) -> None:
    schemas.write_gsm8k(tmp_path, 6)
    rewards = Rewards({"math": 1.0})
    try:
        for row in load_rows("test", at(tmp_path)):
            for text in (f"\\boxed{{{row.answer}}}", f"\\boxed{{{int(row.answer):,}}}"):
                assert rewards.grade(row, text).reward == 1.0, text
            assert rewards.grade(row, f"\\boxed{{{int(row.answer) + 1}}}").reward == 0
    finally:
        rewards.close()
