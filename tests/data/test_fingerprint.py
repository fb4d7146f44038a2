"""A continued run goes on with the rows that it began with, or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from seegrad.config import DataConfig, load_config
from seegrad.data import fingerprint as module
from seegrad.data.fingerprint import difference, fingerprint
from seegrad.data.shapes import Shapes
from seegrad.data.skipping import Fitting, Skipping
from seegrad.data.table import table
from seegrad.errors import RunError
from seegrad.launch import _check_rows, read_launch, start
from seegrad.rundir import RunWriter
from tests import fakes
from tests.data.test_files import json_lines


def rows_of(path: Path) -> dict[str, Any]:
    return fingerprint(table("train", DataConfig(path=str(path))))


def test_what_the_files_hold_counts_and_not_their_names_or_times(tmp_path: Path) -> None:
    rows = [{"question": str(n), "answer": "1"} for n in range(4)]
    first = rows_of(json_lines(tmp_path / "a.jsonl", rows))
    copy = json_lines(tmp_path / "b.jsonl", rows)
    os.utime(copy, (1, 1))
    assert rows_of(copy) == first
    assert difference(first, rows_of(copy)) == ""
    assert difference(first, rows_of(json_lines(tmp_path / "c.jsonl", rows[::-1]))) == "as many rows, but their files hold something else"
    assert difference(first, rows_of(json_lines(tmp_path / "d.jsonl", rows[:3]))) == "4 rows then, 3 now"


def test_of_a_large_file_pieces_from_start_to_end_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = json_lines(tmp_path / "a.jsonl", [{"question": str(n), "answer": "1"} for n in range(50)])
    monkeypatch.setattr(module, "PIECE", 16)
    monkeypatch.setattr(module, "WHOLE", 64)
    before, data = rows_of(path), path.read_bytes()
    for place in (1, len(data) // 3 + 1, len(data) - 4):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert module._hash(path) != before["files"][0], place
        path.write_bytes(data)
    assert rows_of(path) == before


def test_rows_of_other_kinds() -> None:
    assert fingerprint(Shapes("count", "train", DataConfig())) == {}
    assert fingerprint(Skipping(Fitting(fakes.examples(5), lambda _: 1))) == {"rows": 5, "files": []}


def test_a_run_does_not_go_on_with_other_rows(tmp_path: Path) -> None:
    rows = [{"question": str(n), "answer": n} for n in range(6)]
    path = json_lines(tmp_path / "rows.jsonl", rows)
    settings = ["data.name=table", f"data.path={json.dumps(str(path))}", "model.base=tiny", "eval.every=0", "reward.parts={count=1.0}"]
    with RunWriter.create(tmp_path / "run", load_config("count", settings)) as run:
        _check_rows(run, table("train", DataConfig(path=str(path))))
        _check_rows(run, table("train", DataConfig(path=str(path))))
        _check_rows(run, Shapes("count", "train", DataConfig()))
    assert json.loads((tmp_path / "run" / "rows.json").read_text(encoding="utf-8"))["rows"] == 6
    json_lines(path, rows[:5])
    message = r"the training rows have changed since the run began \(6 rows then, 5 now\); bring the old ones back"
    with pytest.raises(RunError, match=message):
        start(read_launch([str(tmp_path / "run")], resume=True))
