"""Everything that can go wrong, as one tree.

    SeegradError            one line: what was given, what was expected, what to do next
    ├── UsageError          the command line or the config            exit 2
    ├── DataError           a row, an image, a file of the user's      exit 3
    ├── RewardError         a grader raised or could not be loaded     exit 4
    ├── SamplerError        a sampler broke its contract (counts …)    exit 5
    ├── BackendError        model loading, training step, memory       exit 6
    ├── RunError            run directories, checkpoints, locks        exit 7
    └── MissingExtra        a package of an optional extra is absent   exit 8

A failure belongs to the boundary it crossed. The CLI prints the line and exits with the code; `--debug` shows the traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SeegradError(Exception):
    """Base of every error that a user is meant to read. `str(error)` is one line."""

    exit_code = 1


class UsageError(SeegradError):
    """The command line or the config asks for something that does not exist or does not fit."""

    exit_code = 2


class DataError(SeegradError):
    """A row, image or file of the user's cannot be used. `reason` is its kind in a few words, the same for every row with the same fault."""

    exit_code = 3

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or "unusable row"


class RewardError(SeegradError):
    """A reward function could not be loaded, raised, or returned something that is not a number."""

    exit_code = 4


class SamplerError(SeegradError):
    """A sampler returned something other than it promised (for example another prompt length)."""

    exit_code = 5


class BackendError(SeegradError):
    """A model could not be loaded or a training step could not be taken."""

    exit_code = 6


class RunError(SeegradError):
    """A run directory or checkpoint is locked, damaged, or not what was asked for."""

    exit_code = 7


class MissingExtra(SeegradError):
    """An optional package is not installed."""

    exit_code = 8

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package!r}; install it with: pip install 'seegrad[{extra}]'")


def nearest(given: str, known: Iterable[str]) -> str:
    """A hint for a wrong name: `; did you mean 'mean_std'?`, or the list of known names when none is close.

    >>> nearest("meanstd", ["mean", "mean_std"])
    "; did you mean 'mean_std'?"
    """
    names = sorted(known)
    close = difflib.get_close_matches(given, names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(names)}" if names else ""
