"""Subjects to examine: sound ones, and ones with a planted fault."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

from PIL import Image

from seegrad.config import DataConfig
from seegrad.data.files import open_rows
from seegrad.data.table import Raw, Table
from seegrad.preflight.check import Check
from seegrad.preflight.examine import Subject, examine
from seegrad.preflight.machine import Machine
from seegrad.types import Example, SamplingParams
from seegrad.wiring import Parts
from tests.fakes import FakePolicy, FakeRenderer, OneByOne, config, examples

PARAMS = SamplingParams(max_tokens=4, temperature=1.0, stop_token_ids=(10,))
TINY = Path("seegrad/assets/tiny")


class Plain(OneByOne):
    """A grader like those of a config: the gold answer and nothing else in the box, or as the first digit."""

    def grade_groups(self, groups: Any) -> Any:
        return [[self.grade(example, getattr(answer, "text", answer)) for answer in answers] for example, answers in groups]

    def grade(self, example: Example, text: str) -> tuple[dict[str, float], float, str | None, bool, str | None]:
        box = text.rpartition("\\boxed{")[2].rstrip("}") if "\\boxed{" in text else text[:1]
        right = box == example.answer
        return {"right": float(right)}, float(right), box or None, right, None


def subject(**changes: Any) -> Subject:
    rows = examples()
    parts: dict[str, Any] = {
        "config": config(),
        "train": rows[:8],
        "held_out": rows[8:],
        "rewards": Plain(),
        "open_renderer": FakeRenderer,
        "open_sampler": lambda: FakePolicy().sampler(),
        "params": lambda: PARAMS,
        "folder": lambda: Path(__file__).parents[2] / TINY,
        "machine": lambda: Machine("cpu", 8 << 30, 16 << 30),
    }
    return Subject(**{**parts, **changes})


def findings(num_items: int = 16, num_samples: int = 4, **changes: Any) -> dict[str, Check]:
    """What `examine` finds, by name. Every finding that is not ok must say what to change, and its facts must be JSON."""
    found = {check.name: check for check in examine(subject(**changes), num_items=num_items, num_samples=num_samples)}
    for check in found.values():
        json.dumps(check.tree(), allow_nan=False)
        assert check.passed is True or check.change
    return found


def png(width: int, height: int, color: int = 0) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), (color % 256, 60, 90)).save(buffer, "PNG")
    return buffer.getvalue()


def table(folder: Path, rows: list[dict[str, Any]], name: str = "train", **data: Any) -> Table:
    """A table over a JSONL file; a row's `picture` names a file in the folder."""
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def make(row: Any, position: int) -> Raw:
        pictures = (row["picture"],) if row.get("picture") else ()
        return Raw(str(row.get("id", "")), str(row["question"]), str(row["answer"]), pictures, tuple(row.get("choices", ())))

    return Table(open_rows(path, name), make, where=name, data=DataConfig(**data))


def with_parts(parts: Parts, **changes: Any) -> Subject:
    """The subject of real parts, with the bundled model's renderer and rewards."""
    base = subject(
        config=parts.config,
        rewards=parts.rewards,
        open_renderer=lambda: parts.renderer,
        params=lambda: parts.sampling(temperature=1.0),
    )
    return dataclasses.replace(base, **changes)
