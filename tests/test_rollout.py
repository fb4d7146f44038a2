"""Render, sample, check, grade, credit: everything keeps its place, and a failure is recorded where it happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from seegrad.advantages import mean
from seegrad.backends.base import Sampler
from seegrad.batch import to_datums
from seegrad.errors import DataError, SamplerError, UsageError
from seegrad.rollout import collect
from seegrad.types import Completion, Datum, Example, Floats, Group, ModelInput, SamplingParams, TextChunk
from tests.fakes import OneByOne

PARAMS = SamplingParams(max_tokens=4, stop_token_ids=(5,))
ROWS = [Example(f"row-{n}", str(n), str(n)) for n in range(3)]


class Renderer:
    stop_token_ids: tuple[int, ...] = (2, 5)

    def render(self, example: Example) -> ModelInput:
        if example.question == "bad":
            raise DataError(f"example {example.id!r} cannot be rendered")
        return ModelInput((TextChunk((100, int(example.question))),))


@dataclass
class Scripted:
    """A sampler whose answer g to prompt p is the text `p+g`; it keeps what it was asked."""

    version: int = 4
    asked: list[tuple[SamplingParams, list[int]]] = field(default_factory=list)

    def sample(
        self, prompts_P: Sequence[ModelInput], params: SamplingParams, num_samples: int = 1, *, seeds_P: Sequence[int] | None = None
    ) -> list[list[Completion]]:
        assert seeds_P is not None
        self.asked.append((params, list(seeds_P)))
        return [[self.completion(prompt.token_ids(0)[-1] + g) for g in range(num_samples)] for prompt in prompts_P]

    def completion(self, value: int) -> Completion:
        return Completion((value, 2), np.array([-0.5, -0.25], np.float32), "stop", str(value))

    def logprobs(self, datums: Sequence[Datum], temperature: float = 1.0) -> list[Floats]:
        return [np.zeros(len(datum), np.float32) for datum in datums]


class Exact(OneByOne):
    """Reward 1 for the row's answer; the texts in `broken` cannot be graded."""

    def __init__(self, *broken: str) -> None:
        self.broken = broken

    def grade(self, example: Example, text: str) -> tuple[dict[str, float], float, str | None, bool, str | None]:
        if text in self.broken:
            return {}, 0.0, None, False, f"grader failed on {example.id!r}"
        right = text == example.answer
        return {"exact": float(right)}, float(right), text, right, None


def gathered(sampler: Scripted | None = None, grader: Exact | None = None, rows: Sequence[Example] = ROWS, num_samples: int = 2) -> list[Group]:
    sampler = sampler or Scripted()
    return collect(sampler, Renderer(), grader or Exact(), mean, rows, PARAMS, num_samples, [10 + n for n in range(len(rows))])


def test_the_fake_is_a_sampler() -> None:
    assert isinstance(Scripted(), Sampler)


def test_groups_keep_their_order_and_their_facts() -> None:
    groups = gathered()
    assert [group.example.id for group in groups] == ["row-0", "row-1", "row-2"]
    for number, group in enumerate(groups):
        assert group.model_input.token_ids(0) == [100, number]
        assert [rollout.completion.text for rollout in group.rollouts_G] == [str(number), str(number + 1)]
        assert [rollout.reward for rollout in group.rollouts_G] == [1, 0]
        assert [rollout.advantage for rollout in group.rollouts_G] == [0.5, -0.5]
        assert [(rollout.parsed, rollout.correct) for rollout in group.rollouts_G] == [(str(number), True), (str(number + 1), False)]
        assert [rollout.scores for rollout in group.rollouts_G] == [{"exact": 1.0}, {"exact": 0.0}]
        assert {rollout.policy_version for rollout in group.rollouts_G} == {4}


def test_seeds_and_stop_tokens_reach_the_sampler_once() -> None:
    sampler = Scripted()
    gathered(sampler)
    assert sampler.asked == [(replace(PARAMS, stop_token_ids=(5, 2)), [10, 11, 12])]


