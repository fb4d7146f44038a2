"""Graders that can hang, in worker processes that can be killed.

    caller ─ jobs ─▶ one poll loop in the caller's thread ─▶ a lane for each worker that it could borrow ─▶ process ─▶ worker
                         ▲ verdicts; or a deadline passes: kill, the guilty call is an error, the rest goes to a new process

A plain part has one call under way in a worker, an async part up to AT_ONCE. A call has `timeout` seconds from the moment when the worker is ready
for it. Nobody waits for a worker without a deadline, and no thread or signal handler is involved: several threads may grade at once, each with the
workers that are free (it waits for the first). A worker that dies takes down the call that it was in and no other.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path

from seegrad import registry
from seegrad.rewards.calling import Job
from seegrad.rewards.lanes import Lane, drive, works
from seegrad.rewards.process import WorkerProcess

CAN_HANG = frozenset({"math"})  # registered rewards that may take forever on some texts


def can_hang(name: str) -> bool:
    """Whether a part may take forever: every function of the user's own, and those registered ones that are in the table."""
    return name in CAN_HANG or name not in registry.TABLE["reward"]


class Pool:
    """Up to `workers` processes, started when they are needed, each call limited to `timeout` seconds.

    They end with `close`, with the pool, or with this process, however it ends.
    """

    def __init__(self, workers: int, timeout: float) -> None:
        self._workers, self._timeout = workers, timeout
        self._folder = _current_folder()
        self._free = threading.Condition()
        self._idle: list[WorkerProcess | None] = [None] * workers
        self._alive: set[WorkerProcess] = set()
        self._owner = os.getpid()
        self._era = 0  # how often it was closed: a worker of an older era is not used again
        weakref.finalize(self, _stop_all, self._alive)

    def run(self, jobs: Sequence[Job]) -> None:
        """Fill in the results of all jobs. Raises RewardError when no worker can be started; an interruption kills the workers and goes up."""
        if not jobs:
            return
        waiting = works(jobs)
        era, borrowed = self._borrow(len(waiting))
        lanes = [Lane(process, self._timeout, self._folder, self._alive) for process in borrowed]
        try:
            drive(lanes, waiting)
        except BaseException:
            for lane in lanes:
                lane.stop()
            raise
        finally:
            self._give_back(era, lanes)

    def close(self) -> None:
        """End the workers; those that another thread is using end when it is done. They start again when they are needed again."""
        with self._free:
            self._era += 1
            for process in self._idle:
                if process is not None:
                    process.stop()
                    self._alive.discard(process)
            self._idle = [None] * len(self._idle)

    def _borrow(self, wanted: int) -> tuple[int, list[WorkerProcess | None]]:
        with self._free:
            if self._owner != os.getpid():  # in a fork: the workers are the parent's
                _stop_all(self._alive)
                self._idle, self._owner = [None] * self._workers, os.getpid()
            while not self._idle:
                self._free.wait()
            self._idle.sort(key=lambda process: process is None)  # running ones first
            taken, self._idle = self._idle[:wanted], self._idle[wanted:]
            return self._era, taken

    def _give_back(self, era: int, lanes: Sequence[Lane]) -> None:
        with self._free:
            for lane in lanes:
                if era != self._era:
                    lane.stop()
                self._idle.append(lane.process)
            self._free.notify_all()


def _current_folder() -> Path | None:
    """Where relative addresses lead; None when the folder is gone."""
    try:
        return Path.cwd()
    except OSError:
        return None


def _stop_all(processes: set[WorkerProcess]) -> None:
    for process in list(processes):
        process.stop()
    processes.clear()
