"""Run by test_interruptions in a process of its own: `python -m tests.kill_points FOLDER EVERY`.

A fake run is started again and again (forked); the n-th copy kills itself with SIGKILL just before its n-th operation on the file system (open,
rename, mkdir, remove, rmdir; half of an append counts as one too), for n = 1, 1 + EVERY, … until one copy gets to its end. Copy n leaves FOLDER/n.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from seegrad import durable
from tests import fakes
from tests.runs import fake_run

EVENTS = frozenset({"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir"})


def die_before(number: int, folder: Path) -> None:
    """Arm this process."""
    left = number
    real_write = os.write

    def count() -> bool:
        nonlocal left
        left -= 1
        return left == 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in EVENTS and isinstance(arguments[0], str | os.PathLike) and Path(arguments[0]).is_relative_to(folder) and count():
            os.kill(os.getpid(), signal.SIGKILL)

    def write(descriptor: int, data: Any) -> int:
        if count():
            real_write(descriptor, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return real_write(descriptor, data)

    durable.os.write = write  # type: ignore[attr-defined]
    sys.addaudithook(hook)


def main(folder: Path, every: int) -> None:
    for number in range(1, 100_000, every):
        child = os.fork()
        if child == 0:
            die_before(number, folder)
            fake_run(folder / str(number), config())
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            assert os.WEXITSTATUS(status) == 0, status
            return


def config():  # type: ignore[no-untyped-def]
    return fakes.config(steps=4, eval={"every": 2, "num_items": 4}, save={"every": 1, "keep": 1})


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), int(sys.argv[2]))
