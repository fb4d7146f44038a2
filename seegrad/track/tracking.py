"""The run's side of its trackers: the loop tells, one process per tracker passes on, and nothing that a tracker does can stop or change the run.

    loop ─ start · step ─▶ Link ─ queue ─▶ thread ─ pipe ─▶ worker process ─▶ tracker
      ▲                      ▲                                   │
      └── one-line notes ────┴──────── thread ◀─ JSON lines ─────┘

A tracker's package installs signal handlers, threads and loggers and may hang; all that happens in its own process. The loop waits for it only at the
end, and then not longer than `patience` seconds.
"""

from __future__ import annotations

import datetime
import importlib.util
import math
import os
import re
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from types import TracebackType
from typing import Self

from seegrad.config import Config, TrackConfig
from seegrad.errors import MissingExtra, UsageError
from seegrad.progress import Reporter
from seegrad.rundir import RunDir, State
from seegrad.track.base import ADAPTERS, Message, Sample, Start
from seegrad.track.link import Link
from seegrad.types import Group

_PROJECTS = {"swanlab": r"[0-9A-Za-z_.+-]{1,100}", "tensorboard": ".*"}  # what a project may be called, where it is not what most allow
PATIENCE = 60.0  # seconds that a tracker may take to start, and to close at the end


def check(settings: TrackConfig) -> None:
    """Raises UsageError for a project name that a tracker refuses, MissingExtra when its package is not installed. Nothing is imported."""
    for name in settings.to:
        if not re.fullmatch(_PROJECTS.get(name, r"[^/\\#?%:]{1,128}"), settings.project):
            raise UsageError(f"track.project is {settings.project!r}, which {name} refuses; letters, digits and _ - + . fit everywhere (seegrad)")
        package = ADAPTERS[name][0]
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(package, name, f"track.to = {name!r}")


class Tracking:
    """What the loop tells its trackers. A context around the loop: leaving it closes them with `state`, or with the exception that ends it."""

    def __init__(
        self, config: Config, run: RunDir | None, reporter: Reporter, *, adapters: Mapping[str, str] | None = None, patience: float = PATIENCE
    ) -> None:
        """`run` None: nothing is kept of the run, and files of trackers go to a folder `track-…` in `runs/`. `adapters` name → `module:class`."""
        self.state: State = "finished"
        self._settings, self._config, self._run, self._reporter, self._patience = config.track, config, run, reporter, patience
        self._adapters = adapters if adapters is not None else {name: ADAPTERS[name][1] for name in dict.fromkeys(config.track.to)}
        self._links: list[Link] = []

    def start(self, done: int) -> None:
        """Start the trackers' processes; `done` steps are finished already."""
        if not self._adapters:
            return
        name = self._run.path.resolve().name if self._run is not None else f"{self._config.name}-{datetime.datetime.now():%Y-%m-%d-%H%M%S}"
        place = self._run.path / "track" if self._run is not None else Path("runs") / f"track-{name.replace('/', '-')}"
        for tracker, address in self._adapters.items():
            settings = self._config.model_dump(mode="json")
            start = Start(
                self._settings.project, name, settings, place.absolute() / tracker, self._settings.offline, "", done=done, process=os.getpid()
            )
            try:
                link = Link(tracker, address, place.absolute(), self._patience)
            except OSError as error:
                self._reporter.note(f"{tracker} could not be started ({error}); the run goes on without it")
                continue
            link.send(Message("start", done, start))
            self._links.append(link)

    def step(self, step: int, groups: Sequence[Group], metrics: Mapping[str, float]) -> None:
        """Pass on the metrics of a step and, every `track.every` steps and in the first, `track.samples` answers."""
        if not self._links:
            return
        finite = {name: float(value) for name, value in metrics.items() if isinstance(value, Real) and math.isfinite(value)}
        shown = self._settings.samples and (step == 1 or step % self._settings.every == 0)
        rows = samples(groups, self._settings.samples) if shown else []
        for link in self._links:
            link.send(Message("log", step, finite))
            if rows:
                link.send(Message("samples", step, rows))
        self._tell()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        state: State = self.state if error is None else "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        message = "" if error is None else (f"{type(error).__name__}: {error}".splitlines() or [""])[0]
        try:
            for link in self._links:
                link.send(Message("finish", 0, (state, _writable(message))))
            for link in self._links:
                link.close()
        except KeyboardInterrupt:
            self._reporter.note("not waiting for the trackers any longer")
        finally:
            for link in self._links:
                link.kill()
            self._tell()
            self._links.clear()

    def _tell(self) -> None:
        for link in self._links:
            for note in link.notes():
                self._reporter.note(note)


def samples(groups: Sequence[Group], number: int) -> list[Sample]:
    """The first `number` answers to look at: the first attempt at each question, then the second …: always the same ones, drawn by nobody."""
    attempts = range(max((len(group.rollouts_G) for group in groups), default=0))
    pairs = [(group, group.rollouts_G[attempt]) for attempt in attempts for group in groups if attempt < len(group.rollouts_G)]
    return [
        Sample(
            images=group.example.images,
            id=_writable(group.example.id),
            question=_writable(group.example.question),
            gold=_writable(group.example.answer),
            answer=_writable(rollout.completion.text),
            reward=float(rollout.reward),
            advantage=float(rollout.advantage),
            correct=bool(rollout.correct),
            scores=rollout.error or ", ".join(f"{part} {float(value):g}" for part, value in rollout.scores.items()),
        )
        for group, rollout in pairs[:number]
    ]


def _writable(text: str) -> str:
    """Without lone surrogates, at which packages fail."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
