"""Trackers that write down what they are told, and trackers that misbehave in every way that test_track can think of."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seegrad.rundir import State
from seegrad.track.base import Sample, Start


class Recorder:
    """One JSON line per call in `calls.jsonl`."""

    rewinds = False

    def start(self, start: Start) -> str:
        self.file = start.folder / "calls.jsonl"
        facts = ("project", "name", "id", "resumed", "done", "process", "offline")
        self.write("start", config=dict(start.config), **{name: getattr(start, name) for name in facts})
        return "recorded"

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.write("log", step=step, metrics=dict(metrics))

    def samples(self, step: int, rows: Sequence[Sample]) -> None:
        self.write("samples", step=step, rows=[[row.id, row.question, row.gold, row.answer, row.reward, len(row.images)] for row in rows])

    def finish(self, state: State, message: str) -> None:
        self.write("finish", state=state, message=message)

    def write(self, call: str, **facts: Any) -> None:
        with self.file.open("a") as file:
            file.write(json.dumps({"call": call, **facts}) + "\n")


class Rewinder(Recorder):
    """Takes back what lies after the step that a run continues from."""

    rewinds = True


class Parent(Recorder):
    """Has a process of its own, as packages have, and hangs."""

    def start(self, start: Start) -> str:
        child = subprocess.Popen(["sleep", "600"])
        partial = start.folder / "partial"
        partial.write_text(str(child.pid))
        partial.rename(start.folder / "child")
        time.sleep(600)
        return "never"


class CannotStart(Recorder):
    """Starts only once a file `mended` lies beside its folder."""

    def start(self, start: Start) -> str:
        if not (start.folder.parent / "mended").exists():
            raise ConnectionError("the network\nis down")
        return super().start(start)


class CannotLog(Recorder):
    """Full disk in two of the steps."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if step in (2, 4):
            raise OSError(28, "No space left on device")
        super().log(step, metrics)


class Hangs(Recorder):
    """Never gets anywhere."""

    def start(self, start: Start) -> str:
        super().start(start)
        time.sleep(600)
        return "too late"


class HangsAtTheEnd(Recorder):
    """Never lets go."""

    def finish(self, state: State, message: str) -> None:
        time.sleep(600)


class Impatient(Recorder):
    """A person who presses Ctrl-C while the tracker never lets go."""

    def start(self, start: Start) -> str:
        self.process = start.process
        return super().start(start)

    def finish(self, state: State, message: str) -> None:
        os.kill(self.process, signal.SIGINT)
        time.sleep(600)


class Dies(Recorder):
    """Takes its process with it."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if step == 3:
            os._exit(7)
        super().log(step, metrics)


class Rude(Recorder):
    """Does to its process what packages do: prints, reads, takes signals, seeds, leaves an exit hook that fails."""

    def start(self, start: Start) -> str:
        print("hello from standard output", flush=True)
        print("hello from standard error", file=sys.stderr, flush=True)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        random.seed(0)
        sys.excepthook = lambda *_: None
        assert sys.stdin.read() == ""
        return super().start(start)


def calls(folder: Path, tracker: str) -> list[dict[str, Any]]:
    """What a recorder was told, in order."""
    file = folder / "track" / tracker / "calls.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
