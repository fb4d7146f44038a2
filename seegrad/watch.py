"""Who may stop a run, and what is left behind when it stops.

    main thread   step n ──────────────▶ is_last(n)? ─ no ─▶ step n+1 …            status: finished
    signal             │ 1st Ctrl-C           └─ yes ─▶ checkpoint, leave          status: interrupted
                       └ 2nd Ctrl-C ─▶ KeyboardInterrupt here and now              status: interrupted
    error                            ─▶ raised on                                  status: failed

The first SIGINT or SIGTERM only sets a flag that the loop reads once per step; nothing is torn.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, Self

from seegrad.errors import RunError
from seegrad.progress import Reporter
from seegrad.rundir import RunWriter, State

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Watch:
    """Counts finished steps, listens for signals, and keeps status.json true. Use as a context around the loop."""

    def __init__(self, run: RunWriter | None, done: int, steps: int, reporter: Reporter) -> None:
        self.done = done
        self._run, self._steps, self._reporter = run, steps, reporter
        self._asked = False
        self._ending = False
        self._previous: dict[int, Any] = {}

    @property
    def state(self) -> State:
        """`finished` once every step is done, else `interrupted`."""
        return "finished" if self.done >= self._steps else "interrupted"

    def steps(self) -> Iterator[int]:
        """The numbers of the steps to take; ends early after a step that `is_last` called the last."""
        for step in range(self.done + 1, self._steps + 1):
            yield step
            self.done = step
            if self._ending:
                return

    def is_last(self, step: int) -> bool:
        """Whether no step follows `step`. Asked once per step, before its checkpoint: a signal that comes later ends the next step."""
        self._ending = self._asked or step == self._steps
        return self._ending

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        self._write("running", "")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if error is None:
            self._write(self.state, "" if self.state == "finished" else f"stopped by a signal after step {self.done}; a checkpoint was written")
            return
        state: State = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        message = f"stopped at once during step {self.done + 1}" if state == "interrupted" else f"{type(error).__name__}: {error}".splitlines()[0]
        try:
            self._write(state, message)
        except (RunError, OSError) as failure:  # the first error is the one to raise; this one is told beside it
            self._reporter.note(f"status.json could not be updated: {failure}")

    def _write(self, state: State, message: str) -> None:
        if self._run is not None:
            self._run.write_status(state, self.done, self._steps, message)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        what = "finishing this step and writing a checkpoint" if self._run is not None else "finishing this step"
        os.write(2, f"\n{what}; press Ctrl-C again to stop at once\n".encode())  # not print: the interrupted code may hold its lock
