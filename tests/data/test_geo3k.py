"""Geometry3K: three publications, one form; the answer is the value, unwrapped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seegrad.config import DataConfig
from seegrad.data.geo3k import ASK, geo3k
from seegrad.data.prepare import prepare
from seegrad.errors import DataError, UsageError
from seegrad.rewards.base import Rewards
from tests.data import schemas

WRITERS: dict[str, Callable[[Path, int], None]] = {
    "CAIR-HKISI": schemas.write_geo3k_bytes,
    "chenhegu": schemas.write_geo3k_imgurl,
    "hiyouga": schemas.write_geometry3k,
}


def at(path: Path, **changes: object) -> DataConfig:
    return DataConfig(name="geo3k", path=str(path)).model_copy(update=changes)


@pytest.mark.parametrize("publication", sorted(WRITERS))
def test_every_publication_gives_picture_question_and_value(tmp_path: Path, publication: str) -> None:
    WRITERS[publication](tmp_path / "train.parquet", 6)
    rows = list(geo3k("train", at(tmp_path)))
    assert len({row.id for row in rows}) == 6
    assert len({row.images for row in rows}) > 1, "each row has its own picture"
    for number, row in enumerate(rows):
        assert len(row.images) == 1
        assert row.question.startswith("<image>")
        assert row.question.count("<image>") == 1
        assert row.question.endswith(f"\n{ASK['en']}")
        assert row.answer == (str(270 + number) if publication == "chenhegu" else schemas.LATEX[number])
        assert "boxed" not in row.answer


@pytest.mark.parametrize("publication", sorted(WRITERS))
def test_prepared_files_give_the_same_rows_from_anywhere(tmp_path: Path, publication: str) -> None:
    WRITERS[publication](tmp_path / "hub" / "train.parquet", 6)
    before = [(row.id, row.question, row.answer, row.images) for row in geo3k("train", at(tmp_path / "hub"))]
    (part,) = prepare(at(tmp_path / "hub"), tmp_path / "out", ["train"])
    assert (part.num_rows, part.bad) == (6, {})
    (tmp_path / "hub").rename(tmp_path / "gone")
    assert [(row.id, row.question, row.answer, row.images) for row in geo3k("train", at(tmp_path / "out"))] == before


def test_splits_are_those_of_the_files(tmp_path: Path) -> None:
    for number, split in enumerate(("train", "validation", "test"), 3):
        schemas.write_geometry3k(tmp_path / "data" / f"{split}-00000-of-00001.parquet", number)
    assert [len(geo3k(split, at(tmp_path))) for split in ("train", "dev", "validation", "test")] == [3, 4, 4, 5]
    assert len(geo3k("train[-2:]", at(tmp_path))) == 2
    with pytest.raises(UsageError, match="no split 'ood'; splits: test, train, validation"):
        geo3k("ood", at(tmp_path))


def test_the_letter_is_kept_apart_from_the_value(tmp_path: Path) -> None:
    schemas.write_geometry3k(tmp_path / "train.parquet", 2)
    row = geo3k("train", at(tmp_path, language="zh"))[1]
    assert (row.answer, row.meta, row.choices) == (schemas.LATEX[1], {"ground_truth": "C"}, ())
    assert ASK["zh"] in row.question


def test_every_gold_scores_one(tmp_path: Path) -> None:
    rewards = Rewards({"math": 1.0})
    try:
        for publication, write in WRITERS.items():
            write(tmp_path / publication / "train.parquet", len(schemas.LATEX))
            for row in geo3k("train", at(tmp_path / publication)):
                for text in (f"So it is \\boxed{{{row.answer}}}.", f"\\boxed{{{row.answer.replace(' ', '')}}}"):
                    grade = rewards.grade(row, text)
                    assert (grade.error, grade.reward) == (None, 1.0), row.answer
                assert rewards.grade(row, "\\boxed{98765}").reward == 0
    finally:
        rewards.close()


def test_rows_without_a_picture_or_with_too_few_are_bad(tmp_path: Path) -> None:
    field = [("images", schemas.pa.list_(schemas.PICTURE)), ("problem", schemas.pa.string()), ("answer", schemas.pa.string())]
    picture = {"bytes": schemas.drawing(), "path": None}
    rows = [
        {"images": [], "problem": "Find x.", "answer": "1"},
        {"images": [picture], "problem": "<image> and <image>: find x.", "answer": "1"},
        {"images": [picture], "problem": "<image>Find x.", "answer": " "},
        {"images": [picture, picture], "problem": "Find x.", "answer": "1"},
    ]
    schemas.write(tmp_path / "train.parquet", rows, field)
    found = geo3k("train", at(tmp_path))
    reasons = []
    for number in range(3):
        with pytest.raises(DataError) as caught:
            found[number]
        reasons.append(caught.value.reason)
    assert reasons == ["picture missing", "wrong number of <image> marks", "empty answer"]
    assert found[3].question.startswith("<image><image>Find x.")
    (part,) = prepare(at(tmp_path), tmp_path / "out", ["train"])
    assert (part.num_good, sorted(part.bad.items())) == (1, [(reason, 1) for reason in sorted(reasons)])


def test_a_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    schemas.write_r1v(tmp_path / "train.parquet", ["1"])
    with pytest.raises(UsageError, match="no column 'answer'"):
        geo3k("train", at(tmp_path))
