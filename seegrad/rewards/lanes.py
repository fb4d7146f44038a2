"""One worker and what it is doing: requests out, verdicts in, a deadline, and what happens when it passes or the worker dies.

waiting units ─ feed ─▶ active units ─ attend: a response ─▶ results
                              ▲          └ silence or death ─▶ kill; the guilty call is an error, the rest waits again
                              └──────────────────────────────────┘
"""

from __future__ import annotations

import itertools
import select
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from seegrad.errors import RewardError
from seegrad.rewards.asynchronous import AT_ONCE
from seegrad.rewards.calling import Job, Part
from seegrad.rewards.process import WorkerProcess
from seegrad.rewards.worker import Request, Response

START_SECONDS = 120.0  # for a process to start and to load a part, also on a busy machine
GRACE = 5.0  # seconds beyond the limit of a call in which a worker ends an async one itself


class _Unit:
    """Calls of one job that are sent together. `begun` once the worker says so; `alone` when one of several calls was fatal to their worker."""

    def __init__(self, job: Job, calls: Iterable[int], *, alone: bool = False) -> None:
        self.job, self.calls, self.alone = job, list(calls), alone
        self.begun, self.starts = False, 0


class Work:
    """What one lane works on: one job of a plain part, or all jobs of an async part."""

    def __init__(self, part: Part, jobs: Iterable[Job]) -> None:
        self.part = part
        self.waiting = deque(unit for job in jobs for unit in _units(job))


def works(jobs: Sequence[Job]) -> deque[Work]:
    """The jobs as work for lanes."""
    found = deque(Work(job.part, [job]) for job in jobs if not job.part.is_async)
    asynchronous: dict[str, list[Job]] = {}
    for job in jobs:
        if job.part.is_async:
            asynchronous.setdefault(job.part.name, []).append(job)
    found.extendleft(Work(same[0].part, same) for same in asynchronous.values())  # first: they wait for others most of the time
    return found


def _units(job: Job) -> Iterator[_Unit]:
    size = AT_ONCE if job.part.is_async else len(job.calls)
    for first in range(0, len(job.calls), size):
        yield _Unit(job, range(first, min(first + size, len(job.calls))))


