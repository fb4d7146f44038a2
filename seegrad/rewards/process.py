"""One worker process, seen from the parent: three pipes, a group of its own, and an end that is certain.

    requests ──▶ worker (`worker.py`) ──▶ responses          life: nothing is ever written; it closes with this process

Nothing here waits for a worker, but for the moment in which a killed one ends.
"""

from __future__ import annotations

import copyreg
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from seegrad.rewards.worker import LENGTH, Frames, Request, Response
from seegrad.types import Answer, Example

_MARK = "SEEGRAD_REWARD_WORKER"  # in the environment of a worker and of all that it starts
_START = "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from seegrad.rewards.worker import main; main(*map(int, sys.argv[1:]))"


class WorkerProcess:
    """A fresh process in the folder `folder`, with this process's environment and `sys.path`. Raises OSError when none can be started."""

    def __init__(self, folder: Path | None) -> None:
        self._owner = os.getpid()
        self._mark_is_gone = False
        self._frames = Frames()
        self._out: deque[memoryview] = deque()
        pipes = [os.pipe() for _ in range(3)]
        (read_requests, self.requests), (self.responses, write_responses), (read_life, self._life) = pipes
        theirs = (read_requests, write_responses, read_life)
        os.set_blocking(self.requests, False)
        self._mark = f"{_MARK}={uuid.uuid4().hex}"
        environment = {**os.environ, _MARK: self._mark.partition("=")[2]}
        command = [sys.executable, "-P", "-c", _START, json.dumps(sys.path), *map(str, theirs)]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=theirs, start_new_session=True, cwd=folder, env=environment)
        except BaseException:
            for descriptor in (self.requests, self.responses, self._life):
                os.close(descriptor)
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def has_to_write(self) -> bool:
        return bool(self._out)

    def ask(self, request: Request, example: Example, answers: Sequence[Answer]) -> None:
        """Put a request in the queue. Raises what pickle raises for an example that cannot be sent."""
        body = packed((example, answers))
        head = pickle.dumps(request)
        self._out += [memoryview(LENGTH.pack(len(head) + len(body)) + head), memoryview(body)]

    def write(self) -> None:
        """Write what the pipe takes. What a worker that is gone does not read is dropped: `read` tells of its end after its last words."""
        try:
            while self._out:
                count = os.write(self.requests, self._out[0])
                self._out[0] = self._out[0][count:]
                if not self._out[0]:
                    self._out.popleft()
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._out.clear()

    def read(self) -> Iterator[Response]:
        """The responses that are there, when `responses` is readable. Raises EOFError when the worker is gone."""
        data = os.read(self.responses, 1 << 20)
        if not data:
            raise EOFError
        self._frames.feed(data)
        while (frame := self._frames.next()) is not None:
            yield pickle.loads(frame)

    def stop(self, patience: float = 0.0) -> str:
        """Kill the process with everything that it started, and say how it ended: `exit code 3`, `SIGSEGV`. May be called again.

        `patience` (seconds) is for one that is about to end by itself, so that its own end can be told.
        """
        if os.getpid() != self._owner:  # a fork of this process has no say
            self._process.poll()
        else:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)  # also when the leader has ended: what it started may live
            if not self._mark_is_gone:
                self._mark_is_gone = True
                kill_marked(self._mark)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
        for name in ("requests", "responses", "_life"):
            if (descriptor := getattr(self, name)) >= 0:
                setattr(self, name, -1)
                os.close(descriptor)
        self._out.clear()
        code = self._process.returncode
        return "unknown" if code is None else f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def kill_marked(mark: str) -> None:
    """Kill what graders started in sessions of their own, which a signal to the worker's group does not reach. Only where there is /proc."""
    wanted = mark.encode()
    for _ in range(5):  # what is found may just be starting something else
        found = False
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if wanted in path.read_bytes().split(b"\0"):
                    os.kill(int(path.parent.name), signal.SIGKILL)
                    found = True
        if not found:
            return


def read_only(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    """What the pickle of a read-only mapping calls: the type itself cannot be found by its name."""
    return MappingProxyType(mapping)


class _Pickler(pickle.Pickler):
    dispatch_table = copyreg.dispatch_table | {MappingProxyType: lambda mapping: (read_only, (dict(mapping),))}


def packed(thing: Any) -> bytes:
    """A pickle, also of the read-only mappings that `Example.meta` may be."""
    stream = io.BytesIO()
    _Pickler(stream, protocol=pickle.HIGHEST_PROTOCOL).dump(thing)
    return stream.getvalue()
