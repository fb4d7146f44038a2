"""How long the prompts are, counted from picture headers where the data set has them, and whether they fit the limits and the model's context."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from seegrad.config import Config
from seegrad.errors import DataError
from seegrad.families.folder import processor_config
from seegrad.preflight.check import Check
from seegrad.preflight.footprint import Lengths
from seegrad.preflight.rows import Row, Scan
from seegrad.types import Example, ModelInput

NAME = "prompts"


class Renders(Protocol):
    """What the checks need of a renderer."""

    def render(self, example: Example, /) -> ModelInput: ...


@dataclass(frozen=True, slots=True)
class Counted:
    """One prompt: tokens in all, and those of each of its pictures."""

    total: int
    pictures: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of both splits. `inputs` belong to `examples`, the rows that were read whole and can be rendered."""

    counted: tuple[Counted, ...]
    examples: tuple[Example, ...]
    inputs: tuple[ModelInput, ...]
    reasons: Counter[str]
    first: str = ""

    @property
    def totals(self) -> list[int]:
        return [item.total for item in self.counted]

    def lengths(self, limit: int, num_rows: int) -> Lengths:
        """What the estimate of memory needs; prompts over `limit` (0: none) are never sampled. `num_rows` rows are shown in all."""
        kept = [item for item in self.counted if not limit or item.total <= limit] or list(self.counted)
        pictures = [number for item in kept for number in item.pictures]
        return Lengths(
            prompt=max(item.total for item in kept),
            picture=max(sum(item.pictures) for item in kept),
            mean_picture=float(np.mean(pictures)) if pictures else 0.0,
            num_pictures=round(num_rows * len(pictures) / len(kept)),
        )


def count_prompts(renderer: Renders, scans: Sequence[Scan]) -> Prompts:
    """Count the prompts of all rows that were scanned, and render those that were read whole."""
    counted: list[Counted] = []
    examples: list[Example] = []
    inputs: list[ModelInput] = []
    reasons: Counter[str] = Counter()
    first = ""
    for scan in scans:
        for example in scan.whole:
            try:
                model_input = renderer.render(example)
            except DataError as error:
                if not scan.outlined:  # an outlined row is counted below
                    reasons[error.reason] += 1
                    first = first or str(error)
                continue
            examples.append(example)
            inputs.append(model_input)
            if not scan.outlined:
                counted.append(Counted(len(model_input), tuple(len(chunk) for chunk in model_input.images)))
        if scan.outlined:
            count = _counter(renderer)
            for row in scan.rows:
                try:
                    counted.append(count(row))
                except DataError as error:
                    reasons[error.reason] += 1
                    first = first or f"{row.example.id}: {error}"
    return Prompts(tuple(counted), tuple(examples), tuple(inputs), reasons, first)


def check_prompts(prompts: Prompts, config: Config, context: int | None) -> Check:
    """The distribution, the rows over `data.max_prompt_tokens`, and prompt and answer against the model's context (None: unknown)."""
    if not prompts.counted:
        return Check(
            NAME,
            False,
            f"no prompt can be rendered: {prompts.first}",
            "repair the rows, or choose a model folder with a chat template that takes them",
        )
    limit, answer = config.data.max_prompt_tokens, max(config.rollout.max_tokens, config.eval.max_tokens or 0)
    totals = prompts.totals
    over = [total for total in totals if limit and total > limit]
    beyond = [total for total in totals if context is not None and total + answer > context and not (limit and total > limit)]
    facts: dict[str, Any] = {
        "prompts": len(totals),
        "tokens": _quantiles(totals),
        "picture_tokens": _quantiles([sum(item.pictures) for item in prompts.counted]),
        "over_max_prompt_tokens": len(over),
        "over_context": len(beyond),
        "context": context,
        "refused": dict(prompts.reasons),
    }
    notes = [f"context {context:,}, answers of up to {answer:,}" if context is not None else f"answers of up to {answer:,}"]
    notes += [f"{len(over)} prompts over data.max_prompt_tokens={limit}"] if over else []
    notes += [f"{count} refused: {reason} ({prompts.first})" for reason, count in prompts.reasons.most_common(1)]
    detail = f"{len(totals):,} counted; {'; '.join(notes)}\n{length_table(prompts.counted)}"
    if beyond:
        room = (context or 0) - answer
        change = f"lower rollout.max_tokens or data.max_pixels, or leave such rows out with data.max_prompt_tokens={room}"
        said = f"{len(beyond)} prompts and their answers do not fit the context (longest {max(beyond):,} + {answer:,}); {detail}"
        return Check(NAME, False, said, change if room > 0 else f"lower rollout.max_tokens: the context has {context:,} tokens in all", facts)
    if over and len(over) == len(totals):
        return Check(
            NAME, False, detail, f"raise data.max_prompt_tokens (the median prompt has {int(np.median(totals))}), or lower data.max_pixels", facts
        )
    if over or prompts.reasons:
        stops = config.data.bad_rows == "stop"
        change = "raise data.max_prompt_tokens or lower data.max_pixels to keep them" if over else "repair these rows"
        end = "the run would stop at the first of them" if stops else "training replaces and counts them"
        return Check(NAME, False if stops else None, detail, f"{change}; {end}", facts)
    return Check(NAME, True, detail, facts=facts)


def length_table(counted: Sequence[Counted]) -> str:
    """Tokens of text, pictures and whole prompts: smallest, median, 95 % and largest, one line each."""
    picture = np.array([sum(item.pictures) for item in counted])
    total = np.array([item.total for item in counted])
    lines = [f"      {'tokens':8}{'min':>8}{'median':>8}{'95 %':>8}{'max':>8}"]
    for name, values in (("text", total - picture), ("picture", picture), ("prompt", total)):
        numbers = _quantiles(values.tolist())
        lines.append(f"      {name:8}" + "".join(f"{numbers[key]:8d}" for key in ("min", "median", "p95", "max")))
    return "\n".join(lines)


def _quantiles(values: Sequence[int]) -> dict[str, int]:
    array = np.array(values)
    return {
        "min": int(array.min()),
        "median": int(np.median(array)),
        "p95": int(np.quantile(array, 0.95, method="higher")),
        "max": int(array.max()),
    }


def _counter(renderer: Any) -> Any:
    """Row → Counted, from the question and the sizes of the pictures."""
    settings = processor_config(Path(renderer.folder))

    def count(row: Row) -> Counted:
        pictures = tuple(renderer.family.num_image_tokens(width, height, settings) for width, height in row.sizes)
        return Counted(renderer.count(row.example.question, row.sizes), pictures)

    return count
