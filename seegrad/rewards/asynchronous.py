"""Grading in this process: plain functions one after the other, async ones of a step side by side.

caller ── jobs ──▶ plain: called at once
       └─ async ─▶ event loop in a thread of its own ─▶ up to AT_ONCE calls of a part at a time, each with a limit; the caller waits for all

The loop lives as long as the rewards, so that connections which a grader keeps open stay usable from step to step.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import weakref
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, TypeVar

from seegrad.rewards.calling import Job, Part, Verdict
from seegrad.types import Answer, Example

AT_ONCE = 64  # async calls of one part that may be under way together
Result = TypeVar("Result")


async def called(part: Part, example: Example, answers: Sequence[Answer], timeout: float) -> list[Verdict]:
    """The verdicts of one call of an async function."""
    try:
        returned = part.call(example, answers)
    except (Exception, SystemExit) as error:
        return part.failure(example, error, len(answers))
    return await awaited(part, example, answers, returned, timeout)


async def awaited(part: Part, example: Example, answers: Sequence[Answer], returned: Awaitable[Any], timeout: float) -> list[Verdict]:
    """The verdicts of a call that is awaited for at most `timeout` seconds. A call that does not let itself be cancelled is left behind."""
    task = asyncio.ensure_future(_kept(returned))
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not done:
        task.cancel()
        return part.too_slow(example, timeout, len(answers))
    result, error = task.result()
    return part.read(example, result, len(answers)) if error is None else part.failure(example, error, len(answers))


async def _kept(returned: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """What was returned or raised: an exit that left its task would end the event loop."""
    try:
        return await returned, None
    except BaseException as error:
        return None, error


class LoopThread:
    """Runs jobs in this process. The event loop starts with the first async call; `timeout` (seconds) holds for async calls only."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: weakref.finalize[..., LoopThread] | None = None
        self._owner = os.getpid()

    def run(self, jobs: Sequence[Job]) -> None:
        """Fill in the results of all jobs. KeyboardInterrupt cancels what is under way and goes up."""
        for job in jobs:
            if not job.part.is_async:
                job.results = [self._plain(job.part, job.example, answers) for answers in job.calls]
        if waiting := [job for job in jobs if job.part.is_async]:
            self._wait(self._all(waiting))

    def close(self) -> None:
        """Stop the loop and its thread. They start again when they are needed again."""
        with self._lock:
            if self._end is not None:
                self._end()
            self._loop = self._end = None

    def _plain(self, part: Part, example: Example, answers: Sequence[Answer]) -> list[Verdict]:
        try:
            returned = part.call(example, answers)
            if inspect.isawaitable(returned):
                return self._wait(awaited(part, example, answers, returned, self._timeout))
            return part.read(example, returned, len(answers))
        except (Exception, SystemExit) as error:
            return part.failure(example, error, len(answers))

    async def _all(self, jobs: Sequence[Job]) -> None:
        places = {job.part.name: asyncio.Semaphore(AT_ONCE) for job in jobs}

        async def one(job: Job, number: int) -> None:
            async with places[job.part.name]:
                job.results[number] = await called(job.part, job.example, job.calls[number], self._timeout)

        async with asyncio.TaskGroup() as group:
            for job in jobs:
                for number in range(len(job.calls)):
                    group.create_task(one(job, number))

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        future = asyncio.run_coroutine_threadsafe(work, self._started())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is not None and self._owner != os.getpid():  # in a fork: the thread is the parent's
                self._loop = None
                if self._end is not None:
                    self._end.detach()
            if self._loop is None:
                self._owner = os.getpid()
                self._loop = asyncio.new_event_loop()
                thread = threading.Thread(target=self._loop.run_forever, name="seegrad-rewards", daemon=True)
                thread.start()
                self._end = weakref.finalize(self, _end_loop, self._loop, thread)
            return self._loop


def cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel every task of a loop that is not running, and let them finish what they do on the way out (for at most a second)."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=1))


def _end_loop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join(timeout=5)
    if not thread.is_alive():  # a grader that blocks the loop keeps it; its thread ends with the process
        cancel_all(loop)
        loop.close()
