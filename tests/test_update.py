"""The training half of a step on a policy that fits in the head: passes, correction, masks, the KL in the reward, alarms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from seegrad.advantages import mean
from seegrad.batch import to_datums
from seegrad.config import Config
from seegrad.errors import BackendError, UsageError
from seegrad.rollout import collect
from seegrad.types import Datum, Group, LossSpec, SamplingParams, StepOutput
from seegrad.update import kl_penalty, score_untrained, update
from tests import fakes


def groups(policy: fakes.FakePolicy, seed: int = 3, **settings: Any) -> list[Group]:
    params = SamplingParams(max_tokens=6)
    rows = fakes.examples()[:4]
    return collect(policy.sampler(), fakes.FakeRenderer(), fakes.rewards(), mean, rows, params, 4, range(seed, seed + 4), **settings)


def config(**algorithm: Any) -> Config:
    return fakes.config(algorithm=algorithm)


def test_one_pass_is_one_update_at_the_weights_that_sampled() -> None:
    policy = fakes.FakePolicy()
    made = update(policy, groups(policy), config(), 1, exact=True)
    assert policy.version == 1 and len(policy.batches) == 1 and made.notes == ()
    assert made.metrics["actor/rollout_train_kl"] < 1e-6 and made.metrics["train_datums"] == len(policy.batches[0]) == len(made.traces)
    assert "trainer/updates" not in made.metrics and "mismatch/clipped" not in made.metrics


def test_nothing_to_learn_from_takes_no_step() -> None:
    policy = fakes.FakePolicy()
    flat = [replace(group, rollouts_G=tuple(replace(rollout, advantage=0.0) for rollout in group.rollouts_G)) for group in groups(policy)]
    made = update(policy, flat, config(), 1)
    assert policy.version == 0 and made.metrics["train_datums"] == 0 and made.traces == {}


def test_minibatches_and_epochs_take_every_answer_once_an_epoch() -> None:
    policy = fakes.FakePolicy()
    found = groups(policy)
    datums, places = to_datums(found)
    made = update(policy, found, config(epochs=3, minibatches=2), 1, exact=True)
    assert policy.version == 6 and made.metrics["trainer/updates"] == 6
    for epoch in range(3):
        taken = [id(datum.target_tokens_T) for batch in policy.batches[2 * epoch : 2 * epoch + 2] for datum in batch]
        assert sorted(taken) == sorted(id(datum.target_tokens_T) for datum in [*policy.batches[0], *policy.batches[1]])
        assert len(taken) == len(datums)
    assert set(made.traces) == set(places)
    first, second = ([datum.target_tokens_T.tolist() for datum in policy.batches[index]] for index in (0, 2))
    assert first != second  # a fresh order in each epoch
    again = fakes.FakePolicy()
    update(again, groups(again), config(epochs=3, minibatches=2), 1)
    assert np.array_equal(again.logits_KV, policy.logits_KV)


def test_more_minibatches_than_answers_leaves_no_empty_step() -> None:
    policy = fakes.FakePolicy()
    made = update(policy, groups(policy), config(minibatches=500), 1)
    assert policy.version == made.metrics["train_datums"] and all(policy.batches)


class Drifting(fakes.FakePolicy):
    """Reports a mean ratio that grows with every pass."""

    def forward_backward(self, datums: Sequence[Datum], loss: LossSpec) -> StepOutput:
        output = super().forward_backward(datums, loss)
        return replace(output, metrics={**output.metrics, "ratio_mean": float(len(self.batches))})


def test_updates_stop_when_the_policy_has_moved_too_far() -> None:
    policy = Drifting()
    made = update(policy, groups(policy), config(epochs=8, stop_ratio=2.5), 1)
    assert policy.version == 3 and made.metrics["trainer/updates"] == 3
    assert "the mean ratio 3.00 is above algorithm.stop_ratio 2.5" in made.notes[0]


def test_recomputed_logprobs_replace_those_of_a_sampler_that_is_off() -> None:
    policy = fakes.FakePolicy(skew=0.2)
    made = update(policy, groups(policy), config(old_logprobs="recomputed"), 1)
    assert made.metrics["actor/rollout_train_kl"] == pytest.approx(0.2, abs=1e-5)
    for datum in policy.batches[-1]:  # the first call was the recomputation
        active = datum.active_T
        new = policy.forward([datum], LossSpec())
        assert datum.inputs["advantages"][active].any()
        assert len(new.logprobs_D[0][active]) == int(active.sum())
    plain, off = fakes.FakePolicy(), fakes.FakePolicy(skew=0.2)
    update(plain, groups(plain), config(), 1)
    update(off, [replace(group) for group in groups(off)], config(old_logprobs="recomputed"), 1)
    assert np.allclose(plain.logits_KV, off.logits_KV, atol=1e-6)  # as if the sampler had been right
    wrong = fakes.FakePolicy(skew=0.2)
    update(wrong, groups(wrong), config(), 1)
    assert wrong.adams == plain.adams
    assert not np.allclose(policy_gradient_scale(wrong), policy_gradient_scale(plain), rtol=1e-3)


def policy_gradient_scale(policy: fakes.FakePolicy) -> Any:
    return np.abs(policy.moments_2KV[0]).sum()


def test_truncated_importance_weights_scale_the_advantages() -> None:
    policy = fakes.FakePolicy(skew=-1.0)  # trainer − sampler = 1: every ratio is e
    found = groups(policy)
    made = update(policy, found, config(correction="tis", correction_config={"cap": 1.5}), 1)
    assert made.metrics["mismatch/clipped"] == 1.0
    original, _ = to_datums(found)
    for datum, before in zip(policy.batches[-1], original, strict=True):
        assert np.allclose(datum.inputs["advantages"], 1.5 * before.inputs["advantages"], atol=1e-6)


def test_a_mismatch_is_told_and_can_end_the_run() -> None:
    policy = fakes.FakePolicy(skew=0.1)
    assert "above algorithm.mismatch_alarm=0.05" in update(policy, groups(policy), config(mismatch_alarm=0.05), 1).notes[0]
    assert update(policy, groups(policy), config(mismatch_alarm=0.2), 2).notes == ()
    with pytest.raises(BackendError, match=r"more than algorithm.mismatch_stop=0.05"):
        update(fakes.FakePolicy(skew=0.1), groups(policy), config(mismatch_stop=0.05), 1)
    with pytest.raises(BackendError, match="disagree"):
        update(fakes.FakePolicy(), groups(fakes.FakePolicy(skew=0.1)), config(), 1, exact=True)
    with pytest.raises(UsageError, match="did you mean 'tis'"):
        update(policy, groups(policy), config(correction="tsi"), 1)


def test_truncated_answers_are_masked_but_keep_their_share_of_the_mean() -> None:
    policy = fakes.FakePolicy()
    found = groups(policy)
    cut = [
        replace(
            group,
            rollouts_G=tuple(
                replace(rollout, completion=replace(rollout.completion, stop_reason="length" if attempt % 2 else "stop"))
                for attempt, rollout in enumerate(group.rollouts_G)
            ),
        )
        for group in found
    ]
    whole, masked = (update(fakes.FakePolicy(), cut, config(mask_truncated=value), 1) for value in (False, True))
    assert set(masked.traces) == {place for place in whole.traces if place[1] % 2 == 0}
    rest = score_untrained(cut, policy, config(mask_truncated=True))
    assert not set(rest) & set(masked.traces) and set(rest) | set(masked.traces) == {(g, a) for g in range(4) for a in range(4)}


def test_kl_in_the_reward_is_taken_off_before_credit() -> None:
    policy = fakes.FakePolicy()
    policy.logits_KV = policy.logits_KV + np.random.default_rng(5).normal(0, 0.5, policy.logits_KV.shape)  # away from the reference
    settings = config(kl_coef=0.5, kl_in="reward")
    plain = groups(policy)
    adjusted = groups(policy, adjust=kl_penalty(policy, settings))
    moved = 0.0
    for before, after in zip(plain, adjusted, strict=True):
        costs = []
        for old, new in zip(before.rollouts_G, after.rollouts_G, strict=True):
            kind = int(before.example.meta["kind"])
            tokens = list(old.completion.tokens_T)
            reference = float(fakes.log_softmax(policy.base_KV[kind])[tokens].sum())
            cost = float(old.completion.logprobs_T.sum()) - reference
            assert new.reward == pytest.approx(old.reward - 0.5 * cost, abs=1e-4)
            assert new.scores["kl_penalty"] == pytest.approx(-cost, abs=1e-4)
            costs.append(new.reward)
            moved = max(moved, abs(cost))
        assert [rollout.advantage for rollout in after.rollouts_G] == pytest.approx([cost - np.mean(costs) for cost in costs], abs=1e-4)
    assert moved > 0.1
    assert kl_penalty(policy, config(kl_coef=0.5)) is None and kl_penalty(policy, config(kl_in="reward")) is None
    update(policy, adjusted, settings, 1)
    assert "kl_coef" not in policy.losses[-1].config and "ref_logprobs" not in policy.batches[-1][0].inputs


def test_the_reference_may_be_another_model() -> None:
    policy, other = fakes.FakePolicy(), fakes.FakePolicy(seed=9)
    update(policy, groups(policy), config(kl_coef=0.1), 1)
    update(policy, groups(policy), config(kl_coef=0.1), 2, reference=other.sampler())
    of_base, of_other = ([datum.inputs["ref_logprobs"] for datum in batch] for batch in policy.batches)
    kinds = [fakes.kind_of(datum.model_input) for datum in policy.batches[1]]
    for kind, datum, reference_T in zip(kinds, policy.batches[1], of_other, strict=True):
        active = datum.active_T
        wanted = fakes.log_softmax(other.logits_KV[kind])[datum.target_tokens_T[active]]
        assert reference_T[active] == pytest.approx(wanted, abs=1e-5)
    assert not np.allclose(of_base[0], of_other[0])
