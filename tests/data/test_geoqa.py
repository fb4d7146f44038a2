"""GeoQA: the splits are those of the published runs, a question is text first, then the picture, and the explanation is nowhere."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from seegrad.config import DataConfig
from seegrad.data.geoqa import ASK, SPLITS, geoqa, shuffled
from seegrad.data.prepare import prepare
from seegrad.data.rows import load_rows
from seegrad.errors import DataError, SeegradError, UsageError
from seegrad.rewards.choice import choice
from tests.data import schemas

COUNTS = {"train": 9, "dev": 4, "test": 130}


def at(path: Path, **changes: object) -> DataConfig:
    return DataConfig(name="geoqa", path=str(path)).model_copy(update=changes)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The set as it lies on the hub: one file whose name says train, all original splits in it."""
    folder = tmp_path_factory.mktemp("geoqa")
    schemas.write_geoqa(folder / "data" / "train-00000-of-00001.parquet", COUNTS)
    return folder


@pytest.fixture(scope="module")
def prepared(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("prepared")
    assert [(part.split, part.num_rows, part.num_good) for part in prepare(at(whole), out)] == [
        ("train", 9, 9),
        ("dev", 4, 4),
        ("test", 100, 100),
        ("test-full", 130, 130),
    ]
    return out


def ids(split: str, data: DataConfig) -> list[str]:
    return [example.id for example in geoqa(split, data)]


def test_the_order_is_that_of_the_datasets_library(whole: Path) -> None:
    datasets = pytest.importorskip("datasets")
    for length in (1, 2, 130, 759):
        theirs = datasets.Dataset.from_dict({"row": list(range(length))}).shuffle(seed=42)["row"]
        assert list(shuffled(length)) == list(theirs)
        assert list(shuffled(length, seed=43)) != list(theirs) or length == 1
    rows = pq.read_table(whole / "data" / "train-00000-of-00001.parquet").select(["id", "original_split"]).to_pylist()
    theirs = datasets.Dataset.from_list(rows).filter(lambda row: row["original_split"] == "test").shuffle(seed=42)
    last = theirs.select(range(len(theirs) - 100, len(theirs)))["id"]
    assert ids("test", at(whole)) == [str(number) for number in last]


def test_the_last_hundred_of_759_are_these() -> None:
    """Recorded from `datasets.Dataset.shuffle(seed=42)`, for where that library is not installed."""
    last = list(shuffled(759))[-100:]
    assert last[:8] == [114, 170, 123, 301, 615, 602, 694, 508]
    assert len(set(last)) == 100
    assert last == np.random.default_rng(42).permutation(759)[-100:].tolist()


def test_splits(whole: Path) -> None:
    assert {split: len(geoqa(split, at(whole))) for split in SPLITS} == {"train": 9, "dev": 4, "test": 100, "test-full": 130}
    full, test = ids("test-full", at(whole)), ids("test", at(whole))
    assert test == [full[number] for number in list(shuffled(130))[-100:]]
    assert full == sorted(full, key=int), "all of test is in the order of the file"
    assert not set(ids("train", at(whole))) & set(full)
    assert ids("test[-7:]", at(whole)) == test[-7:]
    assert ids("train[:50%]", at(whole)) == ids("train", at(whole))[:4]
    with pytest.raises(UsageError, match=r"no split 'validation'; known: dev, test, test-full, train"):
        geoqa("validation", at(whole))


def test_text_first_then_the_picture_and_no_explanation(whole: Path) -> None:
    example = geoqa("train", at(whole))[0]
    text, mark, rest = example.question.partition("<image>")
    assert (mark, rest) == ("<image>", "")
    assert text.splitlines()[1:] == ["A. 0°", "B. 10°", "C. 20°", "D. 30°", ASK["zh"]]
    assert (example.answer, example.choices) == ("A", ("0°", "10°", "20°", "30°"))
    assert example.meta == {"original_split": "train", "formal_point": "三角形内角和"}
    assert "解释" not in repr((example.id, example.question, example.answer, example.choices, example.meta))
    assert all(f"\\boxed{{{letter}}}" in ASK[language] for letter in "ABCD" for language in ASK)
    assert geoqa("train", at(whole, language="en"))[0].question.endswith(f"{ASK['en']}<image>")
    assert geoqa("train", at(whole, template="题目：{prompt}\n答："))[0].question.endswith("D. 30°\n答：<image>")


def test_transparent_ground_is_white(whole: Path) -> None:
    (data,) = geoqa("train", at(whole))[0].images
    with Image.open(io.BytesIO(data)) as picture:
        assert picture.mode == "RGB"
        pixels = np.asarray(picture)
    assert tuple(pixels[0, 0]) == (255, 255, 255)
    assert pixels.min() == 0, "and the lines are still black"


def test_every_gold_scores_one_and_every_other_letter_nothing(whole: Path) -> None:
    for example in geoqa("test-full", at(whole)):
        scores = {letter: choice(example, f"\\boxed{{{letter}}}").value for letter in "ABCD"}
        assert scores.pop(example.answer) == 1
        assert set(scores.values()) == {0}


def test_the_prepared_files_are_the_same_rows(whole: Path, prepared: Path) -> None:
    assert sorted(path.name for path in prepared.iterdir()) == ["dev.parquet", "test-full.parquet", "test.parquet", "train.parquet"]
    for split in SPLITS:
        ours, theirs = geoqa(split, at(prepared)), geoqa(split, at(whole))
        assert [(row.id, row.question, row.answer, row.images, row.meta) for row in ours] == [
            (row.id, row.question, row.answer, row.images, row.meta) for row in theirs
        ]
    assert len(geoqa("test", at(prepared / "test.parquet"))) == 100
    assert len(geoqa("test", at(prepared / "{split}.parquet"))) == 100
    table = DataConfig(name="table", path=str(prepared), prompt_key="subject", answer_key="label")
    assert [example.id for example in load_rows("test", table)] == ids("test", at(whole))


def test_the_prepared_files_keep_columns_and_types(whole: Path, prepared: Path) -> None:
    before, after = pq.read_schema(whole / "data" / "train-00000-of-00001.parquet"), pq.read_schema(prepared / "train.parquet")
    assert [(field.name, field.type) for field in after] == [(field.name, field.type) for field in before]
    assert pq.read_table(prepared / "train.parquet")["answer"].to_pylist()[0].startswith("解释")


def test_the_datasets_library_reads_the_prepared_files(prepared: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    row = datasets.Dataset.from_parquet(str(prepared / "test.parquet"), cache_dir=str(tmp_path))[0]
    assert row["image"].mode == "RGBA"
    assert len(row["choices"]) == 4


def test_two_files_alone_refuse_the_other_splits(prepared: Path, tmp_path: Path) -> None:
    for name in ("train", "test"):
        (tmp_path / f"{name}.parquet").write_bytes((prepared / f"{name}.parquet").read_bytes())
    assert (len(geoqa("train", at(tmp_path))), len(geoqa("test", at(tmp_path)))) == (9, 100)
    for split in ("dev", "test-full"):
        with pytest.raises(UsageError, match=f"no file for the split '{split}'"):
            geoqa(split, at(tmp_path))


@pytest.mark.parametrize("name", ["train.parquet", "all.parquet", "data/train.parquet"])
def test_a_whole_set_is_told_from_a_split_by_its_rows(tmp_path: Path, name: str) -> None:
    schemas.write_geoqa(tmp_path / name, COUNTS)
    assert {split: len(geoqa(split, at(tmp_path))) for split in SPLITS} == {"train": 9, "dev": 4, "test": 100, "test-full": 130}


def test_files_of_whole_splits_serve_both_tests(tmp_path: Path) -> None:
    for split, count in COUNTS.items():
        schemas.write_geoqa(tmp_path / f"{split}.parquet", {split: count})
    assert {split: len(geoqa(split, at(tmp_path))) for split in SPLITS} == {"train": 9, "dev": 4, "test": 100, "test-full": 130}


BROKEN: dict[str, tuple[Callable[[], dict[str, object]], str]] = {
    "label": (lambda: {"label": 4}, "label is not 0 to 3"),
    "no label": (lambda: {"label": None}, "label is not 0 to 3"),
    "three options": (lambda: {"choices": ["1", "2", "3"]}, "not four options"),
    "an empty option": (lambda: {"choices": ["1", "2", "3", " "]}, "not four options"),
    "no question": (lambda: {"subject": " "}, "empty question"),
    "no picture": (lambda: {"image": None}, "picture missing"),
    "two marks": (lambda: {"subject": "<image>与<image>"}, "wrong number of <image> marks"),
}


@pytest.mark.parametrize("fault", sorted(BROKEN))
def test_a_bad_row_is_one_line_with_a_reason(tmp_path: Path, fault: str) -> None:
    change, reason = BROKEN[fault]
    schemas.write_geoqa(tmp_path / "all.parquet", {"train": 2}, **change())
    with pytest.raises(DataError) as caught:
        geoqa("train", at(tmp_path))[1]
    assert caught.value.reason == reason
    assert "geoqa (train), row 1" in str(caught.value)
    assert "\n" not in str(caught.value)
    (part,) = prepare(at(tmp_path), tmp_path / "out", ["train"])
    assert (part.num_rows, part.num_good, part.bad) == (2, 0, {reason: 2})


def test_settings_and_columns_that_do_not_fit_are_refused(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"data.prompt_key is for data.name=table"):
        geoqa("train", at(whole, prompt_key="subject"))
    with pytest.raises(UsageError, match=r"no \{prompt\}"):
        geoqa("train", at(whole, template="answer"))
    schemas.write_geometry3k(tmp_path / "train.parquet")
    with pytest.raises(SeegradError, match="no column"):
        geoqa("train", at(tmp_path))
