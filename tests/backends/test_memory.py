"""Freed memory stays with the process: the same work touches no new pages."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

WORK = """
import resource, torch
from seegrad.backends.local.memory import keep_freed_memory
{call}
def work():
    for _ in range(4):
        torch.ones(1 << 24).mul(2.0)
rounds = []
for _ in range(4):  # the heap takes a round or two to settle
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    work()
    rounds.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(min(rounds))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the setting")
def test_freed_tensors_are_used_again() -> None:
    faults = {
        call: int(subprocess.run([sys.executable, "-c", WORK.format(call=call)], check=True, capture_output=True, text=True).stdout)
        for call in ("", "assert keep_freed_memory()")
    }
    assert faults["assert keep_freed_memory()"] < faults[""] / 10
