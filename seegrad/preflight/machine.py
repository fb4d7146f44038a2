"""What this machine has: the device that a run would take, and its memory. Asked of the system, not of torch."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Machine:
    """`device` is "cpu" or "cuda"; `free` and `total` are bytes of its memory, None when the system does not say."""

    device: str
    free: int | None
    total: int | None


def machine(device: str) -> Machine:
    """The machine as a run with `model.device` would find it: `auto` is the first NVIDIA card when the driver shows one, else the CPU."""
    if device != "cpu":
        card = _card(int(device.partition(":")[2] or 0) if device.startswith("cuda") else 0)
        if card is not None:
            return card
        if device.startswith("cuda"):
            return Machine("cuda", None, None)
    return Machine("cpu", *_host())


def _card(number: int) -> Machine | None:
    command = ["nvidia-smi", "--query-gpu=memory.free,memory.total", "--format=csv,noheader,nounits"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
        free, total = (int(word) << 20 for word in output.splitlines()[number].split(","))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
    return Machine("cuda", free, total)


def _host() -> tuple[int | None, int | None]:
    """(free, total) bytes: the system's, or less where a control group allows less."""
    free, total = _meminfo(Path("/proc/meminfo"))
    limit, used = _number(_GROUP / "memory.max"), _number(_GROUP / "memory.current")
    if limit is not None:
        total = limit if total is None else min(total, limit)
        if used is not None:
            free = max(0, limit - used) if free is None else min(free, max(0, limit - used))
    return free, total


def _meminfo(path: Path) -> tuple[int | None, int | None]:
    try:
        lines = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        return int(lines["MemAvailable"].split()[0]) << 10, int(lines["MemTotal"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        return None, _total_by_pages()


def _total_by_pages() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _number(path: Path) -> int | None:
    """The number in a file, None when it is absent or says `max`."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
