"""A process that runs `seegrad` many times, each time in a fork of itself, and lets some die: `python -m tests.reproductions FOLDER JOBS`.

    JOBS  [{"folder": …, "words": ["reproduce", …], "die": {"event": "open", "path": "metrics.jsonl", "after": 1}}, …]   JSON, one run after the other

A fork starts with torch imported, so that a run takes a second instead of ten. With `die` the fork sends itself SIGKILL before its file system event
number `after` + 1 of that kind on a path that ends so. Prints the exit status of each run (negative: the signal) as a JSON list on the last line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch  # noqa: F401  (the forks share it)

import seegrad.backends.local.backend
import seegrad.models.qwen3_vl
import seegrad.report  # noqa: F401
from seegrad import cli


def die_at(event: str, path: str, after: int) -> None:
    """Arm this process."""
    left = after + 1

    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if name != event or not isinstance(arguments[-1 if event != "open" else 0], str | os.PathLike | int):
            return
        target = arguments[1] if event == "os.rename" else arguments[0]
        if isinstance(target, str | os.PathLike) and str(target).endswith(path):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def run(job: dict[str, Any]) -> int:
    """Exit status of one run in a fork."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            Path(job["folder"]).mkdir(parents=True, exist_ok=True)
            os.chdir(job["folder"])
            sys.argv = ["seegrad", *job["words"]]
            if "die" in job:
                die_at(**job["die"])
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    statuses = [run(job) for job in json.loads(sys.argv[1])]
    print(json.dumps(statuses))
