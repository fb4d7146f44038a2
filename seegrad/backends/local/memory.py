"""How this process asks the system for memory."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_LARGEST_KEPT = 1 << 30


def keep_freed_memory() -> bool:
    """Let freed tensors of up to 1 GiB be used again instead of going back to the system; True where the C library can (glibc).

    A training step on the CPU makes and frees thousands of tensors of some megabytes. Returned to the system each time, their pages are cleared and
    mapped anew at every use, which takes about a fifth of the step.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)) and bool(mallopt(_TRIM_THRESHOLD, (1 << 31) - 1))
