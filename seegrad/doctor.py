"""`seegrad doctor`: a recipe's parts → the findings of `preflight`, printed as they come, or as one JSON document.

{"recipe": "count", "passed": true, "failed": 0, "notes": 1, "checks": [{"name", "result": "ok" | "fail" | "note", "detail", "change", "facts"}]}
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from seegrad.config import Config, load_config
from seegrad.data.rows import load_rows
from seegrad.durable import finite
from seegrad.families.folder import model_folder
from seegrad.launch import check_algorithm
from seegrad.preflight.check import Check
from seegrad.preflight.examine import Subject, examine
from seegrad.preflight.machine import machine
from seegrad.wiring import BUNDLED, Parts


def doctor(recipe: str, settings: Sequence[str], *, num_items: int, num_samples: int, model: bool, as_json: bool) -> int:
    """Examine a recipe and print what was found; the exit code is 1 when a check failed. Raises UsageError or DataError when there is nothing to
    examine: a recipe, data set or split that does not exist, or wrong settings of `algorithm`."""
    config = load_config(recipe, settings)
    parts = Parts(config)
    check_algorithm(parts)
    checks: list[Check] = []
    try:
        for check in examine(_subject(parts, model=model), num_items=num_items, num_samples=num_samples):
            checks.append(check)
            if not as_json:
                print(check.lines(), flush=True)
    finally:
        parts.close()
    failed, notes = sum(check.passed is False for check in checks), sum(check.passed is None for check in checks)
    if as_json:
        tree = {"recipe": config.name, "passed": not failed, "failed": failed, "notes": notes, "checks": [check.tree() for check in checks]}
        print(json.dumps(finite(tree), ensure_ascii=False, indent=1))
    else:
        print(f"{f'{failed} of {len(checks)} checks failed' if failed else 'all is well'}{f'; {notes} to look at' if notes else ''}")
    return 1 if failed else 0


def _subject(parts: Parts, *, model: bool) -> Subject:
    config = parts.config
    return Subject(
        config=config,
        train=load_rows(config.data.train_split, config.data),
        held_out=load_rows(config.eval.split, config.data),
        rewards=parts.rewards,
        open_renderer=lambda: parts.renderer,
        open_sampler=lambda: parts.backend.sampler(config.model),
        params=lambda: parts.sampling(temperature=config.rollout.temperature),
        folder=lambda: model_folder(config.model.base, weights=False),
        machine=lambda: machine(config.model.device),
        light=all(":" not in name for name in config.reward.parts),  # a function of the user's own may look at the pictures
        without_model=_without_model(config) if model else "--no-model",
    )


def _without_model(config: Config) -> str:
    """Why no model can be opened although its small files are there; empty when it can be tried."""
    if config.model.base == BUNDLED:
        return ""
    folder = Path(config.model.base).expanduser()
    if config.model.backend.startswith("local") and folder.is_dir() and not list(folder.glob("*.safetensors")):
        return f"{folder} has no weights (*.safetensors)"
    return ""
