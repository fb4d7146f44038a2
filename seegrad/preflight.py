"""What `seegrad doctor` checks before a run costs anything. Each check is one line; none stops the others.

rows ─▶ ids and pictures ─▶ gold answers score 1, wrong ones do not ─▶ prompt lengths ─▶ model counts the same ─▶ a few real answers
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from seegrad.backends.base import Sampler
from seegrad.errors import SeegradError
from seegrad.types import Example, ModelInput, SamplingParams


class Renders(Protocol):
    """What the checks need of a renderer."""

    def render(self, example: Example) -> ModelInput: ...


class Grades(Protocol):
    """What the checks need of rewards: (scores by part, reward, parsed, correct, error)."""

    def grade(self, example: Example, text: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. `passed` None is a remark: worth reading, no reason to stop."""

    name: str
    passed: bool | None
    detail: str


def gold_text(example: Example) -> str:
    r"""An answer that a grader must accept: the question's own words, then the gold answer in a box.

    >>> gold_text(Example(id="a", question=r"How many circles? Answer in \boxed{}.", answer="3"))
    'How many circles? Answer in .\n\\boxed{3}'
    """
    words = example.question.replace("\\boxed{}", "").replace("<image>", "").strip()
    return f"{words}\n\\boxed{{{example.answer}}}"


def preflight(
    train: Sequence[Example],
    held_out: Sequence[Example],
    renderer: Renders,
    rewards: Grades,
    open_sampler: Callable[[], Sampler],
    params: SamplingParams,
    *,
    num_items: int = 16,
    group_size: int = 4,
) -> Iterator[Check]:
    """All checks, in order, on the first `num_items` rows of both splits. `params` are the sampling settings of the run."""
    rows = yield from _rows(train, held_out, num_items)
    if not rows:
        return
    yield _guard("gold answers score 1", lambda: _gold(rewards, rows))
    yield _guard("wrong answers do not", lambda: _wrong(rewards, rows))
    prompts: list[ModelInput] = []
    yield _guard("prompts render", lambda: _prompts(renderer, rows, prompts))
    if len(prompts) < len(rows):
        return
    samplers: list[Sampler] = []
    yield _guard("model loads and counts the same tokens", lambda: _counts(open_sampler, prompts, params, samplers))
    if samplers:
        yield _guard("the model's own answers", lambda: _answers(samplers[0], rewards, rows, prompts, params, group_size))


def length_table(inputs: Sequence[ModelInput]) -> str:
    """Minimum, median and largest number of text, image and all tokens of the prompts, one line each."""
    image = np.array([sum(len(chunk) for chunk in item.images) for item in inputs])
    total = np.array([len(item) for item in inputs])
    rows = [("text", total - image), ("image", image), ("prompt", total)]
    lines = [f"{'tokens':8}{'min':>8}{'median':>8}{'max':>8}"]
    lines += [f"{name:8}{values.min():8d}{int(np.median(values)):8d}{values.max():8d}" for name, values in rows]
    return "\n".join(lines)


def _guard(name: str, check: Callable[[], tuple[bool | None, str]]) -> Check:
    """An error that is meant for users becomes a failed check; anything else is a defect and goes up."""
    try:
        passed, detail = check()
    except SeegradError as error:
        passed, detail = False, str(error)
    return Check(name, passed, detail)


def _rows(train: Sequence[Example], held_out: Sequence[Example], num_items: int) -> Generator[Check, None, list[Example]]:
    """Yields the check of the rows; returns those that can be read."""
    rows: list[Example] = []
    problems: list[str] = []
    for split in (train, held_out):
        for position in range(min(num_items, len(split))):
            try:
                rows.append(split[position])
            except SeegradError as error:
                problems.append(str(error))
    repeated = [name for name, count in Counter(row.id for row in rows).items() if count > 1]
    if repeated:
        problems.append(f"id {repeated[0]!r} occurs more than once, also across the two splits")
    pictures = sum(len(row.images) for row in rows)
    detail = f"{len(train)} and {len(held_out)} rows; {len(rows)} read, with {pictures} pictures"
    yield Check("rows can be read and are disjoint", not problems and bool(rows), "; ".join([detail, *problems[:3]]))
    return rows


def _gold(rewards: Grades, rows: Sequence[Example]) -> tuple[bool, str]:
    parts: dict[str, list[float]] = {}
    for row in rows:
        scores, _, parsed, correct, error = rewards.grade(row, gold_text(row))
        if error is not None:
            return False, error
        if not correct:
            return False, f"row {row.id}: {gold_text(row)!r} is graded as wrong (read as {parsed!r}, gold {row.answer!r})"
        for name, value in scores.items():
            parts.setdefault(name, []).append(value)
    means = ", ".join(f"{name} {np.mean(values):.2f}" for name, values in parts.items())
    return True, f"{len(rows)} of {len(rows)} are correct; mean by part: {means}"


def _wrong(rewards: Grades, rows: Sequence[Example]) -> tuple[bool, str]:
    """Every answer is graded with the gold of another row that has a different one, and with an empty text."""
    fooled = tried = 0
    for position, row in enumerate(rows):
        other = next((item for item in (*rows[position:], *rows[:position]) if item.answer != row.answer), None)
        texts = [""] if other is None else ["", gold_text(other)]
        for text in texts:
            tried += 1
            fooled += bool(rewards.grade(row, text)[3])
    return fooled <= tried // 10, f"{tried - fooled} of {tried} wrong or empty answers are graded as wrong"


def _prompts(renderer: Renders, rows: Sequence[Example], into: list[ModelInput]) -> tuple[bool, str]:
    into.extend(renderer.render(row) for row in rows)
    return True, "\n" + length_table(into)


def _counts(open_sampler: Callable[[], Sampler], prompts: Sequence[ModelInput], params: SamplingParams, into: list[Sampler]) -> tuple[bool, str]:
    """One token from every prompt: a sampler that expands a picture to another number of tokens raises, naming both."""
    sampler = open_sampler()
    sampler.sample(prompts, SamplingParams(1, params.temperature, stop_token_ids=params.stop_token_ids))
    into.append(sampler)
    return True, f"{len(prompts)} prompts, renderer and model agree on all"


def _answers(
    sampler: Sampler, rewards: Grades, rows: Sequence[Example], prompts: Sequence[ModelInput], params: SamplingParams, group_size: int
) -> tuple[bool | None, str]:
    grades = []
    flat = cut = 0
    for row, completions in zip(rows, sampler.sample(prompts, params, group_size, seeds_P=range(len(rows))), strict=True):
        group = [rewards.grade(row, completion.text) for completion in completions]
        grades.extend(group)
        flat += len({grade[1] for grade in group}) == 1
        cut += sum(completion.stop_reason == "length" for completion in completions)
    broken = next((grade[4] for grade in grades if grade[4] is not None), None)
    if broken is not None:
        return False, str(broken)
    parts = {name: float(np.mean([grade[0][name] for grade in grades])) for name in grades[0][0]}
    correct = float(np.mean([bool(grade[3]) for grade in grades]))
    detail = (
        f"{len(grades)} answers: correct {correct:.0%}, {', '.join(f'{name} {value:.2f}' for name, value in parts.items())}; "
        f"{flat} of {len(rows)} groups flat; {cut} cut at {params.max_tokens} tokens"
    )
    if flat == len(rows):
        return None, detail + "; no group has two different rewards: there is nothing to learn from, try another reward or model"
    return True, detail
