"""Trackers: the real packages, offline, read back with their own readers; and misbehaving ones, which the run must not notice."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seegrad.cli import main
from seegrad.config import Config, TrackConfig, load_config
from seegrad.errors import MissingExtra, UsageError
from seegrad.rundir import RunDir, RunWriter, is_timing
from seegrad.track.base import ADAPTERS, Message, Start
from seegrad.track.link import Link
from seegrad.track.tracking import Tracking, check, samples
from seegrad.train import Outcome, train
from seegrad.types import Example, Group
from tests import fakes
from tests.runs import differences, fake_pipeline, fake_run
from tests.test_torch_free import seegrad
from tests.track_adapters import calls

ROOT = Path(__file__).parents[1]
HERE = "tests.track_adapters"


def tracked(
    path: Path | None, config: Config, adapters: dict[str, str] | None, *, resume: bool = False, patience: float = 60.0, **changes: Any
) -> tuple[list[str], Outcome | None]:
    """A fake run with trackers; returns what a person was told, and how it ended (None: with an exception that the test planted)."""
    reporter, outcome = fakes.Quiet(), None
    run = None if path is None else RunWriter.resume(path) if resume else RunWriter.create(path, config)
    try:
        with Tracking(config, run, reporter, adapters=adapters, patience=patience) as tracking:
            outcome = train(fake_pipeline(**changes), config, run, reporter, tracking=tracking)
            tracking.state = outcome.state
    except (Planted, KeyboardInterrupt):
        pass
    finally:
        if run is not None:
            run.close()
    return reporter.notes, outcome


class Planted(Exception):
    """What a test throws."""


class Throws:
    """Rewards that raise at the n-th grading of groups, or send signals."""

    def __init__(self, at: int, *signals: int) -> None:
        self._at, self._signals, self._count, self._rewards = at, signals, 0, fakes.rewards()

    def grade_groups(self, groups: Sequence[Any]) -> Any:
        self._count += 1
        if self._count == self._at:
            for number in self._signals:
                signal.raise_signal(number)
            if not self._signals:
                raise Planted("planted: no more\nsecond line")
        return self._rewards.grade_groups(groups)

    def grade(self, example: Example, text: str) -> Any:
        return self._rewards.grade(example, text)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six steps without trackers."""
    path = tmp_path_factory.mktemp("straight") / "run"
    fake_run(path, fakes.config())
    return path


