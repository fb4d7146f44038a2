"""The loop without the gradient: a sampler answers every item, greedily unless told, and every answer is kept.

    examples ─ renderer ─▶ prompts ─ sampler ─▶ texts ─ rewards ─▶ EvalItem ─▶ EvalResult ─▶ one JSON file + pictures by content hash

One batch of prompts and pictures is held at a time; of the others only the answers. Nothing is written before the last answer is graded, so that an
interrupted evaluation leaves no half of a file.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from seegrad.backends.base import Sampler
from seegrad.durable import sync_paths, write_atomic
from seegrad.errors import DataError, RewardError, RunError, SamplerError, UsageError
from seegrad.images import content_hash
from seegrad.summary import summarize
from seegrad.types import Answer, Completion, Example, ModelInput, SamplingParams

FORMAT = 2  # of the JSON file; format 1 had one answer to each item and said nothing of attempts and seeds
READABLE = (1, 2)
GREEDY = SamplingParams(max_tokens=128, temperature=0.0)
GRADER_FAILED, NOT_FINITE = "grader failed", "reward not finite"  # reasons beside those of rows


class Renders(Protocol):
    """What evaluation needs of a renderer."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]: ...

    def render(self, example: Example) -> ModelInput: ...


class Grades(Protocol):
    """What evaluation needs of rewards: (scores by part, reward, parsed, correct, error)."""

    def grade_groups(self, groups: Sequence[tuple[Example, Sequence[Answer]]]) -> Sequence[Sequence[Any]]: ...


@dataclass(frozen=True, slots=True)
class EvalItem:
    """One answer to one question. `images` are sha256 of the pictures as the model saw them; `tags` the short facts of `Example.meta` (kind,
    language …), by which a report groups. `error` says why there is no grade, `reason` the kind of fault: such an answer counts in no rate.

    `attempt` numbers the answers to the same item from 0, `seed` is the evaluation's seed that the answer was sampled with.
    """

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
    reason: str = ""
    attempt: int = 0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class EvalResult:
    """One model on one list of items. `version` is the number of optimizer steps behind the weights (0: the base).

    `dataset`, `split` and `model` say what was evaluated, for the reader of a report; `total_seconds` is wall time, sampling and grading.
    `items` holds every answer: all answers to the first question, then all to the second.
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
        """Answers that have a grade: what every rate is taken over."""
        return tuple(item for item in self.items if item.error is None)

    @property
    def summary(self) -> dict[str, Any]:
        """Counts, rates with 95 % intervals, tokens and speed (`seegrad.summary`). Computed anew at every call."""
        return summarize(self.items, self.total_seconds)

    def to_json(self, path: Path) -> None:
        """Write summary and items to `path`, whole or not at all, an item a line. Raises RunError when the disk refuses."""
        head = {"seegrad_eval": FORMAT, **{key: getattr(self, key) for key in _HEADER}, "summary": self.summary}
        opening = json.dumps(head, ensure_ascii=False, indent=1, allow_nan=False).removesuffix("\n}")
        lines = ",\n".join(json.dumps({key: getattr(item, key) for key in _FIELDS}, ensure_ascii=False, allow_nan=False) for item in self.items)
        write_file(Path(path), f'{opening},\n "items": [\n{lines}\n ]\n}}\n'.encode())

    @classmethod
    def from_json(cls, path: Path) -> EvalResult:
        """Read what `to_json` wrote; the summary is recomputed from the items. Raises RunError naming the file when it is absent or damaged, and its
        kind NotAnEvaluation when it is JSON of something else."""
        try:
            tree = json.loads(Path(path).read_text(encoding="utf-8"))
            number = tree.get("seegrad_eval") if isinstance(tree, dict) else None
            if type(number) is not int or number not in READABLE:
                raise NotAnEvaluation(
                    f"{path} is not an evaluation file of format {' or '.join(map(str, READABLE))}; "
                    "give one that `seegrad eval` wrote, or take this one out of the folder"
                )
            items = tuple(EvalItem(**{**item, "images": tuple(item["images"])}) for item in tree["items"])
            if not items:
                raise RunError(f"{path} is an evaluation of no items; make it again with: seegrad eval")
            result = cls(items=items, **{key: tree[key] for key in _HEADER})
            for row, one in enumerate((result, *items)):
                for key, wanted in _KINDS.items():
                    if hasattr(one, key) and not wanted.holds(value := getattr(one, key)):
                        place = f"item {row - 1}: " if row else ""
                        raise ValueError(f"{place}{key} is {repr(value)[:60]}, expected {wanted.name}")
            return result
        except (OSError, RecursionError, KeyError, TypeError, ValueError) as error:  # a ValueError is JSON's and UTF-8's too
            said = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise RunError(f"{path} cannot be read as an evaluation ({said}); make it again with: seegrad eval") from None


class NotAnEvaluation(RunError):
    """A JSON file of another kind, such as an export in the lab's form."""


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    holds: Callable[[Any], bool]


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 10**100  # fits a float


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300  # neither infinite nor NaN


