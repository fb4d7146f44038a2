"""Rows: bad ones by reason, ids, and what both splits share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from seegrad.errors import DataError
from seegrad.preflight import rows as rows_module
from seegrad.preflight.rows import scan
from seegrad.types import Example
from tests.fakes import config, examples
from tests.preflight.subjects import findings, png, table


class Torn(Sequence[Example]):
    """Row 1 cannot be read."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, position: Any) -> Any:
        if position == 1:
            raise DataError("row 1: the picture is not an image", reason="not a picture")
        return examples()[position]


def test_bad_rows_are_counted_by_reason_and_stop_only_a_run_that_stops_for_them() -> None:
    check = findings(train=Torn())["rows"]
    assert check.passed is None
    assert "1 not a picture" in check.detail and "row 1: the picture is not an image" in check.detail
    assert check.facts["train"]["bad"] == {"not a picture": 1}
    assert findings(train=Torn(), config=config(data={"bad_rows": "stop"}))["rows"].passed is False


def test_a_repeated_id_in_a_split_fails() -> None:
    rows = examples()
    check = findings(train=[*rows[:4], dataclasses.replace(rows[4], id="row-2")])["ids"]
    assert check.passed is False
    assert "'row-2', 2 times in train" in check.detail


def test_the_same_content_in_both_splits_is_told() -> None:
    rows = examples()
    same = findings(train=rows[:8], held_out=rows[6:])["splits"]
    assert same.passed is False and same.facts == {"shared_content": 2, "shared_content_and_id": 2}
    renamed = [dataclasses.replace(row, id=f"other-{row.id}") for row in rows[7:]]
    check = findings(train=rows[:8], held_out=renamed)["splits"]
    assert check.passed is None and "'row-7' and 'other-row-7'" in check.detail
    numbered = [dataclasses.replace(row, id=f"row-{number}") for number, row in enumerate(rows[8:])]
    assert findings(train=rows[:8], held_out=numbered)["splits"].passed is True  # an id of its own in each split


def test_one_split_for_both_is_a_remark() -> None:
    check = findings(config=config(eval={"split": "train"}), held_out=examples()[:8])["splits"]
    assert check.passed is None
    assert "both use train" in check.detail


def test_a_table_is_outlined_to_the_end_without_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(png(40 + number, 20, number))
    rows = [{"id": n, "question": f"<image>Question {n}?", "answer": "1", "picture": f"{n % 3}.png"} for n in range(30)]
    rows[25]["picture"] = "absent.png"
    rows[7]["question"] = "<image><image>Two?"
    (tmp_path / "cut.png").write_bytes(png(30, 30)[:60])  # the header is whole, the pixels are not
    rows[2]["picture"] = "cut.png"
    source = table(tmp_path, rows)
    found = scan("train", source, 4)
    assert (found.total, found.looked, len(found.rows), len(found.whole)) == (30, 30, 27, 3)
    assert sum(found.reasons.values()) == 3 and len(found.reasons) == 3
    assert found.rows[0].sizes == ((40, 20),) and found.rows[0].example.images == () and len(found.whole[0].images) == 1
    monkeypatch.setattr(rows_module, "MOST_ROWS", 10)
    assert scan("train", source, 1).looked == 10


def test_a_table_is_compared_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(40, 20))
    train = table(tmp_path, [{"question": f"Q{n}", "answer": "1", "picture": "a.png"} for n in range(6)])
    test = table(tmp_path, [{"id": f"t{n}", "question": f"Q{n}", "answer": "1", "picture": "a.png"} for n in range(5, 9)], name="test")
    scans = [scan("train", train, 0), scan("test", test, 0)]
    check = list(rows_module.check_rows(scans, config().data))[2]
    assert check.facts["shared_content"] == 1
