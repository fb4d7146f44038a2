"""Whatever happens to a run, it can be continued, and then it is the run that nothing happened to."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seegrad.errors import RunError
from seegrad.rundir import RunDir, RunWriter
from seegrad.types import Example
from tests import fakes, kill_points, slow_run
from tests.disk import small_file_system
from tests.runs import differences, fake_run

ROOT = Path(__file__).parents[1]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: these tests write a lot, and a killed process needs no fsync."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


class _Signals(fakes.OneByOne):
    """Rewards that send signals to their own process at the given gradings."""

    def __init__(self, *at: int) -> None:
        self._at, self._count, self._rewards = at, 0, fakes.rewards()

    def grade(self, example: Example, text: str):  # type: ignore[no-untyped-def]
        self._count += 1
        for number in self._at:
            if number == self._count:
                signal.raise_signal(signal.SIGINT)
        return self._rewards.grade(example, text)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six undisturbed steps."""
    path = tmp_path_factory.mktemp("straight") / "run"
    fake_run(path, fakes.config())
    return path


def test_one_signal_finishes_the_step_and_saves(tmp_path: Path, straight: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run"
    before = signal.getsignal(signal.SIGINT)
    outcome = fake_run(path, fakes.config(), rewards=_Signals(2 * 16 + 5))
    assert (outcome.state, outcome.step) == ("interrupted", 3)
    assert signal.getsignal(signal.SIGINT) is before
    assert "finishing this step and writing a checkpoint; press Ctrl-C again to stop at once" in capfd.readouterr().err
    run = RunDir.open(path)
    assert run.status().state == "interrupted" and run.status().step == 3 and run.checkpoints()[-1].step == 3
    assert [line["step"] for line in run.metrics()] == [1, 2, 3]
    assert fake_run(path, fakes.config(), resume=True).state == "finished"
    found = differences(straight, path)
    assert found and all("checkpoints/" in difference for difference in found)  # the extra checkpoint of step 3, and what it pushed out
    assert (path / "checkpoints/step-000006/state/state.npy").read_bytes() == (straight / "checkpoints/step-000006/state/state.npy").read_bytes()


def test_two_signals_stop_at_once(tmp_path: Path, straight: Path) -> None:
    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        fake_run(path, fakes.config(), rewards=_Signals(2 * 16 + 5, 2 * 16 + 7))
    run = RunDir.open(path)
    assert run.status().state == "interrupted" and run.status().message == "stopped at once during step 3"
    assert len(run.metrics()) == 2 and run.checkpoints()[-1].step == 2 and not run.is_locked()
    fake_run(path, fakes.config(), resume=True)
    assert differences(straight, path) == []


def test_a_signal_in_the_last_step_is_a_finished_run(tmp_path: Path, straight: Path) -> None:
    assert fake_run(tmp_path / "run", fakes.config(), rewards=_Signals(6 * 16)).state == "finished"
    assert differences(straight, tmp_path / "run") == []


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path, straight: Path) -> None:
    path = tmp_path / "run"
    fake_run(path, fakes.config())
    policy = fakes.FakePolicy(seed=5)
    outcome = fake_run(path, fakes.config(), resume=True, policy=policy)
    assert (outcome.state, outcome.step, policy.version) == ("finished", 6, 6) and not policy.adams
    assert differences(straight, path) == [] and RunDir.open(path).status().state == "finished"


def test_a_truncated_checkpoint_costs_only_its_own_steps(tmp_path: Path, straight: Path) -> None:
    path = tmp_path / "run"
    fake_run(path, fakes.config())
    victim = path / "checkpoints" / "step-000006" / "state" / "state.npy"
    os.truncate(victim, 100)
    reporter = fakes.Quiet()
    fake_run(path, fakes.config(), resume=True, reporter=reporter)
    assert reporter.done == 4 and any("step-000006 is damaged and skipped: state/state.npy has 100 bytes" in note for note in reporter.notes)
    assert differences(straight, path) == []


