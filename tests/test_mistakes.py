"""What people mistype, misplace and do not foresee: one line, the right exit code, and no work lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from seegrad.errors import RunError
from seegrad.wiring import eval_path, find_target
from tests.test_cli import environment, one_line


def test_what_nobody_foresaw_is_one_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("seegrad.wiring.run_names", breaks)
    error = one_line("list", cwd=tmp_path, code=1)
    assert "unexpected RuntimeError: two lines (" in error and "test_mistakes.py:" in error and "--debug" in error
    monkeypatch.setattr("seegrad.wiring.run_names", lambda: (tmp_path / "nowhere").read_text())
    assert f"{tmp_path}/nowhere: No such file or directory; check" in one_line("list", cwd=tmp_path, code=7)


def test_a_terminal_without_unicode_gets_escapes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "seegrad", "data", "show", "count", "-n", "3"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(PYTHONIOENCODING="ascii"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert r"\u" in done.stdout


def test_a_place_that_cannot_be_written_is_found_before_the_answers(tmp_path: Path) -> None:
    assert "is a folder" in one_line("eval", "tiny", "--out", ".", cwd=tmp_path, code=7)
    (tmp_path / "file").write_text("")
    assert "is a file" in one_line("eval", "tiny", "--out", "file/x.json", cwd=tmp_path, code=7)
    assert "is a folder" in one_line("data", "show", "--out", ".", cwd=tmp_path, code=7)
    assert "has 10000 rows" in one_line("sample", "--index", "10000", cwd=tmp_path, code=2)


def test_an_address_never_becomes_part_of_a_path(tmp_path: Path) -> None:
    found = find_target("tiny", overrides=[f"data.name={tmp_path}/mine.py:rows"])
    assert eval_path(found, "a/b") == Path("runs/base-tiny/eval/rows-a-b.json")


def test_the_bundled_model_is_not_hidden_by_a_folder_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tiny").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_target("tiny").config.model.base == "tiny"
    with pytest.raises(RunError, match="neither a run directory"):
        find_target("./tiny")
