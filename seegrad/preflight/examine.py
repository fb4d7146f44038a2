"""What `seegrad doctor` checks before a run costs anything. Each check is a finding; none stops the others that do not need it.

rows ─▶ ids · splits ─▶ gold answers · wrong answers ─▶ prompts ─▶ memory ─▶ model counts the same ─▶ answers · parts · chance · flat groups
     (no torch up to here, and no weights) ──────────────────────────────┘
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seegrad.backends.base import Sampler
from seegrad.config import Config
from seegrad.errors import BackendError, SeegradError
from seegrad.families.folder import read_json
from seegrad.preflight.answers import check_answers, sample_answers
from seegrad.preflight.check import Check, guarded
from seegrad.preflight.grading import Grades, check_gold, check_wrong
from seegrad.preflight.machine import Machine
from seegrad.preflight.memory import NAME as MEMORY
from seegrad.preflight.memory import check_memory
from seegrad.preflight.parameters import read_shape
from seegrad.preflight.prompts import NAME as PROMPTS
from seegrad.preflight.prompts import Prompts, Renders, check_prompts, count_prompts
from seegrad.preflight.rows import Scan, check_rows, scan
from seegrad.types import Example, SamplingParams

MODEL = "model"


@dataclass(frozen=True)
class Subject:
    """What is examined. Everything that may fail to open is opened by a function, so that the failure is one finding among others.

    `train` and `held_out` are the rows as the data set gives them, bad ones included; `light` says that every reward part grades by the text alone:
    rows without their pictures will do. `params` are the sampling settings of the run; `without_model` says why no model is to be opened, or "".
    """

    config: Config
    train: Sequence[Example]
    held_out: Sequence[Example]
    rewards: Grades
    open_renderer: Callable[[], Renders]
    open_sampler: Callable[[], Sampler]
    params: Callable[[], SamplingParams]
    folder: Callable[[], Path]
    machine: Callable[[], Machine]
    light: bool = True
    without_model: str = ""


def examine(subject: Subject, *, num_items: int = 16, num_samples: int = 4) -> Iterator[Check]:
    """All checks, in order: `num_items` rows of each split are read with their pictures and answered `num_samples` times."""
    config = subject.config
    scans = [scan(config.data.train_split, subject.train, num_items), scan(config.eval.split, subject.held_out, num_items)]
    yield from check_rows(scans, config.data)
    graded = [example for one in scans for example in (one.examples if subject.light else one.whole)]
    if not graded:
        return
    yield guarded("gold answers", lambda: check_gold(subject.rewards, graded), "repair the reward that is named")
    yield guarded("wrong answers", lambda: check_wrong(subject.rewards, graded), "repair the reward that is named")
    prompts: list[Prompts] = []
    yield guarded(
        PROMPTS, lambda: _prompts(subject, scans, prompts), "choose a model folder with tokenizer, chat template and image processor (model.base)"
    )
    if not prompts or not prompts[0].counted:
        return
    yield guarded(MEMORY, lambda: _memory(subject, prompts[0]), "the rest can be used without the estimate; watch the first steps")
    golds = [example for one in scans for example in one.examples]
    yield from _with_model(subject, golds, prompts[0], num_samples)


def _prompts(subject: Subject, scans: Sequence[Scan], into: list[Prompts]) -> Check:
    prompts = count_prompts(subject.open_renderer(), scans)
    into.append(prompts)
    return check_prompts(prompts, subject.config, _context(subject))


def _context(subject: Subject) -> int | None:
    """Most positions of the model; None when its config.json does not say in a known way (the estimate of memory tells)."""
    try:
        return read_shape(read_json(subject.folder() / "config.json")).context
    except BackendError:
        return None


def _memory(subject: Subject, prompts: Prompts) -> Check:
    shape = read_shape(read_json(subject.folder() / "config.json"))
    config = subject.config
    shown = min(len(subject.train), config.steps * config.rollout.questions_per_step) + min(len(subject.held_out), config.eval.num_items)
    return check_memory(shape, config, prompts.lengths(config.data.max_prompt_tokens, shown), subject.machine())


def _with_model(subject: Subject, golds: Sequence[Example], prompts: Prompts, num_samples: int) -> Iterator[Check]:
    if subject.without_model:
        yield Check(MODEL, None, f"skipped: {subject.without_model}", "run again with the weights to see real answers, chance level and flat groups")
        return
    params = subject.params()
    most = [subject.config.data.max_prompt_tokens or None, None if (context := _context(subject)) is None else context - params.max_tokens]
    longest = min((limit for limit in most if limit is not None), default=None)
    pairs = [pair for pair in zip(prompts.examples, prompts.inputs, strict=True) if longest is None or len(pair[1]) <= longest]
    if not pairs:
        yield Check(
            MODEL, None, "skipped: none of the prompts that were read whole is within the limits", "shorten the prompts, or raise --num-items"
        )
        return
    examples, inputs = [example for example, _ in pairs], [model_input for _, model_input in pairs]
    try:
        sampler = subject.open_sampler()
        # One token from every prompt: a sampler that expands a picture to another number of tokens raises, naming both.
        sampler.sample(inputs, SamplingParams(1, params.temperature, stop_token_ids=params.stop_token_ids))
    except SeegradError as error:
        change = "give a whole model folder or hub id (model.base) that renders and samples alike, and a device that exists (model.device)"
        yield Check(MODEL, False, str(error), change)
        return
    agreed = f"loads, and counts the same tokens as the renderer in all of {len(inputs)} prompts"
    yield Check(MODEL, True, agreed, facts={"prompts": len(inputs)})
    try:
        sampled = sample_answers(sampler, subject.rewards, examples, inputs, params, num_samples)
    except SeegradError as error:
        yield Check("answers", False, str(error), "a run would end with this message; repair what it names")
        return
    yield from check_answers(sampled, golds, params.max_tokens, subject.config.rollout.group_size)
