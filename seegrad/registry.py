"""One table: short name → address. People may also give `file.py:function` or `package.module:function`; nothing registers on import."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from seegrad.errors import UsageError, nearest

Kind = Literal["dataset", "reward", "advantage", "loss", "backend", "family"]

TABLE: dict[Kind, dict[str, str]] = {
    "dataset": {
        "count": "seegrad.data.shapes:count",
        "choice": "seegrad.data.shapes:choice",
        "ground": "seegrad.data.shapes:ground",
        "table": "seegrad.data.table:table",
        "geoqa": "seegrad.data.geoqa:geoqa",
        "geo3k": "seegrad.data.geo3k:geo3k",
        "geoqa-r1v": "seegrad.data.r1v:geoqa_r1v",
        "clevr-count": "seegrad.data.r1v:clevr_count",
        "gsm8k": "seegrad.data.gsm8k:gsm8k",
    },
    "reward": {
        "choice": "seegrad.rewards.choice:choice",
        "choice_tolerant": "seegrad.rewards.choice:choice_tolerant",
        "count": "seegrad.rewards.counting:count",
        "description": "seegrad.rewards.counting:description",
        "format": "seegrad.rewards.format:format",
        "iou": "seegrad.rewards.grounding:iou",
        "math": "seegrad.rewards.math:math",
        "length": "seegrad.rewards.length:length",
        "repetition": "seegrad.rewards.length:repetition",
    },
    "advantage": {
        "batch_std": "seegrad.advantages:batch_std",
        "decoupled": "seegrad.advantages:decoupled",
        "leave_one_out": "seegrad.advantages:leave_one_out",
        "mean": "seegrad.advantages:mean",
        "mean_std": "seegrad.advantages:mean_std",
        "pass_at_k": "seegrad.advantages:pass_at_k",
    },
    "loss": {
        "importance_sampling": "seegrad.losses.policy:importance_sampling",
        "ppo": "seegrad.losses.policy:ppo",
        "cispo": "seegrad.losses.policy:cispo",
        "dapo": "seegrad.losses.policy:dapo",
        "dr_grpo": "seegrad.losses.policy:dr_grpo",
        "dro": "seegrad.losses.policy:dro",
        "gspo": "seegrad.losses.sequence:gspo",
        "gspo_token": "seegrad.losses.sequence:gspo_token",
        "sapo": "seegrad.losses.policy:sapo",
        "cross_entropy": "seegrad.losses.supervised:cross_entropy",
    },
    "backend": {"local": "seegrad.backends.local.backend:open_backend"},
    "family": {
        "qwen2_5_vl": "seegrad.families.qwen2_5_vl:FAMILY",
        "qwen3_5": "seegrad.families.qwen3_5:FAMILY",
        "qwen3_vl": "seegrad.families.qwen3_vl:FAMILY",
    },
}


def names(kind: Kind) -> list[str]:
    """Registered short names of a kind, sorted."""
    return sorted(TABLE[kind])


def load(kind: Kind, name: str) -> Any:
    """The object behind a short name or an address. Raises UsageError naming what exists.

    >>> load("advantage", "mean").__name__
    'mean'
    """
    if name in TABLE[kind]:
        module, _, attribute = TABLE[kind][name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    location, found, attribute = name.rpartition(":")
    if not found:
        raise UsageError(f"no {kind} {name!r}{nearest(name, names(kind))}; or give your own as file.py:function")
    module_object = _load_file(Path(location), kind, name) if location.endswith(".py") else _load_module(location, kind, name)
    if not hasattr(module_object, attribute):
        public = [key for key, value in vars(module_object).items() if callable(value) and not key.startswith("_")]
        raise UsageError(f"{kind} {name!r}: {location} has no {attribute!r}{nearest(attribute, public)}")
    return getattr(module_object, attribute)


def _load_file(path: Path, kind: Kind, name: str) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"{kind} {name!r}: file {str(path)!r} does not exist (looked in {Path.cwd()})")
    unique = f"seegrad_user_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    if unique in sys.modules:
        return sys.modules[unique]
    spec = importlib.util.spec_from_file_location(unique, path)
    assert spec is not None and spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[unique] = module
    if (folder := str(path.resolve().parent)) not in sys.path:
        sys.path.append(folder)  # last: the file may import its neighbours, and none of them hides a package
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a script that ends with sys.exit() must not end this process
        del sys.modules[unique]
        line = _last_line_in(error, path)
        raise UsageError(f"{kind} {name!r}: {path}{line} failed to load: {_one_line(error)}") from error
    return module


def _last_line_in(error: BaseException, path: Path) -> str:
    """`:12` for the last traceback entry inside the file, or an empty string."""
    line = ""
    trace = error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == path.absolute():
            line = f":{trace.tb_lineno}"
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.lineno:
        line = f":{error.lineno}"
    return line


def _load_module(location: str, kind: Kind, name: str) -> ModuleType:
    with contextlib.suppress(OSError):  # the current folder may be gone
        if (folder := str(Path.cwd())) not in sys.path:
            sys.path.append(folder)  # a command does not have it there; last, as above
    try:
        return importlib.import_module(location)
    except (Exception, SystemExit) as error:  # the module's own code runs while it is imported
        raise UsageError(f"{kind} {name!r}: module {location!r} cannot be imported: {_one_line(error)}") from error


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
