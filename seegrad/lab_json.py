"""An evaluation in the form that the public GeoQA lab publishes its own: one flat JSON document with every item. docs/evaluation.md has the form.

EvalResult ─ to_lab_json ─▶ {model, accuracy, format_rate, …, items: [{id, question, label, prediction, correct, response, …}]}
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from seegrad.evaluate import EvalItem, EvalResult, write_file


def to_lab_json(result: EvalResult) -> dict[str, Any]:
    """Rates are plain numbers from 0 to 1 over the answers that have a grade (None when there are none); times are in seconds.

    `items` holds one entry for each answer in order; with several answers to an item they differ in `attempt` and `seed`. An answer without a grade
    has `correct` None and says why in `error`.
    """
    summary = result.summary
    return {
        "model": result.model or result.name,
        "dataset": result.dataset,
        "split": result.split,
        "num_samples": len(result.items),
        "accuracy": _estimate(summary["accuracy"]),
        "format_rate": _estimate(summary["format_rate"]),
        "accuracy_given_parsable": _estimate(summary["accuracy_given_parsable"]),
        "samples_per_second": summary["samples_per_second"],
        "total_time": result.total_seconds,
        "items": [_entry(item) for item in result.items],
    }


def write_lab_json(result: EvalResult, path: Path) -> None:
    """Write `to_lab_json(result)` to `path`, whole or not at all. Raises RunError when the disk refuses."""
    write_file(path, (json.dumps(to_lab_json(result), ensure_ascii=False, indent=1, allow_nan=False) + "\n").encode())


def _entry(item: EvalItem) -> dict[str, Any]:
    graded = item.error is None
    return {
        "id": item.id,
        "question": item.question,
        "label": item.answer,
        "prediction": item.parsed if graded else None,
        "correct": item.correct if graded else None,
        "response": item.text,
        "completion_tokens": item.num_tokens,
        "truncated": item.truncated,
        "attempt": item.attempt,
        "seed": item.seed,
        **({} if graded else {"error": item.error}),
    }


def _estimate(rate: dict[str, float] | None) -> float | None:
    return None if rate is None else rate["estimate"]
