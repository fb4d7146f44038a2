"""Grading in this process: plain functions one after the other, async ones of a step side by side.

caller ── jobs ──▶ plain: called at once
       └─ async ─▶ event loop in a thread of its own ─▶ up to AT_ONCE calls at a time, each with a limit; the caller waits for all

The loop lives as long as the rewards, so that connections which a grader keeps open stay usable from step to step.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from seegrad.rewards.calling import Part, Verdict
from seegrad.rewards.isolated import Job
from seegrad.types import Answer, Example

AT_ONCE = 64  # async calls of one part that may be under way together


async def called(part: Part, example: Example, answers: Sequence[Answer], timeout: float) -> list[Verdict]:
    """The verdicts of one call of an async function."""
    try:
        returned = part.call(example, answers)
    except (Exception, SystemExit) as error:
        return part.failure(example, error, len(answers))
    return await awaited(part, example, answers, returned, timeout)


async def awaited(part: Part, example: Example, answers: Sequence[Answer], returned: Awaitable[Any], timeout: float) -> list[Verdict]:
    """The verdicts of a call that is awaited for at most `timeout` seconds. A call that does not let itself be cancelled is left behind."""
    task = asyncio.ensure_future(returned)
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not done:
        task.cancel()
        return part.too_slow(example, timeout, len(answers))
    try:
        return part.read(example, task.result(), len(answers))
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        return part.failure(example, error, len(answers))


class LoopThread:
    """Runs jobs in this process. The event loop starts with the first async call."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: Callable[[], object] | None = None

    def run(self, jobs: Sequence[Job]) -> None:
        """Fill in the verdicts of all jobs. KeyboardInterrupt cancels what is under way and goes up."""
        for job in jobs:
            if not job.part.is_async:
                for answers in job.part.split(job.answers):
                    job.verdicts.extend(self._plain(job.part, job.example, answers))
        if waiting := [job for job in jobs if job.part.is_async]:
            self._wait(self._all(waiting))

    def close(self) -> None:
        """Stop the loop and its thread."""
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

        async def one(job: Job, answers: Sequence[Answer]) -> list[Verdict]:
            async with places[job.part.name]:
                return await called(job.part, job.example, answers, self._timeout)

        calls = [[asyncio.ensure_future(one(job, answers)) for answers in job.part.split(job.answers)] for job in jobs]
        for job, tasks in zip(jobs, calls, strict=True):
            for task in tasks:
                job.verdicts.extend(await task)

    def _wait(self, work: Any) -> Any:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                thread = threading.Thread(target=self._loop.run_forever, name="seegrad-rewards", daemon=True)
                thread.start()
                self._end = weakref.finalize(self, _end_loop, self._loop, thread)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


def _end_loop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    if loop.is_closed():
        return

    async def cancel_all() -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)
        loop.stop()

    asyncio.run_coroutine_threadsafe(cancel_all(), loop)
    thread.join(timeout=5)
    if not thread.is_alive():
        loop.close()
