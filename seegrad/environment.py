"""What a run was run with: versions (read from package metadata, nothing is imported), machine, command line."""

from __future__ import annotations

import datetime
import os
import platform
import sys
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from typing import Any

PACKAGES = ("seegrad", "torch", "transformers", "tokenizers", "peft", "safetensors", "numpy", "pillow", "pydantic", "ray", "vllm", "pytrio", "tinker")


def describe_environment() -> dict[str, Any]:
    """Versions of Python and of the packages that numbers depend on (absent ones left out), platform, processors, command line, start time."""
    return {
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name)) is not None},
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "command": list(sys.argv),
        "started": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def changed_versions(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """`torch 2.12 → 2.13, …` for everything that numbers depend on and that differs; empty when nothing does."""
    before = {"python": then.get("python"), "machine": then.get("machine"), **then.get("packages", {})}
    after = {"python": now.get("python"), "machine": now.get("machine"), **now.get("packages", {})}
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return ", ".join(f"{name} {before.get(name) or 'absent'} → {after.get(name) or 'absent'}" for name in names)


@cache
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
