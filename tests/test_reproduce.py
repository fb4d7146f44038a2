"""`seegrad reproduce`: whatever interrupts it, the same command ends with the same report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from seegrad import registry
from seegrad import reproduce as module
from seegrad.errors import BackendError, DataError, RunError, UsageError
from seegrad.evaluate import EvalResult
from seegrad.reproduce import PUBLISHED, reproduce
from seegrad.rundir import RunDir, RunWriter
from tests.data.schemas import write_geoqa
from tests.echo_backend import EchoPolicy, EchoSampler
from tests.runs import differences

ROOT = Path(__file__).parents[1]
SMALL = ["rollout.questions_per_step=2", "rollout.group_size=3", "rollout.max_tokens=14", "eval.num_items=6", "save.every=1", "eval.every=0"]
GEOQA = ["reproduce", "geoqa", "--model", "tiny", "--data", "geoqa.parquet", "model.dtype=float32", "optimizer.learning_rate=1e-2", "steps=2", *SMALL]
GEOQA += ["reward.parts.mine.py:signs=1.0", "reward.isolate=false"]  # a part that tells the answers of any model apart
MINE = "def signs(example, text):\n    return len(text) / 100\n"
KILLED = -signal.SIGKILL
# Where the disturbed run dies, each time further on: before the base evaluation is there, after it and before its pictures, in the second step, while
# a checkpoint is written, before the trained evaluation is there, and while the report is written.
DEATHS = (
    {"event": "os.rename", "path": "eval/base-test.json", "after": 0},
    {"event": "open", "path": ".png", "after": 0},
    {"event": "os.rename", "path": "rollouts/step-000002.jsonl", "after": 0},
    {"event": "os.rename", "path": "checkpoints/step-000002", "after": 0},
    {"event": "os.rename", "path": "eval/test.json", "after": 0},
    {"event": "os.rename", "path": "report/report.md", "after": 0},
)


def run_all(jobs: Sequence[dict[str, Any]]) -> tuple[list[int], str]:
    """Exit statuses of the jobs, and all that they printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-m", "tests.reproductions", json.dumps(jobs)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *printed, last = done.stdout.splitlines()
    return json.loads(last), "\n".join([*printed, done.stderr])


def report_files(folder: Path) -> dict[str, bytes]:
    """Every byte of a report except the one line that tells the time."""
    files = {path.name: path.read_bytes() for path in (folder / "report").iterdir() if not path.name.startswith("lab-")}
    lines = files["report.md"].splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(b"- Wall time")]
    assert len(kept) == len(lines) - 1
    return {**files, "report.md": b"".join(kept)}


def untimed(path: Path) -> dict[str, Any]:
    tree = json.loads(path.read_text())
    return {key: value for key, value in tree.items() if key not in ("samples_per_second", "total_time")}


