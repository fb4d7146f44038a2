"""The loop without the gradient: a sampler answers every item, greedily unless told, and every answer is kept.

    examples ─ renderer ─▶ prompts ─ sampler ─▶ texts ─ rewards ─▶ EvalItem ─▶ EvalResult ─▶ one JSON file + pictures by content hash

Nothing is written before the last answer is graded, so that an interrupted evaluation leaves no half of a file.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from seegrad.backends.base import Sampler
from seegrad.durable import write_atomic
from seegrad.errors import DataError, RewardError, RunError, UsageError
from seegrad.images import content_hash
from seegrad.statistics import Interval, bootstrap_mean, wilson
from seegrad.types import Completion, Example, ModelInput, SamplingParams

FORMAT = 1  # of the JSON file
GREEDY = SamplingParams(max_tokens=128, temperature=0.0)
SUMMARY_RESAMPLES = 2_000


class Renders(Protocol):
    """What evaluation needs of a renderer."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]: ...

    def render(self, example: Example) -> ModelInput: ...


class Grades(Protocol):
    """What evaluation needs of rewards: (scores by part, reward, parsed, correct, error)."""

    def grade(self, example: Example, text: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class EvalItem:
    """One question and what became of it. `images` are sha256 of the pictures as the model saw them; `tags` the short facts of `Example.meta`
    (kind, language …), by which a report groups. `error` says why an item has no grade: it then counts in no rate."""

    id: str
    question: str
    answer: str
    images: tuple[str, ...] = ()
    text: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)
    reward: float = 0.0
    parsed: str | None = None
    correct: bool = False
    num_tokens: int = 0
    truncated: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class EvalResult:
    """One model on one list of items. `version` is the number of optimizer steps behind the weights (0: the base).

    `dataset`, `split` and `model` say what was evaluated, for the reader of a report; `total_seconds` is wall time, sampling and grading.
    """

    name: str
    items: tuple[EvalItem, ...]
    total_seconds: float
    version: int = 0
    dataset: str = ""
    split: str = ""
    model: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def graded(self) -> tuple[EvalItem, ...]:
        """Items that have a grade: what every rate is taken over."""
        return tuple(item for item in self.items if item.error is None)

    @property
    def summary(self) -> dict[str, Any]:
        """Counts, rates (each `{estimate, low, high}`, 95 %: Wilson for shares, bootstrap for means), tokens and speed. An empty rate is None."""
        graded = self.graded
        parsed = [item for item in graded if item.parsed is not None]
        parts = sorted({name for item in graded for name in item.scores})
        return {
            "num_items": len(self.items),
            "num_errors": len(self.items) - len(graded),
            "accuracy": _share(item.correct for item in graded),
            "format_rate": _share(item.parsed is not None for item in graded),
            "accuracy_given_parsable": _share(item.correct for item in parsed),
            "truncated_fraction": _share(item.truncated for item in graded),
            "mean_length": _mean(float(item.num_tokens) for item in graded),
            "reward": _mean(item.reward for item in graded),
            "scores": {name: _mean(item.scores[name] for item in graded if name in item.scores) for name in parts},
            "samples_per_second": len(self.items) / self.total_seconds if self.total_seconds > 0 else None,
            "total_seconds": self.total_seconds,
        }

    def to_json(self, path: Path) -> None:
        """Write summary and items to `path`, whole or not at all. Raises RunError when the disk refuses."""
        tree = {
            "seegrad_eval": FORMAT,
            **{key: getattr(self, key) for key in _HEADER},
            "summary": self.summary,
            "items": [asdict(i) for i in self.items],
        }
        write_file(Path(path), (json.dumps(tree, ensure_ascii=False, indent=1, allow_nan=False) + "\n").encode())

    @classmethod
    def from_json(cls, path: Path) -> EvalResult:
        """Read what `to_json` wrote; the summary is recomputed from the items. Raises RunError naming the file when it is absent or damaged."""
        try:
            tree = json.loads(Path(path).read_text(encoding="utf-8"))
            if not isinstance(tree, dict) or tree.get("seegrad_eval") != FORMAT:
                raise RunError(f"{path} is not an evaluation file of format {FORMAT}; make one with: seegrad eval")
            items = tuple(EvalItem(**{**item, "images": tuple(item["images"])}) for item in tree["items"])
            if not items:
                raise RunError(f"{path} is an evaluation of no items; make it again with: seegrad eval")
            return cls(items=items, **{key: tree[key] for key in _HEADER})
        except (OSError, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError) as error:
            raise RunError(f"{path} cannot be read as an evaluation ({type(error).__name__}: {error}); make it again with: seegrad eval") from None


_HEADER = ("name", "total_seconds", "version", "dataset", "split", "model", "params")


