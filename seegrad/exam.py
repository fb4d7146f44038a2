"""A model that somebody names sits an exam: which items of a split, how often each is asked, and where the answers are kept.

Exam(target, split, …) ─ sit ─▶ evaluate ─▶ TARGET/eval/NAME.json + images/ ─▶ lines for the terminal
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from seegrad.config import Config
from seegrad.data.rows import load_rows
from seegrad.errors import SeegradError, UsageError
from seegrad.evaluate import EvalResult, check_place, check_sampling, evaluate, write_images
from seegrad.lab_json import write_lab_json
from seegrad.progress import clock_time
from seegrad.summary import describe
from seegrad.wiring import Parts, Target, eval_path

MAIN_SPLIT = "test"
LINE_SECONDS = 10.0  # between two plain lines of progress


@dataclass(frozen=True, slots=True)
class Exam:
    """What is asked. `num_items` None: `eval.num_items` of the target's settings; 0: every item of the split. How often and how warm each item is
    asked are the settings `eval.samples` and `eval.temperature`; `seeds` are the evaluation's seeds. `out` None: a name made from the target, the
    split and the way of asking."""

    target: Target
    split: str = MAIN_SPLIT
    num_items: int | None = None
    seeds: tuple[int, ...] = (0,)
    out: Path | None = None
    lab_json: Path | None = None

    @property
    def path(self) -> Path:
        """Where the evaluation is kept; a way of asking other than once and greedily is part of the name."""
        usual = eval_path(self.target, self.split)
        return self.out or usual.with_name(f"{usual.stem}{self.way}.json")

    @property
    def way(self) -> str:
        """The end of a file's name that says how the items were asked: `-k8-t0.7`; nothing for once and greedily."""
        settings = self.target.config.eval
        words = [f"k{settings.samples}"] if settings.samples > 1 else []
        words += [f"s{len(self.seeds)}"] if len(self.seeds) > 1 else []
        words += [f"t{settings.temperature:g}"] if settings.temperature else []
        return "".join(f"-{word}" for word in words)


def split_of(given: str | None, settings: Sequence[str], config: Config) -> str:
    """The split to answer: the one that is given (`--split`), or typed as `eval.split`; else `test`, and where the data set has none the settings'
    `eval.split`, with a line that says so. Raises UsageError when `--split` and `eval.split` are both typed and differ."""
    typed = config.eval.split if any(word.partition("=")[0].strip() == "eval.split" for word in settings) else None
    if given is not None and typed is not None and given != typed:
        raise UsageError(f"--split {given} and eval.split={typed} say different things; give one of them")
    wanted = given or typed
    if wanted is not None or config.eval.split == MAIN_SPLIT:
        return wanted or MAIN_SPLIT
    try:
        load_rows(MAIN_SPLIT, config.data)
    except UsageError as error:
        try:
            load_rows(config.eval.split, config.data)
        except SeegradError:
            raise error from None  # of the split that was asked for
        print(f"{config.data.name} has no split {MAIN_SPLIT!r}; taken is eval.split: {config.eval.split}", file=sys.stderr)
        return config.eval.split
    return MAIN_SPLIT


def sit(exam: Exam, parts: Parts, progress: Callable[[int, int], None] | None = None) -> EvalResult:
    """Evaluate and keep the result, with the pictures beside it. Everything that can be refused is refused before the model is opened; raises what
    `evaluate` raises, and RunError when the disk refuses."""
    config, path = exam.target.config, exam.path
    settings = config.eval
    check_sampling(settings.temperature, settings.samples, exam.seeds)
    for place in (path, exam.lab_json):
        if place is not None:
            check_place(place)
    examples = parts.examples(exam.split)
    wanted = settings.num_items if exam.num_items is None else exam.num_items or len(examples)
    examples = examples[: min(wanted, len(examples))]
    result = evaluate(
        exam.target.sampler(parts),
        parts.renderer,
        parts.rewards,
        examples,
        parts.sampling(temperature=settings.temperature, max_tokens=settings.max_tokens),
        num_samples=settings.samples,
        seeds=exam.seeds,
        batch_size=settings.batch_size,
        name=path.stem,
        dataset=config.data.name,
        split=exam.split,
        model=exam.target.label,
        progress=progress,
    )
    result = replace(result, version=exam.target.step)  # a sampler opened from files does not know its age
    result.to_json(path)  # first: the answers cost the most
    write_images(examples, (path.parent.parent if path.parent.name == "eval" else path.parent) / "images")
    if exam.lab_json is not None:
        write_lab_json(result, exam.lab_json)
    return result


def told(result: EvalResult) -> list[str]:
    """What a person reads of an evaluation: what was asked how, and every number."""
    summary, temperature = result.summary, result.params.get("temperature", 0.0)
    way = "greedily" if not temperature else f"at temperature {temperature:g}"
    number = summary["answers_per_item"]
    often = f", {number} answers each {way}" if number > 1 else f", {way}"
    seeds = f" ({len(summary['seeds'])} seeds)" if len(summary["seeds"]) > 1 else ""
    items = f"{summary['num_items']} item{'' if summary['num_items'] == 1 else 's'}"
    lines = [f"{result.model or result.name} on {items} of {result.dataset}/{result.split}{often}{seeds}", *describe(summary)]
    failed = next((item for item in result.items if item.error is not None), None)
    return lines if failed is None else [*lines[:2], f"  the first of these: {failed.error}", *lines[2:]]


class Counter:
    """Progress of long work: a count that rewrites its line on a terminal, a plain line every ten seconds elsewhere."""

    def __init__(self, verb: str, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._verb, self._stream, self._clock = verb, stream if stream is not None else sys.stderr, clock
        self._start = self._last = clock()

    def __call__(self, done: int, total: int) -> None:
        """`done` of `total` are finished."""
        now = self._clock()
        left = clock_time((now - self._start) / max(done, 1) * (total - done))
        text = f"{self._verb} {done}/{total}, left {left}"
        if self._stream.isatty():
            print(f"\r{text:40}", end="\n" if done == total else "", file=self._stream, flush=True)
        elif now - self._last >= LINE_SECONDS and done < total:
            print(text, file=self._stream, flush=True)
            self._last = now


def read_exam(path: Path, given: Sequence[str]) -> EvalResult:
    """An evaluation that is already there. Raises UsageError for options that would ask something, RunError when the file is damaged."""
    if given:
        raise UsageError(f"{path} is an evaluation: it is read, not made, so that {', '.join(given)} cannot be used; give a model to evaluate")
    return EvalResult.from_json(path)