@pytest.mark.parametrize(
    "deaths",
    [pytest.param((1, 2), marks=pytest.mark.timeout(600)), pytest.param(range(6), marks=[pytest.mark.soak, pytest.mark.timeout(1200)])],
    ids=["twice", "everywhere"],
)
def test_killed_on_the_way_it_ends_with_the_same_report(tmp_path: Path, deaths: Sequence[int]) -> None:
    straight, disturbed = tmp_path / "straight", tmp_path / "disturbed"
    for folder in (straight, disturbed):
        folder.mkdir()
        (folder / "mine.py").write_text(MINE)
        write_geoqa(folder / "geoqa.parquet", {"train": 8, "dev": 2, "test": 7})
    jobs: list[dict[str, Any]] = [{"folder": str(straight), "words": GEOQA}]
    jobs += [{"folder": str(disturbed), "words": GEOQA, "die": DEATHS[number]} for number in deaths]
    jobs += [{"folder": str(disturbed), "words": GEOQA}, {"folder": str(disturbed), "words": [*GEOQA, "optimizer.learning_rate=1e-3"]}]
    statuses, printed = run_all(jobs)
    assert statuses == [0, *[KILLED] * len(deaths), 0, UsageError.exit_code], printed
    ours, theirs = straight / "runs/reproduce-geoqa", disturbed / "runs/reproduce-geoqa"
    assert report_files(ours) == report_files(theirs)
    for name in ("lab-base.json", "lab-trained.json"):
        assert untimed(ours / "report" / name) == untimed(theirs / "report" / name)
    assert differences(ours, theirs) == []
    assert RunDir.open(theirs).status().state == "finished" and list(theirs.rglob(".*")) == []
    assert "error: runs/reproduce-geoqa was started with other settings (optimizer.learning_rate: 0.01 → 0.001)" in printed
    assert printed.count("published") == 2 and "71.0%  [61.5%, 79.0%]" in printed and "87.0%  [79.0%, 92.2%]" in printed
    assert printed.count("The trained model answers") == 2
    # The comparison notices a difference: the trained model's answers are not the base's.
    base, trained = (EvalResult.from_json(theirs / "eval" / f"{name}.json") for name in ("base-test", "test"))
    assert (len(base.items), base.version, trained.version) == (6, 0, 2)
    assert [item.text for item in base.items] != [item.text for item in trained.items]


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Settings of a run without torch, in an empty working directory."""
    monkeypatch.setitem(registry.TABLE["backend"], "echo", "tests.echo_backend:open_backend")
    monkeypatch.chdir(tmp_path)
    return ["model.backend=echo:", "steps=2", *SMALL]


def test_what_is_done_is_not_done_again(echo: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce("count", echo) == 0
    run = Path("runs/reproduce-count")
    printed = capsys.readouterr().out
    assert "reproduce count in runs/reproduce-count\n  base evaluation     to do\n  training            to do\n" in printed
    assert "published" not in printed and f"report: {run}/report/report.md" in printed
    kept = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file() and path.name != "lock"}
    with monkeypatch.context() as closed:
        closed.setattr(module, "sit", None)
        closed.setattr(module, "start", None)
        closed.setattr(module, "report", None)
        assert reproduce("count", echo) == 0
    assert capsys.readouterr().out.count("done: ") == 4
    assert kept == {path: path.stat().st_mtime_ns for path in kept}


def test_a_result_of_other_settings_or_a_damaged_one_is_made_again(echo: list[str]) -> None:
    reproduce("count", echo)
    run = Path("runs/reproduce-count")
    before_damage, base = report_files(run), run / "eval/base-test.json"
    for damage in (
        lambda text: text[:50],
        lambda text: text.replace('"max_tokens": 14', '"max_tokens": 15'),
        lambda text: text.replace("tiny", "big"),
    ):
        before = base.read_text()
        base.write_text(damage(before))
        assert base.read_text() != before
        work = module.Reproduction(RunDir.open(run).config(), run, "test")
        assert [stage.is_done() for stage in work.stages] == [False, True, True, False]
        reproduce("count", echo)
        assert json.loads(base.read_text())["items"] == json.loads(before)["items"]
    assert report_files(run) == before_damage


def test_other_settings_need_another_place(echo: list[str]) -> None:
    reproduce("count", echo)
    with pytest.raises(UsageError, match=r"runs/reproduce-count was started with other settings \(steps: 2 → 3\); .* another --out"):
        reproduce("count", [*echo, "steps=3"])
    assert reproduce("count", [*echo, "steps=3"], out=Path("elsewhere")) == 0
    assert RunDir.open("elsewhere").status().step == 3


def test_settings_of_a_start_that_came_to_nothing_are_replaced(echo: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise BackendError("no such model")

    with monkeypatch.context() as broken:
        broken.setattr(module, "sit", fails)
        with pytest.raises(BackendError):
            reproduce("count", echo)
    with RunWriter.resume("runs/reproduce-count"), pytest.raises(RunError, match="is being written by process"):
        reproduce("count", [*echo, "seed=5"])
    assert reproduce("count", [*echo, "seed=5"]) == 0
    assert RunDir.open("runs/reproduce-count").config().seed == 5


def test_mistakes_are_found_before_anything_is_made(echo: list[str]) -> None:
    with pytest.raises(DataError, match="no split 'tset'"):
        reproduce("count", echo, split="tset")
    with pytest.raises(UsageError):
        reproduce("count", [*echo, "reward.parts.nothing=1"])
    assert not Path("runs").exists()


def test_an_interrupt_while_training_keeps_the_step_and_returns_130(
    echo: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = EchoPolicy.optim_step

    def presses(self: EchoPolicy, adam: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return real(self, adam)

    Path("mine.py").write_text(MINE)
    words = [*echo, 'reward.parts={"mine.py:signs" = 1.0, "count" = 1.0}', "reward.isolate=false"]
    with monkeypatch.context() as pressed:
        pressed.setattr(EchoPolicy, "optim_step", presses)
        assert reproduce("count", words) == 130
    assert "repeat the same command to continue" in capsys.readouterr().out
    assert RunDir.open("runs/reproduce-count").status().state == "interrupted"
    assert reproduce("count", words) == 0
    printed = capsys.readouterr().out
    assert "base evaluation     done" in printed and "training            step 1 of 2 is kept" in printed


def test_an_interrupt_while_evaluating_leaves_nothing_of_it(echo: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def presses(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as pressed:
        pressed.setattr(EchoSampler, "sample", presses)
        with pytest.raises(KeyboardInterrupt):
            reproduce("count", echo)
    run = RunDir.open("runs/reproduce-count")
    assert run.eval_names() == [] and not run.is_locked()
    assert reproduce("count", echo) == 0


def test_published_figures_are_those_of_the_brief() -> None:
    lab = PUBLISHED["geoqa"]
    assert (lab.num, lab.right, lab.readable) == (100, (71, 87), (75, 91))