def evaluate(
    sampler: Sampler,
    renderer: Renders,
    rewards: Grades,
    examples: Sequence[Example],
    params: SamplingParams = GREEDY,
    *,
    batch_size: int = 128,
    name: str,
    dataset: str = "",
    split: str = "",
    model: str = "",
    version: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> EvalResult:
    """Answer and grade every example once, in order, `batch_size` prompts at a time; `progress(done, total)` after each batch.

    The renderer's stop ids are added to `params`. Item n samples with seed `params.seed + n`, which matters only when `temperature` > 0.
    `version` None asks the sampler; give the step of the weights when the sampler was opened from a folder.
    An example that cannot be read and a grader that raises are recorded in their item and counted. Raises UsageError when there are no examples,
    RewardError when no item could be graded, and whatever the sampler raises; an interruption leaves nothing behind.
    """
    total = len(examples)
    if total == 0:
        raise UsageError(f"evaluation {name!r} has no items; give a split that has some, or a larger --num-items")
    params = replace(params, stop_token_ids=tuple(dict.fromkeys((*params.stop_token_ids, *renderer.stop_token_ids))))
    start = time.perf_counter()
    items: list[EvalItem] = []
    for first in range(0, total, batch_size):
        items.extend(_batch(sampler, renderer, rewards, examples, params, range(first, min(first + batch_size, total))))
        if progress is not None:
            progress(len(items), total)
    failed = [item for item in items if item.error is not None]
    if len(failed) == total:
        raise RewardError(f"evaluation {name!r}: none of {total} items could be graded; the first: {failed[0].error}")
    seconds = time.perf_counter() - start
    settings = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(params).items()}
    return EvalResult(name, tuple(items), seconds, sampler.version if version is None else version, dataset, split, model, settings)


def write_images(examples: Sequence[Example], folder: Path) -> int:
    """Write every picture of the examples to `folder`/<sha256>.png, so that a report can show it; existing files stay. Returns the number
    written. Beside `x.json` the report looks in `images/` and `../images/`."""
    count = 0
    for position in range(len(examples)):
        try:
            images = examples[position].images
        except DataError:
            continue  # the evaluation has already recorded it
        for data in images:
            path = folder / f"{content_hash(data)}.png"
            if not path.exists():
                write_file(path, data)
                count += 1
    return count


def check_place(path: Path) -> None:
    """Raises RunError when no file can be written at `path`, before any work is done for it. Nothing is created."""
    if not path.name or path.is_dir():
        raise RunError(f"{path} is a folder; give the name of a file, for example --out {path / 'result.json'}")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir():
        raise RunError(f"{path} cannot be written: {folder} is a file, not a folder; choose another place with --out")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise RunError(f"{path} cannot be written: {folder} does not let you; choose another place with --out")


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, with the folders above it. Raises RunError when the disk refuses."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}; free some space or choose another place with --out") from error


def _batch(
    sampler: Sampler, renderer: Renders, rewards: Grades, examples: Sequence[Example], params: SamplingParams, positions: range
) -> list[EvalItem]:
    items: dict[int, EvalItem] = {}
    asked: list[tuple[int, Example, ModelInput]] = []
    for position in positions:
        example = None
        try:
            example = examples[position]
            asked.append((position, example, renderer.render(example)))
        except DataError as error:
            blank = EvalItem(f"row {position}", "", "") if example is None else _item(example)
            items[position] = replace(blank, error=str(error))
    if asked:
        seeds = [params.seed + position for position, _, _ in asked]
        answers = sampler.sample([prompt for _, _, prompt in asked], params, 1, seeds_P=seeds)
        for (position, example, _), completions in zip(asked, answers, strict=True):
            items[position] = _graded(rewards, example, completions[0])
    return [items[position] for position in positions]


def _graded(rewards: Grades, example: Example, completion: Completion) -> EvalItem:
    scores, reward, parsed, correct, error = rewards.grade(example, completion.text)
    answered = replace(_item(example), text=completion.text, num_tokens=len(completion.tokens_T), truncated=completion.stop_reason == "length")
    if error is not None:
        return replace(answered, error=str(error))
    clean = {str(part): float(value) for part, value in scores.items()}
    if not all(math.isfinite(value) for value in (reward, *clean.values())):
        return replace(answered, error=f"sample {example.id}: the reward {reward} of parts {clean} is not finite")
    return replace(answered, scores=clean, reward=float(reward), parsed=None if parsed is None else str(parsed), correct=bool(correct))


def _item(example: Example) -> EvalItem:
    tags = {key: str(value) for key, value in example.meta.items() if isinstance(value, str | int) and len(str(value)) <= 40}
    return EvalItem(example.id, example.question, example.answer, tuple(content_hash(data) for data in example.images), tags=tags)


def _share(hits: Iterable[bool]) -> dict[str, float] | None:
    flags = list(hits)
    return _plain(wilson(sum(flags), len(flags)))


def _mean(values: Iterable[float]) -> dict[str, float] | None:
    return _plain(bootstrap_mean(list(values), num_resamples=SUMMARY_RESAMPLES))


def _plain(interval: Interval) -> dict[str, float] | None:
    return None if math.isnan(interval.estimate) else {key: float(value) for key, value in asdict(interval).items()}