def test_a_full_disk_can_be_freed_and_continued(tmp_path: Path) -> None:
    """The disk (a real file system of 2 MiB) fills up while step 4 runs."""
    config = fakes.config()
    with small_file_system(tmp_path / "disk", "2m") as disk:
        fake_run(disk / "straight", config)
        filler = disk / "filler"

        class Fills(fakes.Quiet):
            def step(self, step: int, metrics: object) -> None:
                if step == 3:
                    space = os.statvfs(disk)
                    filler.write_bytes(bytes(space.f_bavail * space.f_bsize))

        with pytest.raises(RunError, match=r"disk full while writing .*; kept: steps 1-3 and checkpoint .*step-000002; .*--resume"):
            fake_run(disk / "run", config, reporter=Fills())
        assert [line["step"] for line in RunDir.open(disk / "run").metrics()] == [1, 2, 3]
        filler.unlink()
        assert fake_run(disk / "run", config, resume=True).state == "finished"
        assert differences(disk / "straight", disk / "run") == []


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
def test_killed_before_any_operation_on_the_file_system(memory: Path, every: int) -> None:
    """SIGKILL at every `every`-th operation of a run of four steps; each wreck is continued and compared."""
    straight, wrecks = memory / "straight", memory / "wrecks"
    fake_run(straight, kill_points.config())
    wrecks.mkdir()
    subprocess.run([sys.executable, "-m", "tests.kill_points", str(wrecks), str(every)], check=True, cwd=ROOT)
    numbers = sorted(int(path.name) for path in wrecks.iterdir())
    assert len(numbers) > 100 // every
    disturbed, starts = 0, set()
    for number in numbers:
        path, reporter = wrecks / str(number), fakes.Quiet()
        disturbed += not (path / "config.toml").exists() or bool(differences(straight, path))
        fake_run(path, kill_points.config(), resume=(path / "config.toml").exists(), reporter=reporter)
        starts.add(reporter.done)
        assert differences(straight, path) == [], f"killed before operation {number}, continued from step {reporter.done}"
        assert RunDir.open(path).eval_names() == ["step-000002", "step-000004"]
        leftovers = [file.name for file in path.rglob(".*")]
        assert leftovers == [], f"killed before operation {number}"
    assert disturbed >= len(numbers) - 2 - 20 // every and starts == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("kills", [4, pytest.param(60, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
def test_killed_at_random_moments(memory: Path, kills: int) -> None:
    """A real process gets SIGKILL at random moments until it has been killed often enough; then it may finish."""
    steps, generator = max(20, 4 * kills), random.Random(kills)
    fake_run(memory / "straight", slow_run.config(steps))
    killed = 0
    while killed < kills:
        child = _start(memory / "run", steps, "--resume")
        assert child.stdout is not None and child.stdout.readline().startswith("start")
        time.sleep(generator.uniform(0, 0.15))
        child.kill()
        killed += child.wait() == -signal.SIGKILL
        child.communicate()
        if (memory / "run" / "metrics.jsonl").exists() and RunDir.open(memory / "run").status().state == "finished":
            break
    child = _start(memory / "run", steps, "--resume")
    assert child.wait() == 0, child.communicate()
    child.communicate()
    assert killed >= min(kills, 3)
    assert differences(memory / "straight", memory / "run") == []


def test_ctrl_c_to_a_real_process_exits_130_and_a_second_one_is_kept_out(tmp_path: Path) -> None:
    steps = 400
    child = _start(tmp_path / "run", steps)
    assert child.stdout is not None and child.stdout.readline() == "start 0\n"
    other = _start(tmp_path / "run", steps, "--resume")
    error = other.communicate()[1]
    assert other.returncode == RunError.exit_code and f"is being written by process {child.pid}" in error and error.count("\n") == 1
    child.send_signal(signal.SIGTERM)
    output, message = child.communicate()
    assert child.returncode == 130 and "finishing this step" in message
    run = RunDir.open(tmp_path / "run")
    last = int(output.splitlines()[-1].split()[1])
    assert run.status().state == "interrupted" and run.status().step == last == run.checkpoints()[-1].step < steps
    with RunWriter.resume(run.path) as writer:
        assert writer.resume_point()[0] == run.checkpoints()[-1]


def _start(path: Path, steps: int, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.slow_run", str(path), str(steps), *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