# --- the real packages


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A run with all four trackers that fails in step 6, after its checkpoint of step 4, and is continued: steps 5 and 6 are taken twice."""
    path = tmp_path_factory.mktemp("real") / "run"
    config = fakes.config(
        steps=7, track={"to": list(ADAPTERS), "offline": True, "every": 3, "samples": 3}, eval={"every": 3, "num_items": 8}, cost={"sampled": 5.0}
    )
    notes, outcome = tracked(path, config, None, rewards=Throws(8), patience=110.0)
    assert outcome is None and len(RunDir.open(path).metrics()) == 5, notes
    again, outcome = tracked(path, config, None, resume=True, patience=110.0)
    assert outcome is not None and outcome.state == "finished"
    return path, notes + again


def read_back(path: Path, tracker: str) -> dict[str, Any]:
    """What a tracker wrote, by its own reader in its own process."""
    command = [sys.executable, "-m", "tests.track_readers", tracker, str(path / "track" / tracker)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def problems(path: Path, found: dict[str, Any]) -> list[str]:
    """In what the points of a tracker differ from metrics.jsonl."""
    written = {(line["step"], name): value for line in RunDir.open(path).metrics() for name, value in line.items() if name != "step"}
    points = [(step, name, value) for step, name, value in found["points"] if not name.startswith("samples")]
    counts = Counter((step, name) for step, name, _ in points)
    slow = {name for _, name in written if is_timing(name)}  # steps 5 and 6 were sent the first time that they were taken
    return [
        *(f"twice: {key}" for key, count in counts.items() if count > 1),
        *(f"in one only: {key}" for key in counts.keys() ^ written.keys()),
        *(
            f"other value: {step} {name}"
            for step, name, value in points
            if name not in slow and value != pytest.approx(written[step, name], rel=1e-6)
        ),
    ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("tracker", sorted(ADAPTERS))
def test_real_trackers_have_every_point_once(real: tuple[Path, list[str]], tracker: str) -> None:
    path, notes = real
    told = [note for note in notes if note.startswith(f"{tracker}: ")]
    assert len(told) == 2 and str(path / "track" / tracker) in told[0], notes
    found = read_back(path, tracker)
    assert problems(path, found) == []
    names = {name for _, name, _ in found["points"]}
    assert {"reward", "format_rate", "degenerate_fraction", "train_datums", "rollout/completion_tokens_mean", "eval/accuracy", "cost/total"} <= names
    assert found["config"]["steps"] == 7 and found["config"]["rollout"]["group_size"] == 4
    assert found["pictures"] >= 9  # three samples in steps 1, 3 and 6
    assert "which digit, kind" in found["samples"]
    assert len(set(found.get("ids", ["one"]))) == 1  # the same run of the tracker, before and after
    lost, twice, other = found["points"][1:], [*found["points"], found["points"][0]], [[1, "reward", 9.0], *found["points"][1:]]
    assert all(problems(path, {"points": points}) for points in (lost, twice, other))  # the comparison is not blind


# --- trackers that behave


def test_what_a_tracker_is_told(tmp_path: Path, straight: Path) -> None:
    config = fakes.config(track={"every": 4, "samples": 2, "project": "digits"})
    notes, outcome = tracked(tmp_path / "run", config, {"recorder": f"{HERE}:Recorder"})
    assert outcome is not None and outcome.state == "finished" and notes == ["recorder: recorded"]
    told = calls(tmp_path / "run", "recorder")
    start = told[0]
    assert start["call"] == "start" and (start["project"], start["name"], start["done"], start["resumed"]) == ("digits", "run", 0, False)
    assert start["config"] == config.model_dump(mode="json") and start["process"] == os.getpid() and len(start["id"]) == 16
    order = [(call["call"], call.get("step")) for call in told[1:]]
    assert order == [("log", 1), ("samples", 1), ("log", 2), ("log", 3), ("log", 4), ("samples", 4), ("log", 5), ("log", 6), ("finish", None)]
    lines = [{"step": call["step"], **call["metrics"]} for call in told if call["call"] == "log"]
    assert lines == RunDir.open(tmp_path / "run").metrics()
    assert told[-1]["state"] == "finished" and told[-1]["message"] == ""
    rows = [call["rows"] for call in told if call["call"] == "samples"]
    first = RunDir.open(tmp_path / "run").rollouts(1)
    assert (
        rows[0]
        == [[line["example_id"], line["question"], line["answer"], line["text"], line["reward"], 1] for line in first if line["attempt"] == 0][:2]
    )
    assert json.loads((tmp_path / "run/track/recorder.json").read_text()) == {"id": start["id"], "step": 6}
    assert differences(straight, tmp_path / "run") == []


def test_samples_go_round_the_questions_before_a_second_attempt() -> None:
    reporter = fakes.Quiet()
    train(fake_pipeline(), fakes.config(steps=1), None, reporter, show_samples=True)
    groups: list[Group] = reporter.shown
    ids = [group.example.id for group in groups]
    assert [row.id for row in samples(groups, 6)] == [*ids, *ids[:2]]
    assert [row.answer for row in samples(groups, 6)[4:]] == [group.rollouts_G[1].completion.text for group in groups[:2]]
    assert len(samples(groups, 1000)) == 16 and samples(groups, 0) == [] and samples([], 3) == []


def test_no_samples_when_none_are_wanted(tmp_path: Path) -> None:
    tracked(tmp_path / "run", fakes.config(track={"samples": 0}), {"recorder": f"{HERE}:Recorder"})
    assert {call["call"] for call in calls(tmp_path / "run", "recorder")} == {"start", "log", "finish"}


@pytest.mark.parametrize(("adapter", "steps"), [("Recorder", [1, 2, 3, 4, 5, 6]), ("Rewinder", [1, 2, 3, 4, 5, 5, 6])])
def test_a_continued_run_is_the_same_one_there(tmp_path: Path, adapter: str, steps: list[int]) -> None:
    """Step 5 was sent, and is taken again from the checkpoint of step 4: a tracker that cannot take it back does not get it twice."""
    path, trackers = tmp_path / "run", {"recorder": f"{HERE}:{adapter}"}
    tracked(path, fakes.config(), trackers, rewards=Throws(6))
    told = calls(path, "recorder")
    assert told[-1] == {"call": "finish", "state": "failed", "message": "Planted: planted: no more"}
    tracked(path, fakes.config(), trackers, resume=True)
    told = calls(path, "recorder")
    assert [call["step"] for call in told if call["call"] == "log"] == steps
    starts = [call for call in told if call["call"] == "start"]
    assert [start["resumed"] for start in starts] == [False, True] and [start["done"] for start in starts] == [0, 4]
    assert len({start["id"] for start in starts}) == 1


def test_a_killed_run_is_closed_there_and_continued(tmp_path: Path) -> None:
    """SIGKILL leaves no time for anything; the tracker's process closes by itself, and the next one waits for it."""
    program = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom tests import fakes, test_track\n"
        "class Rewards(test_track.Throws):\n"
        "    def grade_groups(self, groups):\n"
        "        self._count += 1\n"
        "        if self._count == 6:\n"
        "            import time\n"
        "            file = Path(sys.argv[1]) / 'track/recorder.json'\n"
        "            while not (file.exists() and '\"step\": 5' in file.read_text()): time.sleep(0.01)\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return self._rewards.grade_groups(groups)\n"
        "test_track.tracked(Path(sys.argv[1]), fakes.config(), {'recorder': 'tests.track_adapters:Recorder'}, rewards=Rewards(0))\n"
    )
    path = tmp_path / "run"
    done = subprocess.run([sys.executable, "-c", program, str(path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    tracked(path, fakes.config(), {"recorder": f"{HERE}:Recorder"}, resume=True)
    told = calls(path, "recorder")
    assert [(call["call"], call.get("step")) for call in told if call["call"] != "samples"] == [
        ("start", None),
        *(("log", step) for step in range(1, 6)),
        ("finish", None),
        ("start", None),
        ("log", 6),
        ("finish", None),
    ]
    assert [call["state"] for call in told if call["call"] == "finish"] == ["failed", "finished"]


def test_without_a_run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    notes, outcome = tracked(None, fakes.config(steps=2), {"recorder": f"{HERE}:Recorder"})
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("track-fake-") and notes == ["recorder: recorded"] and outcome is not None
    told = [json.loads(line) for line in (folder / "recorder/calls.jsonl").read_text().splitlines()]
    assert [call["call"] for call in told if call["call"] != "samples"] == ["start", "log", "log", "finish"]


# --- trackers that do not


@pytest.mark.parametrize(
    ("adapter", "patience", "expected"),
    [
        ("CannotStart", 60.0, ["ConnectionError: the network is down", "messages (steps, samples) did not arrive"]),
        ("CannotLog", 60.0, ["bad: recorded", "No space left on device", "bad: 2 messages"]),
        ("Hangs", 1.0, ["bad did not close within 1 s and was stopped; it had not started"]),
        ("HangsAtTheEnd", 3.0, ["bad did not close within 3 s and was stopped; it"]),
        ("Dies", 60.0, ["bad: recorded", "its process has ended (exit code 7)"]),
        ("Rude", 60.0, ["bad: recorded"]),
        ("Absent", 60.0, ["its process has ended (exit code 1)"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nothing_that_a_tracker_does_reaches_the_run(
    tmp_path: Path, straight: Path, capfd: pytest.CaptureFixture[str], adapter: str, patience: float, expected: list[str]
) -> None:
    handlers, hook = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)], sys.excepthook
    start = time.monotonic()
    notes, outcome = tracked(tmp_path / "run", fakes.config(), {"bad": f"{HERE}:{adapter}"}, patience=patience)
    assert time.monotonic() - start < patience + 50
    assert outcome is not None and outcome.state == "finished"
    assert differences(straight, tmp_path / "run") == []
    if adapter.startswith("Hangs"):  # whether it is late to start, too, is the machine's affair
        notes = [note for note in notes if note != "bad: recorded" and "has not started within" not in note]
    assert len(notes) == len(expected) and all(words in note for words, note in zip(expected, notes, strict=True)), notes
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers and sys.excepthook is hook
    assert capfd.readouterr() == ("", "")  # its words are in its log
    if adapter == "Rude":
        assert (tmp_path / "run/track/bad.log").read_text().splitlines() == ["hello from standard output", "hello from standard error"]


def test_odd_metrics_and_odd_texts_arrive_as_far_as_they_can(tmp_path: Path) -> None:
    """No number, no point; names as they are; a lone surrogate, at which packages fail, as its escape."""
    reporter = fakes.Quiet()
    train(fake_pipeline(), fakes.config(steps=1), None, reporter, show_samples=True)
    group = reporter.shown[0]
    odd = replace(group, example=replace(group.example, question="\ud800?"))
    run = RunWriter.create(tmp_path / "run", fakes.config())
    metrics: Any = {"a/b": np.float32(0.5), "准确率": 1, "none": None, "nan": math.nan, "inf": math.inf, "text": "1"}
    with Tracking(fakes.config(), run, reporter, adapters={"recorder": f"{HERE}:Recorder"}) as tracking:
        tracking.start(0)
        tracking.step(1, [odd], metrics)
    run.close()
    told = calls(tmp_path / "run", "recorder")
    assert [call["metrics"] for call in told if call["call"] == "log"] == [{"a/b": 0.5, "准确率": 1.0}]
    assert [call["rows"][0][1] for call in told if call["call"] == "samples"] == ["\\ud800?"]


def test_a_killed_tracker_takes_along_what_it_started(tmp_path: Path) -> None:
    link = Link("bad", f"{HERE}:Parent", tmp_path, patience=100.0)
    link.send(Message("start", 0, Start("p", "n", {}, tmp_path / "bad", True, "")))
    child = tmp_path / "bad/child"
    end = time.monotonic() + 60
    while not child.exists() and time.monotonic() < end:
        time.sleep(0.02)
    link.kill()
    assert any("was stopped" in note for note in link.notes())
    stat = Path(f"/proc/{child.read_text()}/stat")
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] not in "ZX" and time.monotonic() < end:
        time.sleep(0.02)
    assert time.monotonic() < end


def test_a_late_start_is_told_once(tmp_path: Path) -> None:
    link = Link("bad", f"{HERE}:Hangs", tmp_path, patience=0.0)
    assert [list(link.notes()) for _ in range(2)] == [
        ["bad has not started within 0 s; the run goes on, and tells it everything once it does"],
        [],
    ]
    link.kill()


def test_what_did_not_arrive_is_sent_when_the_run_is_continued(tmp_path: Path) -> None:
    path, trackers = tmp_path / "run", {"late": f"{HERE}:CannotStart"}
    tracked(path, fakes.config(), trackers, rewards=Throws(6))
    assert calls(path, "late") == []
    (path / "track" / "mended").touch()
    tracked(path, fakes.config(), trackers, resume=True)
    told = [call for call in calls(path, "late") if call["call"] == "log"]
    assert [{"step": call["step"], **call["metrics"]} for call in told] == RunDir.open(path).metrics()


@pytest.mark.parametrize(("signals", "state", "steps"), [([signal.SIGINT], "interrupted", 3), ([signal.SIGINT, signal.SIGINT], "interrupted", 2)])
def test_ctrl_c_closes_the_trackers(tmp_path: Path, signals: list[int], state: str, steps: int) -> None:
    """Once: after the step and its checkpoint. Twice: at once."""
    tracked(tmp_path / "run", fakes.config(), {"recorder": f"{HERE}:Recorder"}, rewards=Throws(3, *signals))
    told = calls(tmp_path / "run", "recorder")
    assert (told[-1]["call"], told[-1]["state"]) == ("finish", state) and sum(call["call"] == "log" for call in told) == steps
    assert RunDir.open(tmp_path / "run").status().state == state


def test_ctrl_c_while_a_tracker_is_waited_for_ends_the_waiting_not_the_run(tmp_path: Path) -> None:
    notes, outcome = tracked(tmp_path / "run", fakes.config(), {"bad": f"{HERE}:Impatient"}, patience=200.0)
    assert outcome is not None and outcome.state == "finished" and "not waiting for the trackers any longer" in notes


def test_the_command_names_where_to_look_and_what_was_spent(tmp_path: Path) -> None:
    settings = ["steps=1", "rollout.questions_per_step=2", "rollout.group_size=2", "eval.every=0", "model.backend=echo:", "cost.sampled=4"]
    done = seegrad("train", "count", *settings, "track.to=tensorboard", "track.offline=true", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert f"tensorboard: tensorboard --logdir {(tmp_path / 'run/track/tensorboard').resolve()}" in lines
    assert any(line.startswith("tokens: ") for line in lines) and any(line.startswith("cost: ¥0.00 (sampled") for line in lines)
    assert list((tmp_path / "run/track/tensorboard").glob("events.out.tfevents.*"))


def test_a_full_queue_loses_points_not_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seegrad.track.link.MAX_QUEUED", 3)
    notes, outcome = tracked(tmp_path / "run", fakes.config(steps=40), {"slow": f"{HERE}:Hangs"}, patience=1.0)
    assert outcome is not None and outcome.state == "finished" and any("was stopped" in note for note in notes)


# --- what is found before anything costs


def test_a_missing_package_stops_the_run_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)
    check(TrackConfig(to=("tensorboard",)))
    with pytest.raises(MissingExtra, match=r"trackio.*pip install 'seegrad\[trackio\]'"):
        check(TrackConfig(to=("tensorboard", "trackio")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["seegrad", "train", "count", "track.to=trackio"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == MissingExtra.exit_code and list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err.count("\n") == 1


def test_names_of_projects() -> None:
    for tracker, bad in [("swanlab", "two words"), ("wandb", "a/b"), ("trackio", "")]:
        with pytest.raises(UsageError, match=rf"track\.project is '{bad}', which {tracker} refuses"):
            check(TrackConfig(to=(tracker,), project=bad))
        check(TrackConfig(to=(tracker,), project="seegrad-2.x_+"))


def test_names_of_trackers() -> None:
    assert load_config("count", ["track.to=wandb, tensorboard"]).track.to == ("wandb", "tensorboard")
    assert load_config("count", ['track.to=["trackio"]']).track.to == ("trackio",)
    assert load_config("count", ["track.to="]).track.to == ()
    with pytest.raises(UsageError, match=r"track\.to.*'wanbd'"):
        load_config("count", ["track.to=wanbd"])


def test_adapters_import_no_package_before_they_start() -> None:
    program = (
        "import sys\nfrom seegrad.track.base import ADAPTERS\nfrom seegrad.track import tracking\nfrom seegrad.track.worker import load\n"
        "for package, address in ADAPTERS.values(): load(address)\n"
        "print(sorted({'swanlab', 'wandb', 'tensorboard', 'trackio', 'torch'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr
