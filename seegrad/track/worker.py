"""The process of one tracker: `python -m seegrad.track.worker NAME MODULE:CLASS FOLDER`.

    standard input: pickled Messages ─▶ reader thread ─▶ queue ─▶ main thread ─▶ adapter        standard output: one JSON object per event

It ends after `finish`, or by itself when the run's process is gone. How far it got is kept in FOLDER/NAME.json, so that a continued run continues the
tracker's run: what that lacks is sent from metrics.jsonl, what it has is not sent twice.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import pickle
import queue
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from seegrad.durable import dump_json, read_json, read_lines, try_flock, write_atomic
from seegrad.errors import RunError
from seegrad.track.base import Adapter, Message, Start

GONE_SECONDS = 120.0  # that a tracker has for closing once the run's process is gone; then it is stopped
LOCK_SECONDS = 60.0  # to wait for the process of a killed run, which is still closing
POLL_SECONDS = 1.0

Say = Callable[..., None]


class Worker:
    """Passes messages to an adapter, in order, and keeps count. `say(event, **facts)` goes to the run."""

    def __init__(self, name: str, adapter: Adapter, folder: Path, say: Say) -> None:
        self._name, self._adapter, self._folder, self._say = name, adapter, folder, say
        self._state = folder / f"{name}.json"
        self._open = False
        self._last = 0  # newest step that the tracker has
        self._sent = 0  # … that this process has sent
        self._id = ""
        self._failures = 0
        self._told = False
        self._lock = -1

    def handle(self, message: Message) -> None:
        """Do what a message asks. An exception of the adapter is told the first time, and counted."""
        if message.kind == "start":
            self._guard(self._start, message.content)
            self._failures = 0  # of messages that did not arrive; that it could not start was told
        elif message.kind == "finish":
            if self._open:
                self._guard(self._adapter.finish, *message.content)
            self._say("finished", failures=self._failures)
        elif not self._open:
            self._failures += message.kind == "log"
        elif message.kind == "log":
            self._guard(self._log, message.step, message.content)
        elif message.step == self._sent:
            self._guard(self._adapter.samples, message.step, message.content)

    def _start(self, start: Start) -> None:
        self._take_lock()
        kept = self._kept()
        self._last = int(kept.get("step", 0))
        self._id = str(kept.get("id") or uuid.uuid4().hex[:16])
        start = replace(start, id=self._id, resumed=bool(kept))
        start.folder.mkdir(parents=True, exist_ok=True)
        where = self._adapter.start(start)
        self._open = True
        if self._adapter.rewinds:
            self._last = min(self._last, start.done)
        self._keep()
        self._say("started", where=where)
        for line in self._lacking(start.done):
            self._log(int(line.pop("step")), {name: value for name, value in line.items() if isinstance(value, int | float)})

    def _log(self, step: int, metrics: dict[str, float]) -> None:
        if step <= self._last:
            return
        self._adapter.log(step, {name: float(value) for name, value in metrics.items() if math.isfinite(value)})
        self._last = self._sent = step
        self._keep()

    def _lacking(self, done: int) -> list[dict[str, Any]]:
        """Metrics of steps that the run has taken and the tracker has not seen."""
        if self._last >= done:
            return []
        return [line for line in read_lines(self._folder.parent / "metrics.jsonl") if self._last < line["step"] <= done]

    def _kept(self) -> dict[str, Any]:
        if not self._state.is_file():
            return {}
        try:
            return dict(read_json(self._state))
        except (RunError, TypeError, ValueError):  # written by something else, or damaged: the tracker's run begins anew
            return {}

    def _keep(self) -> None:
        write_atomic(self._state, dump_json({"id": self._id, "step": self._last}), sync=False)

    def _take_lock(self) -> None:
        self._lock = os.open(self._folder / f"{self._name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = time.monotonic() + LOCK_SECONDS
        while not try_flock(self._lock):
            if time.monotonic() > deadline:
                raise RunError(f"another process still writes to {self._name}'s files in {self._folder}")
            time.sleep(0.1)

    def _guard(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception as error:
            self._failures += 1
            if not self._told:
                self._told = True
                self._say("failed", what=" ".join(f"{type(error).__name__}: {error}".split())[:500])
            print(f"{call.__name__}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


def load(address: str) -> Adapter:
    """The adapter at `module:class`."""
    module, _, name = address.partition(":")
    adapter: Adapter = getattr(importlib.import_module(module), name)()
    return adapter


def read_messages(source: BinaryIO, messages: queue.SimpleQueue[Message]) -> None:
    """Everything that comes through the pipe; a pipe that closes early means a run that died."""
    with contextlib.suppress(EOFError, OSError, pickle.UnpicklingError):
        while True:
            message: Message = pickle.load(source)
            messages.put(message)
            if message.kind == "finish":
                return
    messages.put(_farewell())


def main() -> None:
    name, address, folder = sys.argv[1:]
    # The package may print and read as it likes: the pipes of the run are taken out of its reach.
    source, channel = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)

    def say(event: str, **facts: Any) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more
            print(json.dumps({"said": event, **facts}), file=channel, flush=True)

    messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=read_messages, args=(source, messages), daemon=True).start()
    threading.Thread(target=_end_without_run, args=(os.getppid(), messages), daemon=True).start()
    worker = Worker(name, load(address), Path(folder), say)
    while True:
        message = messages.get()
        worker.handle(message)
        if message.kind == "finish":
            return


def _end_without_run(parent: int, messages: queue.SimpleQueue[Message]) -> None:
    """When the run's process is gone, close; and stop for good when closing takes too long."""
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    messages.put(_farewell())
    time.sleep(GONE_SECONDS)
    os._exit(1)


def _farewell() -> Message:
    return Message("finish", 0, ("failed", "the run's process ended without a word"))


if __name__ == "__main__":
    main()