class Lane:
    """A worker process (None: not started) and its work. `timeout` is the limit of a call in seconds; a new process starts in `folder`; `alive` is
    where those that run are written down."""

    def __init__(self, process: WorkerProcess | None, timeout: float, folder: Path | None, alive: set[WorkerProcess]) -> None:
        self.process, self._alive = process, alive
        self._timeout, self._folder = timeout, folder
        self._work: Work | None = None
        self._active: dict[int, _Unit] = {}
        self._numbers = itertools.count()
        self._deadline = 0.0

    @property
    def is_busy(self) -> bool:
        return bool(self._active)

    @property
    def patience(self) -> float:
        """Seconds until it must have said something."""
        return max(0.0, self._deadline - time.monotonic())

    def feed(self, works: deque[Work]) -> None:
        """Send what the worker may do now; takes new work when the old is done. Raises RewardError when no process can be started."""
        while not self._active:
            if self._work is None or not self._work.waiting:
                if not works:
                    return
                self._work = works.popleft()
            self._send(self._work)
        if self._work is not None:
            self._send(self._work)

    def register(self, poller: select.poll) -> None:
        """Ask for the events that `attend` wants."""
        if self.process is not None:
            poller.register(self.process.responses, select.POLLIN)
            if self.process.has_to_write:
                poller.register(self.process.requests, select.POLLOUT)

    def attend(self, events: Mapping[int, int], asked: float) -> None:
        """Take what came. `asked` is when the poll began: silence counts only when the deadline had passed by then."""
        assert self.process is not None
        process = self.process
        try:
            if events.get(process.requests):
                process.write()
            if events.get(process.responses):
                for response in process.read():
                    self._take(response)
            elif not process.is_alive:  # a process that it left behind may keep the pipe open
                raise EOFError
        except (OSError, EOFError):
            self._died(self._end(patience=2.0))
        else:
            if asked >= self._deadline and not events.get(process.responses):
                self._overdue()

    def stop(self) -> None:
        """Kill the process."""
        self._end()

    def _end(self, patience: float = 0.0) -> str:
        process, self.process = self.process, None
        if process is None:
            return ""
        how = process.stop(patience)
        self._alive.discard(process)
        return how

    def _send(self, work: Work) -> None:
        while work.waiting and self._fits(work.waiting[0]):
            unit, number = work.waiting.popleft(), next(self._numbers)
            if self.process is None:
                self.process = self._start()
            request = Request(number, work.part.name, dict(work.part.settings), self._timeout, tuple(unit.calls))
            try:
                self.process.ask(request, unit.job.example, unit.job.answers)
            except Exception as error:
                reason = " ".join(f"{type(error).__name__}: {error}".split())
                self._fail(unit, unit.calls, f"cannot get the sample in a worker process ({reason}); set reward.isolate=false")
                continue
            self._active[number] = unit
            self.process.write()
            if len(self._active) == 1:
                self._expect()

    def _fits(self, unit: _Unit) -> bool:
        if not self._active:
            return True
        if not unit.job.part.is_async or unit.alone or any(other.alone for other in self._active.values()):
            return False
        return sum(len(other.calls) for other in self._active.values()) + len(unit.calls) <= AT_ONCE

    def _start(self) -> WorkerProcess:
        try:
            process = WorkerProcess(self._folder)
        except OSError as error:
            raise RewardError(f"no worker process for rewards could be started: {error}; set reward.isolate=false to do without") from error
        self._alive.add(process)
        return process

    def _expect(self) -> None:
        """Set the deadline for the next word of the worker."""
        begun = [unit for unit in self._active.values() if unit.begun]
        limit = self._timeout + (GRACE if begun and begun[0].job.part.is_async else 0.0)
        self._deadline = time.monotonic() + (limit if begun else START_SECONDS)

    def _take(self, response: Response) -> None:
        unit = self._active[response.number]
        if response.failed:
            self._fail(unit, unit.calls, f"does not work in a worker process: {response.failed}")
        elif response.call is None:
            unit.begun = True
        else:
            unit.job.results[response.call] = list(response.verdicts)
            unit.calls.remove(response.call)
        if not unit.calls:
            del self._active[response.number]
        self._expect()

    def _overdue(self) -> None:
        units = list(self._active.values())
        self.stop()
        if not any(unit.begun for unit in units):
            name = units[0].job.part.name
            raise RewardError(f"reward {name!r}: a worker process did not load it within {START_SECONDS:g} s; set reward.isolate=false to do without")
        self._blame(None)

    def _died(self, how: str) -> None:
        begun = any(unit.begun for unit in self._active.values())
        if begun:
            self._blame(f"ended its worker process ({how})")
            return
        for unit in self._recall():
            unit.starts += 1
            if unit.starts < 2:  # it may have died of old age, so to speak, while it was idle
                self._wait_again([unit])
            else:
                self._fail(unit, unit.calls, f"was not called: its worker process ended before ({how})")

    def _blame(self, what: str | None) -> None:
        """One call was fatal (`what` None: it hung). It is known of a plain part; of async calls each is tried again, alone."""
        units = self._recall()
        guilty = next(unit for unit in units if unit.begun)
        if guilty.job.part.is_async and sum(len(unit.calls) for unit in units if unit.begun) > 1:
            alone = [_Unit(unit.job, [call], alone=True) for unit in units if unit.begun for call in unit.calls]
            self._wait_again([*alone, *(unit for unit in units if not unit.begun)])
            return
        self._fail(guilty, guilty.calls[:1], what)
        self._wait_again(unit for unit in units if unit.calls)

    def _recall(self) -> list[_Unit]:
        units = list(self._active.values())
        self._active.clear()
        return units

    def _wait_again(self, units: Iterable[_Unit]) -> None:
        assert self._work is not None
        units = list(units)
        for unit in units:
            unit.begun = False
        self._work.waiting.extendleft(reversed(units))

    def _fail(self, unit: _Unit, calls: Sequence[int], what: str | None) -> None:
        job = unit.job
        for call in list(calls):
            count = len(job.calls[call])
            job.results[call] = job.part.too_slow(job.example, self._timeout, count) if what is None else job.part.lost(job.example, what, count)
            unit.calls.remove(call)


def drive(lanes: Sequence[Lane], waiting: deque[Work]) -> None:
    """Work until nothing is left. Raises RewardError when no process can be started."""
    while True:
        for lane in lanes:
            lane.feed(waiting)
        busy = [lane for lane in lanes if lane.is_busy]
        if not busy:
            return
        poller = select.poll()
        for lane in busy:
            lane.register(poller)
        asked = time.monotonic()
        events = dict(poller.poll(1000 * min(1.0, *(lane.patience for lane in busy))))
        for lane in busy:
            lane.attend(events, asked)
