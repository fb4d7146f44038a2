"""Comparing two run directories, and starting fake runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seegrad import advantages
from seegrad.config import Config
from seegrad.rundir import RunDir, RunWriter, is_timing
from seegrad.train import Outcome, Pipeline, train
from tests import fakes


def fake_pipeline(policy: fakes.FakePolicy | None = None, **changes: Any) -> Pipeline:
    rows = fakes.examples()
    parts: dict[str, Any] = {
        "policy": policy or fakes.FakePolicy(),
        "renderer": fakes.FakeRenderer(),
        "rewards": fakes.rewards(),
        "advantage": advantages.mean,
        "examples": rows,
        "eval_examples": rows,
        "exact": True,
    }
    return Pipeline(**{**parts, **changes})


def fake_run(
    path: Path, config: Config, *, reporter: fakes.Quiet | None = None, policy: fakes.FakePolicy | None = None, resume: bool = False, **changes: Any
) -> Outcome:
    """Start (or continue) a run of the fake policy in `path`."""
    with RunWriter.resume(path) if resume else RunWriter.create(path, config) as run:
        return train(fake_pipeline(policy, **changes), config, run, reporter or fakes.Quiet())


def differences(first: Path, second: Path) -> list[str]:
    """Everything in which two runs differ that should be equal: metrics except timings, every byte of rollouts, index, pictures and checkpoints."""
    found = []
    for a, b in zip(_metrics(first), _metrics(second), strict=False):
        found += [
            f"metrics of step {a['step']}: {key} {a.get(key)} != {b.get(key)}" for key in sorted(a.keys() | b.keys()) if a.get(key) != b.get(key)
        ]
    if len(_metrics(first)) != len(_metrics(second)):
        found.append(f"{len(_metrics(first))} != {len(_metrics(second))} metrics lines")
    ours, theirs = _files(first), _files(second)
    found += [f"only in one: {name}" for name in sorted(ours.keys() ^ theirs.keys())]
    found += [f"bytes differ: {name}" for name in sorted(ours.keys() & theirs.keys()) if ours[name] != theirs[name]]
    return found


def _metrics(path: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if not is_timing(key)} for line in RunDir.open(path).metrics()]


def _files(path: Path) -> dict[str, bytes]:
    kept = [file for folder in ("rollouts", "images", "checkpoints") for file in (path / folder).rglob("*") if file.is_file()]
    return {str(file.relative_to(path)): file.read_bytes() for file in kept if "/damaged-" not in str(file)}
