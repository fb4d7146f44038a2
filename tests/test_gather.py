"""Dynamic sampling: which questions are asked again, how often, and what is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from seegrad.advantages import batch_std
from seegrad.batch import has_credit
from seegrad.config import Config
from seegrad.gather import gather
from seegrad.rollout import give_credit
from seegrad.types import Completion, Example, Group, ModelInput, Rollout, TextChunk
from tests import fakes

EXAMPLES = [Example(f"row-{n}", "?", str(n)) for n in range(10)]


def rollout(reward: float, advantage: float) -> Rollout:
    return Rollout(Completion((1,), np.zeros(1, np.float32), "stop", ""), {"r": reward}, reward, advantage=advantage)


class Asked:
    """Rows in `flat` teach nothing; every call is kept."""

    def __init__(self, flat: set[str]) -> None:
        self.flat = flat
        self.calls: list[list[str]] = []
        self.seeds: list[int] = []

    def __call__(self, examples_P: Sequence[Example], seeds_P: Sequence[int]) -> list[Group]:
        self.calls.append([example.id for example in examples_P])
        self.seeds += seeds_P
        pair = {True: (rollout(1, 0), rollout(1, 0)), False: (rollout(1, 0.5), rollout(0, -0.5))}
        return [Group(example, ModelInput((TextChunk((1,)),)), pair[example.id in self.flat]) for example in examples_P]


def same(groups: Sequence[Group]) -> list[Group]:
    """Credit that each question has already."""
    return list(groups)


def config(tries: int) -> Config:
    return fakes.config(rollout={"questions_per_step": 4, "group_size": 2, "dynamic_sampling": tries})


def test_off_asks_once_and_counts_nothing() -> None:
    asked = Asked({f"row-{n}" for n in range(10)})
    found = gather(asked, same, EXAMPLES, config(0), 1)
    assert len(asked.calls) == 1 and len(found.groups) == 4 and found.metrics == {}


def test_flat_groups_are_replaced_until_there_are_enough() -> None:
    asked = Asked({f"row-{n}" for n in range(5)})
    found = gather(asked, same, EXAMPLES, config(20), 3)
    credit = [group for group in found.groups if has_credit(group)]
    assert len(credit) == 4 and len(found.groups) > 4
    assert found.metrics == {"rollout/resampled_groups": float(len(found.groups) - 4), "rollout/groups_with_credit": 4.0}
    assert [EXAMPLES[position].id for position in found.positions] == [name for call in asked.calls for name in call]
    assert len(set(asked.seeds)) == len(asked.seeds) == len(found.groups)  # no seed is used twice
    again = gather(Asked(asked.flat), same, EXAMPLES, config(20), 3)
    assert again.positions == found.positions
    assert gather(Asked(asked.flat), same, EXAMPLES, config(20), 4).positions != found.positions


def test_the_bound_is_kept_and_what_is_missing_is_said() -> None:
    asked = Asked({f"row-{n}" for n in range(10)})
    found = gather(asked, same, EXAMPLES, config(2), 1)
    assert [len(call) for call in asked.calls] == [4, 4, 4]
    assert found.metrics == {"rollout/resampled_groups": 8.0, "rollout/groups_with_credit": 0.0}


def test_credit_that_looks_at_the_whole_step_is_given_over_all_tries() -> None:
    """Rewards of the first questions are 1 and 0, of the added ones 5 and 0: one deviation divides them all."""
    calls = []

    def collect(examples_P: Sequence[Example], seeds_P: Sequence[int]) -> list[Group]:
        calls.append(len(examples_P))
        high = 1.0 if len(calls) == 1 else 5.0
        pairs = [(rollout(high if place else 2.0, 0), rollout(0 if place else 2.0, 0)) for place in range(len(examples_P))]
        return give_credit([Group(example, ModelInput((TextChunk((1,)),)), pair) for example, pair in zip(examples_P, pairs, strict=True)], batch_std)

    found = gather(collect, partial(give_credit, advantage_fn=batch_std), EXAMPLES, config(1), 1)
    assert calls == [4, 1]
    again = give_credit(found.groups, batch_std)
    for one, other in zip(found.groups, again, strict=True):
        assert [rollout.advantage for rollout in one.rollouts_G] == [rollout.advantage for rollout in other.rollouts_G]
    credit = [rollout.advantage for group in found.groups for rollout in group.rollouts_G if rollout.advantage]
    assert len(credit) == 6 and np.sqrt(np.mean(np.square(credit))) == pytest.approx(1, abs=1e-5)


def test_groups_whose_credit_is_masked_are_asked_again() -> None:
    def collect(examples_P: Sequence[Example], seeds_P: Sequence[int]) -> list[Group]:
        cut = replace(rollout(1, 0.5), completion=Completion((1,), np.zeros(1, np.float32), "length", ""))
        return [Group(example, ModelInput((TextChunk((1,)),)), (cut, rollout(0, 0))) for example in examples_P]

    for masked, resampled in ((False, 0.0), (True, 8.0)):
        settings = fakes.config(rollout={"questions_per_step": 4, "group_size": 2, "dynamic_sampling": 2}, algorithm={"mask_truncated": masked})
        metrics = gather(collect, same, EXAMPLES, settings, 1).metrics
        assert metrics == {"rollout/resampled_groups": resampled, "rollout/groups_with_credit": 0.0 if masked else 4.0}


def test_a_step_without_flat_groups_asks_once() -> None:
    asked = Asked(set())
    assert gather(asked, same, EXAMPLES, config(5), 1).metrics["rollout/resampled_groups"] == 0
    assert len(asked.calls) == 1