def test_a_failed_grader_is_recorded_and_left_out_of_the_mean() -> None:
    (group,) = gathered(grader=Exact("0"), rows=ROWS[:1], num_samples=3)
    assert [rollout.error for rollout in group.rollouts_G] == ["grader failed on 'row-0'", None, None]
    (group,) = gathered(grader=Exact("1"), rows=[replace(ROWS[0], answer="2")], num_samples=4)
    assert [rollout.error is None for rollout in group.rollouts_G] == [True, False, True, True]
    assert [rollout.advantage for rollout in group.rollouts_G] == pytest.approx([-1 / 3, 0, 2 / 3, -1 / 3])
    assert to_datums([group])[1] == [(0, 0), (0, 2), (0, 3)]


def test_a_flat_group_has_no_advantage_and_the_function_is_not_asked() -> None:
    def never(rewards_G: Floats) -> Floats:
        raise AssertionError(rewards_G)

    rows = [replace(ROWS[0], answer="nothing")]
    (group,) = collect(Scripted(), Renderer(), Exact(), never, rows, PARAMS, 4, [0])
    assert group.is_flat and [rollout.advantage for rollout in group.rollouts_G] == [0] * 4
    (single,) = collect(Scripted(), Renderer(), Exact(), never, ROWS[:1], PARAMS, 1, [0])
    assert len(single.rollouts_G) == 1


@pytest.mark.parametrize(
    "made", [lambda rewards: rewards[:-1], lambda rewards: rewards * np.nan, lambda rewards: rewards[:, None], lambda rewards: 1.0]
)
def test_a_wrong_advantage_function_is_told_with_its_values(made: object) -> None:
    with pytest.raises(UsageError, match="advantage function made"):
        collect(Scripted(), Renderer(), Exact(), made, ROWS, PARAMS, 2, [0, 1, 2])  # type: ignore[arg-type]


@pytest.mark.parametrize("broken", [lambda rewards: 1 / 0, lambda: 1.0, lambda rewards: "high", 3])
def test_an_advantage_function_that_raises_is_told_in_one_line(broken: object) -> None:
    with pytest.raises(UsageError, match="the advantage function fails on rewards") as error:
        collect(Scripted(), Renderer(), Exact(), broken, ROWS[:1], PARAMS, 4, [0])  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_a_row_that_cannot_be_rendered_stops_before_sampling() -> None:
    sampler = Scripted()
    with pytest.raises(DataError, match="'row-9'"):
        gathered(sampler, rows=[*ROWS, Example("row-9", "bad", "")])
    assert not sampler.asked


class MissingPrompt(Scripted):
    def sample(self, *args: object, **kwargs: object) -> list[list[Completion]]:
        return super().sample(*args, **kwargs)[:-1]  # type: ignore[arg-type]


class MissingSample(Scripted):
    def sample(self, *args: object, **kwargs: object) -> list[list[Completion]]:
        return [group[:-1] for group in super().sample(*args, **kwargs)]  # type: ignore[arg-type]


class TooLong(Scripted):
    def completion(self, value: int) -> Completion:
        return Completion((value,) * 5, np.zeros(5, np.float32), "length", "")


class Empty(Scripted):
    def completion(self, value: int) -> Completion:
        return Completion((), np.zeros(0, np.float32), "stop", "")


class NotFinite(Scripted):
    def completion(self, value: int) -> Completion:
        return Completion((value,), np.array([-np.inf], np.float32), "stop", "")


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (MissingPrompt(), "answered 2 of 3 prompts"),
        (MissingSample(), "'row-0'.*gave 1 completions, asked for 2"),
        (TooLong(), "'row-0'.*5 tokens, expected 1 to 4"),
        (Empty(), "'row-0'.*0 tokens"),
        (NotFinite(), "'row-0'.*not a finite number"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Scripted) else "",
)
def test_a_sampler_that_breaks_its_promise_is_named(sampler: Scripted, message: str) -> None:
    with pytest.raises(SamplerError, match=message):
        gathered(sampler)