def _are_params(value: Any) -> bool:
    """Those settings of an evaluation that are read again; format 1 has no seeds."""
    if not isinstance(value, dict):
        return False
    seeds = value.get("seeds", [0])
    return _is_number(value.get("temperature", 0.0)) and isinstance(seeds, list) and bool(seeds) and all(map(_is_count, seeds))


_HEADER = ("name", "total_seconds", "version", "dataset", "split", "model", "params")
_TEXT = _Kind("text", lambda value: isinstance(value, str))
_TEXT_OR_NOTHING = _Kind("text or null", lambda value: value is None or isinstance(value, str))
_COUNT = _Kind("a whole number from 0 on", _is_count)
_NUMBER = _Kind("a finite number", _is_number)
_TRUTH = _Kind("true or false", lambda value: isinstance(value, bool))
_KINDS = {
    **dict.fromkeys(("name", "dataset", "split", "model", "id", "question", "answer", "text", "reason"), _TEXT),
    **dict.fromkeys(("parsed", "error"), _TEXT_OR_NOTHING),
    **dict.fromkeys(("version", "num_tokens", "attempt", "seed"), _COUNT),
    **dict.fromkeys(("total_seconds", "reward"), _NUMBER),
    **dict.fromkeys(("correct", "truncated"), _TRUTH),
    "images": _Kind("sha256 of pictures", lambda value: all(isinstance(one, str) and re.fullmatch("[0-9a-f]{64}", one) for one in value)),
    "scores": _Kind("finite numbers by part", lambda value: isinstance(value, dict) and all(map(_is_number, value.values()))),
    "tags": _Kind("texts by name", lambda value: isinstance(value, dict) and all(isinstance(one, str) for one in value.values())),
    "params": _Kind("the settings of an evaluation, with a temperature and a list of seeds", _are_params),
}
_FIELDS = tuple(one.name for one in fields(EvalItem))


def evaluate(
    sampler: Sampler,
    renderer: Renders,
    rewards: Grades,
    examples: Sequence[Example],
    params: SamplingParams = GREEDY,
    *,
    num_samples: int = 1,
    seeds: Sequence[int] = (),
    batch_size: int = 128,
    name: str,
    dataset: str = "",
    split: str = "",
    model: str = "",
    version: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> EvalResult:
    """Answer and grade every example `num_samples` times for each seed, in order, `batch_size` prompts at a time.

    `progress(done, total)` counts answers, after each batch. The renderer's stop ids are added to `params`. `seeds` replaces `params.seed`; the part
    of the result that has seed s is what an evaluation with that seed alone gives. An id that occurs again gets ` (2)`, ` (3)` … so that items can
    be paired. `version` None asks the sampler; give the step of the weights when the sampler was opened from a folder.

    An example that cannot be read and a grader that raises are recorded in their item and counted. Raises UsageError when there are no examples or
    several greedy answers are asked for, DataError when no item can be used, RewardError when none could be graded, and whatever the
    sampler raises; an interruption leaves nothing behind.
    """
    seeds, total = tuple(seeds) or (params.seed,), len(examples)
    check_sampling(params.temperature, num_samples, seeds)
    if total == 0:
        raise UsageError(f"evaluation {name!r} has no items; give a split that has some, or a larger --num-items")
    params = replace(params, stop_token_ids=tuple(dict.fromkeys((*params.stop_token_ids, *renderer.stop_token_ids))))
    start = time.perf_counter()
    items: list[EvalItem] = []
    ids: Counter[str] = Counter()
    for first in range(0, total, batch_size):
        positions = range(first, min(first + batch_size, total))
        items.extend(_batch(sampler, renderer, rewards, examples, params, num_samples, seeds, positions, ids))
        if progress is not None:
            progress(positions.stop * num_samples * len(seeds), total * num_samples * len(seeds))
    failed = [item for item in items if item.error is not None]
    if len(failed) == len(items):
        if all(item.reason not in (GRADER_FAILED, NOT_FINITE) for item in failed):
            raise DataError(f"evaluation {name!r}: none of {total} items can be used; the first: {failed[0].error}", reason=failed[0].reason)
        raise RewardError(f"evaluation {name!r}: none of {total} items could be graded; the first: {failed[0].error}")
    seconds = time.perf_counter() - start
    settings = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(params).items() if key != "seed"}
    settings |= {"num_samples": num_samples, "seeds": list(seeds)}
    return EvalResult(name, tuple(items), seconds, sampler.version if version is None else version, dataset, split, model, settings)


def check_sampling(temperature: float, num_samples: int, seeds: Sequence[int]) -> None:
    """Raises UsageError for several answers to an item that would all be the same one."""
    asked = f"{num_samples} answers to each item" if num_samples > 1 else f"{len(seeds)} seeds"
    if temperature == 0 and max(num_samples, len(seeds)) > 1:
        raise UsageError(f"{asked} at temperature 0 are the same answer each time; give --temperature 0.7 or so, or ask once")
    if num_samples < 1:
        raise UsageError(f"an item is answered at least once, got --samples {num_samples}")
    if len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise UsageError(f"seeds must differ and not be negative, got {', '.join(map(str, seeds))}")


