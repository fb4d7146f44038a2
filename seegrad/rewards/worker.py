"""The inside of a worker process: it loads parts, calls them, and sends back verdicts. Started by `isolated.py`; imports no torch.

requests ─▶ plain part: call after call, blocking ────────────▶ responses
        └─▶ async part: an event loop that also reads requests ─▶ responses in the order in which they are done

A frame is 8 bytes of length and a pickle. What graders print goes to stderr. The process ends at once when the other end of `life` is closed, which
the kernel does for a parent that is gone, however it went and whatever a grader is doing here.
"""

from __future__ import annotations

import asyncio
import fcntl
import inspect
import io
import os
import pickle
import signal
import struct
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from seegrad.rewards.asynchronous import called, cancel_all
from seegrad.rewards.calling import Job, Part, Verdict, load_part

LENGTH = struct.Struct(">Q")


class Request(NamedTuple):
    """The head of a request; the example and its answers follow as a second pickle. `calls` are positions in `Job.calls`."""

    number: int
    part: str
    settings: Mapping[str, Any]
    timeout: float
    calls: tuple[int, ...]


class Response(NamedTuple):
    """`call` None: the calls of the request begin now. `failed`: none of them will, for this reason."""

    number: int
    call: int | None = None
    verdicts: tuple[Verdict, ...] = ()
    failed: str = ""


class Frames:
    """Bytes in, whole frames out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> bytes | None:
        """The next whole frame, or None."""
        if len(self._buffer) < LENGTH.size:
            return None
        end = LENGTH.size + LENGTH.unpack_from(self._buffer)[0]
        if len(self._buffer) < end:
            return None
        frame = bytes(memoryview(self._buffer)[LENGTH.size : end])
        del self._buffer[:end]
        return frame


def main(requests: int, responses: int, life: int) -> None:
    """Serve until the parent closes `requests` (file descriptors, all three)."""
    for descriptor in (requests, responses, life):
        os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with(life)
    with suppress(OSError):
        os.dup2(2, 1)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    _Server(requests, responses).serve()


def _end_with(life: int) -> None:
    """Be killed, with everything that graders started, when the other end of `life` is closed: by the kernel where it can, even out of C code."""
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(life, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
        with suppress(BlockingIOError):
            os.read(life, 1)
            os.killpg(0, signal.SIGKILL)  # it was closed before the kernel watched
    else:
        threading.Thread(target=_wait_for_end, args=(life,), daemon=True).start()


def _wait_for_end(life: int) -> None:
    os.read(life, 1)
    os.killpg(0, signal.SIGKILL)


class _Server:
    def __init__(self, requests: int, responses: int) -> None:
        self._requests, self._responses, self._pid = requests, responses, os.getpid()
        self._frames = Frames()
        self._parts: dict[str, Part] = {}
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self) -> None:
        while (frame := self._read()) is not None:
            while frame is not None:
                opened = self._open(frame)
                frame = None
                if opened is not None and opened[1].part.is_async:
                    frame = self._loop.run_until_complete(self._serve_async(*opened))
                elif opened is not None:
                    self._plain(*opened)
        cancel_all(self._loop)
        self._loop.close()

    def _read(self) -> bytes | None:
        """The next frame; None at the end. Waits, unless a frame is there already."""
        while (frame := self._frames.next()) is None:
            data = os.read(self._requests, 1 << 20)
            if not data:
                return None
            self._frames.feed(data)
        return frame

    def _open(self, frame: bytes) -> tuple[Request, Job] | None:
        """What a frame asks for; None when it cannot be done, and then the parent knows why."""
        stream = io.BytesIO(frame)
        request: Request = pickle.load(stream)
        try:
            example, answers = pickle.load(stream)
            if request.part not in self._parts:
                self._parts[request.part] = load_part(request.part, request.settings)
            job = Job(self._parts[request.part], example, answers)
        except BaseException as error:
            self._send(Response(request.number, failed=" ".join(f"{type(error).__name__}: {error}".split())))
            return None
        self._send(Response(request.number))
        return request, job

    def _plain(self, request: Request, job: Job) -> None:
        for call in request.calls:
            answers = job.calls[call]
            try:
                returned = job.part.call(job.example, answers)
                if inspect.isawaitable(returned):
                    returned = self._loop.run_until_complete(_wait(returned))
                verdicts = job.part.read(job.example, returned, len(answers))
            except BaseException as error:
                verdicts = job.part.failure(job.example, error, len(answers))
            if os.getpid() != self._pid:
                os._exit(0)  # a fork that a grader made and did not end: only one of the two may go on here
            self._send(Response(request.number, call, tuple(verdicts)))

    async def _serve_async(self, request: Request, job: Job) -> bytes | None:
        """Serve requests for async parts until one for a plain part comes, which is returned when all calls are done; None at the end."""
        self._start(request, job)
        while True:
            while (frame := self._frames.next()) is None:
                await self._readable()
                data = os.read(self._requests, 1 << 20)
                if not data:
                    return None
                self._frames.feed(data)
            name = pickle.load(io.BytesIO(frame)).part
            if name not in self._parts or not self._parts[name].is_async:
                break
            if (opened := self._open(frame)) is not None:
                self._start(*opened)
        if self._tasks:
            await asyncio.wait(self._tasks)
        return frame

    def _start(self, request: Request, job: Job) -> None:
        for call in request.calls:
            task = self._loop.create_task(self._call(request, job, call))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _call(self, request: Request, job: Job, call: int) -> None:
        verdicts = await called(job.part, job.example, job.calls[call], request.timeout)
        self._send(Response(request.number, call, tuple(verdicts)))

    async def _readable(self) -> None:
        ready = asyncio.Event()
        self._loop.add_reader(self._requests, ready.set)
        try:
            await ready.wait()
        finally:
            self._loop.remove_reader(self._requests)

    def _send(self, response: Response) -> None:
        data = pickle.dumps(response)
        view = memoryview(LENGTH.pack(len(data)) + data)
        while view:
            view = view[os.write(self._responses, view) :]


async def _wait(returned: Any) -> Any:
    return await returned
