"""The real backend: 20 steps are the golden 20 steps, and 20 steps are 10 steps, a fresh process's memory, and 10 more."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from seegrad import gather as gather_module
from seegrad.backends.local.policy import LocalPolicy
from seegrad.rundir import RunDir
from seegrad.schedule import question_positions
from tests import fakes, golden_trace
from tests.runs import differences


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty steps without a break."""
    path = tmp_path_factory.mktemp("golden") / "run"
    assert golden_trace.run(path, golden_trace.config()).state == "finished"
    return path


def test_golden_trace(straight: Path) -> None:
    golden, now = json.loads(golden_trace.FILE.read_text()), golden_trace.trace(straight)
    assert golden_trace.problems(golden, now) == []
    assert sum(step["train_datums"] > 0 for step in golden["steps"]) >= 10  # it is about learning, not about flat groups


@pytest.mark.parametrize(
    ("name", "factor"), [("reward", 1.02), ("trainer/loss", 1.5), ("trainer/kl", 1.05), ("trainer/grad_norm", 1.01), ("trainer/entropy", 1.01)]
)
def test_golden_trace_notices_a_drift(straight: Path, name: str, factor: float) -> None:
    now = golden_trace.trace(straight)
    moved = copy.deepcopy(now)
    step = max(range(20), key=lambda number: abs(moved["steps"][number].get(name, 0.0)))
    moved["steps"][step][name] *= factor
    assert golden_trace.problems(now, now) == []
    assert [problem.split(" was ")[0] for problem in golden_trace.problems(now, moved)] == [f"step {step + 1}: {name}"]
    assert golden_trace.problems(now, {**now, "model_sha256": "other"}) and golden_trace.problems(now, {**now, "steps": now["steps"][:19]})


def _as_killed_after_step_10(straight: Path, path: Path) -> Path:
    """The directory that a run leaves that dies before its second checkpoint: metrics and rollouts reach further than the checkpoint."""
    shutil.copytree(straight, path)
    shutil.rmtree(path / "checkpoints" / "step-000020")
    return path


def test_resumed_at_10_is_the_straight_run(straight: Path, tmp_path: Path) -> None:
    path = _as_killed_after_step_10(straight, tmp_path / "run")
    assert differences(straight, path)
    assert golden_trace.run(path, golden_trace.config(), resume=True).step == 20
    assert differences(straight, path) == []  # metrics but timings, every rollout, weights, optimizer: bit for bit


@contextmanager
def _forgotten_moments(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    load = LocalPolicy.load_state

    def forget(self: LocalPolicy, folder: Path) -> None:
        load(self, folder)
        self._optimizer = None

    with monkeypatch.context() as patch:
        patch.setattr(LocalPolicy, "load_state", forget)
        yield


@contextmanager
def _forgotten_position(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(gather_module, "question_positions", lambda *args: question_positions(args[0], args[1], args[2] - 10, args[3]))
        yield


@pytest.mark.parametrize("planted", [_forgotten_moments, _forgotten_position])
def test_what_a_resume_forgets_shows(straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: Any) -> None:
    path = _as_killed_after_step_10(straight, tmp_path / "run")
    with planted(monkeypatch), pytest.raises(_Enough):
        golden_trace.run(path, golden_trace.config(), resume=True, rewards=_StopsAfter(3 * 8))
    found = differences(straight, path)
    assert any(difference.startswith(("metrics of step 11", "metrics of step 12", "metrics of step 13")) for difference in found)


class _Enough(Exception):
    pass


class _StopsAfter(fakes.OneByOne):
    """Rewards that end the run after so many answers."""

    def __init__(self, answers: int) -> None:
        self._left = answers
        self._rewards = golden_trace.Parts(golden_trace.config()).rewards

    def grade(self, example: Any, text: str) -> Any:
        if self._left == 0:
            raise _Enough
        self._left -= 1
        return self._rewards.grade(example, text)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_command_killed_again_and_again_is_the_straight_run(straight: Path, tmp_path: Path) -> None:
    """`seegrad train` itself gets SIGKILL a little later each time, until it gets to its end."""
    path, recipe = tmp_path / "run", tmp_path / "golden.toml"
    shutil.copy(straight / "config.toml", recipe)
    command = [sys.executable, "-m", "seegrad", "train", str(recipe), "--out", str(path), "--resume"]
    killed, patience = 0, 0.2
    while killed < 30:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert child.stdout is not None
        while (line := child.stdout.readline()) and not line.startswith("step"):
            pass  # loading
        try:
            _, error = child.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            killed, patience = killed + 1, patience * 2
            continue
        assert child.returncode == 0, error
        break
    assert killed >= 2 and RunDir.open(path).status().state == "finished"
    assert differences(straight, path) == []


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ctrl_c_to_the_command_exits_130_and_continues(straight: Path, tmp_path: Path) -> None:
    path, recipe = tmp_path / "run", tmp_path / "golden.toml"
    shutil.copy(straight / "config.toml", recipe)
    command = [sys.executable, "-m", "seegrad", "train", str(recipe), "--out", str(path), "--resume"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (path / "metrics.jsonl").exists():
        assert child.poll() is None, child.communicate()
        time.sleep(0.05)
    os.kill(child.pid, signal.SIGINT)
    output, error = child.communicate()
    assert child.returncode == 130 and "Traceback" not in error and "continue: seegrad train --resume" in output
    assert RunDir.open(path).status().state == "interrupted"
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    found = differences(straight, path)
    assert all("checkpoints/" in difference for difference in found)
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0 and "is finished" in again.stdout