def write_images(examples: Sequence[Example], folder: Path) -> int:
    """Write every picture of the examples to `folder`/<sha256>.png, so that a report can show it; existing files stay. Returns the number
    written. Beside `x.json` the report looks in `images/` and `../images/`. They are made durable together: one by one takes far longer."""
    written: list[Path] = []
    for position in range(len(examples)):
        try:
            images = examples[position].images
        except DataError:
            continue  # the evaluation has already recorded it
        for data in images:
            path = folder / f"{content_hash(data)}.png"
            if not path.exists():
                write_file(path, data, sync=False)
                written.append(path)
    sync_paths([*written, folder] if written else ())
    return len(written)


def check_place(path: Path) -> None:
    """Raises RunError when no file can be written at `path`, before any work is done for it. Nothing is created."""
    if not path.name or path.is_dir():
        raise RunError(f"{path} is a folder; give the name of a file, for example --out {path / 'result.json'}")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir():
        raise RunError(f"{path} cannot be written: {folder} is a file, not a folder; choose another place with --out")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise RunError(f"{path} cannot be written: {folder} does not let you; choose another place with --out")


def write_file(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write a file whole or not at all, with the folders above it; `sync` False leaves it to `sync_paths` to make it durable. Raises RunError when
    the disk refuses."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data, sync=sync)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}; free some space or choose another place with --out") from error


def _batch(
    sampler: Sampler,
    renderer: Renders,
    rewards: Grades,
    examples: Sequence[Example],
    params: SamplingParams,
    num_samples: int,
    seeds: Sequence[int],
    positions: range,
    ids: Counter[str],
) -> list[EvalItem]:
    """The answers to the items at `positions`, item by item; `ids` counts the ids so far."""
    items: dict[int, list[EvalItem]] = {}
    asked: list[tuple[int, Example, EvalItem, ModelInput]] = []
    for position in positions:
        example = None
        try:
            example = examples[position]
            prompt = renderer.render(example)
        except DataError as error:
            blank = EvalItem(f"row {position}", "", "") if example is None else _item(example, ids)
            items[position] = [replace(blank, error=str(error), reason=error.reason, seed=seeds[0])]
        else:
            items[position] = []
            asked.append((position, example, _item(example, ids), prompt))
    for number, seed in enumerate(seeds if asked else ()):
        seeds_P = [_seed(seed, position) for position, *_ in asked]
        completions_PG = sampler.sample([prompt for *_, prompt in asked], params, num_samples, seeds_P=seeds_P)
        if [len(completions_G) for completions_G in completions_PG] != [num_samples] * len(asked):
            counts = sorted({len(completions_G) for completions_G in completions_PG})
            raise SamplerError(
                f"the sampler answered {len(completions_PG)} of {len(asked)} prompts {counts} times, asked for {num_samples} times each"
            )
        grades_PG = rewards.grade_groups(
            [(example, _answers(completions_G)) for (_, example, *_), completions_G in zip(asked, completions_PG, strict=True)]
        )
        for (position, _, blank, _), completions_G, grades_G in zip(asked, completions_PG, grades_PG, strict=True):
            for attempt, (completion, grade) in enumerate(zip(completions_G, grades_G, strict=True), number * num_samples):
                items[position].append(replace(_graded(grade, blank, completion), attempt=attempt, seed=seed))
    return [item for position in positions for item in items[position]]


def _seed(seed: int, position: int) -> int:
    """63 random bits; none is shared with another seed or item, nor with a step of training (steps count from 1)."""
    return int(np.random.SeedSequence((seed, 0, position)).generate_state(1, np.uint64)[0] >> 1)


def _answers(completions_G: Sequence[Completion]) -> list[Answer]:
    return [Answer(completion.text, len(completion.tokens_T), completion.stop_reason == "length") for completion in completions_G]


def _graded(grade: Any, blank: EvalItem, completion: Completion) -> EvalItem:
    scores, reward, parsed, correct, error = grade
    answered = replace(blank, text=completion.text, num_tokens=len(completion.tokens_T), truncated=completion.stop_reason == "length")
    if error is not None:
        return replace(answered, error=str(error), reason=GRADER_FAILED)
    clean = {str(part): float(value) for part, value in scores.items()}
    if not all(math.isfinite(value) for value in (reward, *clean.values())):
        return replace(answered, error=f"sample {blank.id}: the reward {reward} of parts {clean} is not finite", reason=NOT_FINITE)
    return replace(answered, scores=clean, reward=float(reward), parsed=None if parsed is None else str(parsed), correct=bool(correct))


def _item(example: Example, ids: Counter[str]) -> EvalItem:
    tags = {key: str(value) for key, value in example.meta.items() if isinstance(value, str | int) and len(str(value)) <= 40}
    ids[example.id] += 1
    name = example.id if ids[example.id] == 1 else f"{example.id} ({ids[example.id]})"
    return EvalItem(name, example.question, example.answer, tuple(content_hash(data) for data in example.images), tags=tags)
