"""A continued run goes on with the rows that it began with, or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from seegrad.config import DataConfig
from seegrad.data import fingerprint as module
from seegrad.data.fingerprint import difference, fingerprint
from seegrad.data.shapes import Shapes
from seegrad.data.skipping import Fitting, Skipping
from seegrad.data.table import table
from seegrad.errors import RunError
from seegrad.launch import read_launch, start
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


def test_a_run_does_not_go_on_with_other_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"question": str(n), "answer": n} for n in range(6)]
    path, run = json_lines(tmp_path / "rows.jsonl", rows), tmp_path / "run"
    settings = ["data.name=table", f"data.path={json.dumps(str(path))}", "model.base=tiny", "eval.every=0", "reward.parts={count=1.0}"]
    settings += ["rollout.questions_per_step=1", "rollout.group_size=2", "rollout.max_tokens=2", "save.every=1"]
    assert start(read_launch([*settings, "steps=1"], out=run)) == 0
    assert json.loads((run / "rows.json").read_text(encoding="utf-8"))["rows"] == 6
    config = run / "config.toml"
    config.write_text(config.read_text(encoding="utf-8").replace("steps = 1\n", "steps = 2\n", 1), encoding="utf-8")
    (run / "status.json").write_text((run / "status.json").read_text(encoding="utf-8").replace("finished", "interrupted"), encoding="utf-8")
    json_lines(path, rows[:5])
    with pytest.raises(RunError, match=r"the training rows have changed since the run began \(6 rows then, 5 now\); bring the old ones back"):
        start(read_launch([str(run)], resume=True))
    json_lines(path, rows)
    assert start(read_launch([str(run)], resume=True)) == 0
    assert "finished after step 2" in capsys.readouterr().out
