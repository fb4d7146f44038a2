"""One tracker's process, seen from the run: messages go in, notes come out, and no call waits but `close`.

    send ─▶ queue ─▶ writer thread ─▶ its standard input        its standard output ─▶ reader thread ─▶ notes

A tracker that does not keep up loses points when the queue is full; how many is told at the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import seegrad
from seegrad.track.base import Message

MAX_QUEUED = 10_000  # messages that wait for a tracker; a step is about 3 KB
MAX_QUEUED_SAMPLES = 20  # … behind which no pictures are queued


class Link:
    """Starts `python -m seegrad.track.worker`, which opens the adapter at `address`. Its own words go to `folder`/<name>.log.

    Raises OSError when there is no place or no process to be had.
    """

    def __init__(self, name: str, address: str, folder: Path, patience: float) -> None:
        self.name = name
        self._patience, self._deadline = patience, time.monotonic() + patience
        self._queue: queue.Queue[Message] = queue.Queue(MAX_QUEUED)
        self._said: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._lost = 0
        self._started = self._finished = self._ended = self._told_late = False
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / f"{name}.log"
        source = str(Path(seegrad.__file__).parent.parent)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))}
        command = [sys.executable, "-P", "-m", "seegrad.track.worker", name, address, str(folder)]
        with self.log.open("ab") as words:
            # A session of its own: Ctrl-C in the terminal is for the run, which then closes its trackers.
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=words, env=environment, start_new_session=True
            )
        self._threads = [threading.Thread(target=target, name=f"{name} {target.__name__}", daemon=True) for target in (self._write, self._read)]
        for thread in self._threads:
            thread.start()

    def send(self, message: Message) -> None:
        """Queue a message. One that finds no room is lost, and counted when it was a step."""
        if message.kind == "samples" and self._queue.qsize() >= MAX_QUEUED_SAMPLES:
            return
        try:
            self._queue.put_nowait(message)
        except queue.Full:
            self._lost += message.kind == "log"

    def notes(self) -> Iterator[str]:
        """What a person should know of this tracker since the last time: each thing once."""
        while not self._said.empty():
            yield from self._note(self._said.get())
        if not self._started and not self._ended and not self._told_late and time.monotonic() > self._deadline:
            self._told_late = True
            yield f"{self.name} has not started within {self._patience:g} s; the run goes on, and tells it everything once it does"

    def close(self) -> None:
        """Wait for the process to end, `patience` seconds at most."""
        deadline = time.monotonic() + self._patience
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.1, deadline - time.monotonic()))

    def kill(self) -> None:
        """End a process that is still there, so that none outlives the run."""
        if (code := self._process.poll()) is None:
            self._said.put({"said": "killed"})
        if code != 0:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)  # also what the package started
        self._process.wait()
        for thread in self._threads:
            thread.join(1.0)
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):  # what was not written has no reader
                if pipe is not None:
                    pipe.close()

    def _note(self, said: dict[str, Any]) -> Iterator[str]:
        kind = said["said"]
        if kind == "started":
            self._started = True
            yield f"{self.name}: {said['where']}"
        elif kind == "failed":
            yield f"{self.name} failed: {said['what']}; the run goes on, further failures are counted (its words: {self.log})"
        elif kind == "finished":
            self._finished = True
            if said["failures"] + self._lost:
                yield f"{self.name}: {said['failures'] + self._lost} messages (steps, samples) did not arrive"
        elif kind == "ended" and not self._finished:
            self._ended = True
            yield f"{self.name}: its process has ended (exit code {said['code']}); the run goes on without it (its words: {self.log})"
        elif kind == "killed":
            self._ended = self._finished = True
            lost = "its last points may be missing" if self._started else "it had not started"
            yield f"{self.name} did not close within {self._patience:g} s and was stopped; {lost}"

    def _write(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            while True:
                message = self._queue.get()
                pickle.dump(message, pipe)
                pipe.flush()
                if message.kind == "finish":
                    break
            pipe.close()
        except OSError:  # the process is gone, which the reader tells
            return

    def _read(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        for line in pipe:
            with contextlib.suppress(ValueError):  # the last words of a killed process may be half a line
                self._said.put(json.loads(line))
        self._said.put({"said": "ended", "code": self._process.wait()})
