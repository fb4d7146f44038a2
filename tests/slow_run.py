"""A process for test_interruptions to kill and to signal: `python -m tests.slow_run FOLDER STEPS [--resume]`. Exit codes are the command's."""

from __future__ import annotations

import sys
from pathlib import Path

from seegrad.errors import SeegradError
from tests import fakes
from tests.runs import fake_run


def config(steps: int):  # type: ignore[no-untyped-def]
    return fakes.config(steps=steps, eval={"every": 4, "num_items": 8}, save={"every": 3, "keep": 2})


class Speaking(fakes.Quiet):
    """Prints one line per step, so that the parent knows where the run is."""

    def start(self, done: int, steps: int) -> None:
        print(f"start {done}", flush=True)

    def step(self, step: int, metrics: object) -> None:
        print(f"step {step}", flush=True)


def main() -> int:
    path, steps = Path(sys.argv[1]), int(sys.argv[2])
    try:
        outcome = fake_run(path, config(steps), reporter=Speaking(), resume="--resume" in sys.argv and (path / "config.toml").exists())
    except SeegradError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0 if outcome.state == "finished" else 130


if __name__ == "__main__":
    sys.exit(main())
