"""What the system says of devices and memory."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from seegrad.preflight import machine as module
from seegrad.preflight.machine import Machine, machine


def answers(monkeypatch: pytest.MonkeyPatch, text: str | Exception) -> None:
    def run(*args: Any, **kwargs: Any) -> Any:
        if isinstance(text, Exception):
            raise text
        return subprocess.CompletedProcess(args, 0, text, "")

    monkeypatch.setattr(module.subprocess, "run", run)


def test_a_card_is_taken_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, "1000, 2000\n3000, 4000\n")
    assert machine("auto") == Machine("cuda", 1000 << 20, 2000 << 20)
    assert machine("cuda:1") == Machine("cuda", 3000 << 20, 4000 << 20)
    assert machine("cuda:2") == Machine("cuda", None, None)
    assert machine("cpu").device == "cpu"


@pytest.mark.parametrize("said", [FileNotFoundError("nvidia-smi"), subprocess.TimeoutExpired("nvidia-smi", 10), "No devices were found\n", ""])
def test_without_one_it_is_the_processor(monkeypatch: pytest.MonkeyPatch, said: str | Exception) -> None:
    answers(monkeypatch, said)
    assert machine("auto").device == "cpu"


def test_a_control_group_lowers_what_is_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_meminfo", lambda path: (8000, 16000))
    monkeypatch.setattr(module, "_GROUP", tmp_path)
    assert machine("cpu") == Machine("cpu", 8000, 16000)
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("4000\n")
    assert machine("cpu") == Machine("cpu", 1000, 5000)
    (tmp_path / "memory.max").write_text("max\n")
    assert machine("cpu") == Machine("cpu", 8000, 16000)


def test_a_system_without_proc_is_asked_for_its_pages(tmp_path: Path) -> None:
    free, total = module._meminfo(tmp_path / "absent")
    assert free is None and total is not None and total > 1 << 28
