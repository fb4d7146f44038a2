"""The training half of a step on a policy that fits in the head: passes, correction, masks, the KL in the reward, alarms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from seegrad.advantages import mean
from seegrad.batch import to_datums
from seegrad.config import Config
from seegrad.errors import BackendError, UsageError
from seegrad.rollout import collect
from seegrad.types import AdamParams, Datum, Group, LossSpec, SamplingParams, StepOutput
from seegrad.update import check_settings, kl_penalty, loss_spec, score_untrained, update
from seegrad.wiring import Parts
from tests import fakes


def groups(policy: fakes.FakePolicy, seed: int = 3, **settings: Any) -> list[Group]:
    params = SamplingParams(max_tokens=6)
    rows = fakes.examples()[:4]
    credit = settings.pop("credit", mean)
    return collect(policy.sampler(), fakes.FakeRenderer(), fakes.rewards(), credit, rows, params, 4, range(seed, seed + 4), **settings)


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
    scored, *batches = policy.batches
    assert len(scored) == len(datums)
    for epoch in range(3):
        taken = [id(datum.target_tokens_T) for batch in batches[2 * epoch : 2 * epoch + 2] for datum in batch]
        assert sorted(taken) == sorted(id(datum.target_tokens_T) for datum in scored)
    assert set(made.traces) == set(places)
    first, second = ([datum.target_tokens_T.tolist() for datum in batches[index]] for index in (0, 2))
    assert first != second  # a fresh order in each epoch
    again = fakes.FakePolicy()
    update(again, groups(again), config(epochs=3, minibatches=2), 1)
    assert np.array_equal(again.logits_KV, policy.logits_KV)


def test_more_minibatches_than_answers_leaves_no_empty_step() -> None:
    policy = fakes.FakePolicy()
    made = update(policy, groups(policy), config(minibatches=500), 1)
    assert policy.version == made.metrics["train_datums"] and all(policy.batches)


SETTINGS: list[dict[str, Any]] = [
    {},
    {"epochs": 3},
    {"minibatches": 4},
    {"epochs": 2, "minibatches": 3},
    {"epochs": 2, "minibatches": 3, "old_logprobs": "recomputed"},
    {"minibatches": 4, "correction": "tis"},
    {"epochs": 2, "minibatches": 2, "correction": "sequence_mask", "kl_coef": 0.1},
    {"minibatches": 2, "kl_coef": 0.2, "kl_in": "reward", "correction": "icepop"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=range(len(SETTINGS)))
def test_what_is_told_belongs_to_the_weights_that_sampled(settings: dict[str, Any]) -> None:
    """However many updates are taken: traces, deviation and mismatch are those of one pass over the whole batch before the first."""
    policy, before = fakes.FakePolicy(), fakes.FakePolicy()
    found = groups(policy, adjust=kl_penalty(policy, config(**settings)))
    datums, places = to_datums(found)
    wanted = before.forward(datums, LossSpec())
    made = update(policy, found, config(**settings), 1, exact=True)
    for place, datum, logprobs_T, entropy_T in zip(places, datums, wanted.logprobs_D, wanted.entropy_D, strict=True):
        assert made.traces[place][0] == pytest.approx(logprobs_T[datum.active_T], abs=1e-6)
        assert made.traces[place][1] == pytest.approx(entropy_T[datum.active_T], abs=1e-6)
    assert made.metrics["trainer/ratio_max_deviation"] < 1e-6 and made.metrics["mismatch/max"] < 1e-6
    assert made.metrics["trainer/entropy"] == pytest.approx(np.mean(np.concatenate([made.traces[place][1] for place in places])), abs=1e-6)
    planned = settings.get("epochs", 1) * settings.get("minibatches", 1)
    assert policy.version == planned and made.metrics.get("trainer/updates", 1.0) == planned


@pytest.mark.parametrize("settings", SETTINGS, ids=range(len(SETTINGS)))
def test_a_sampler_that_is_off_is_noticed_with_every_setting(settings: dict[str, Any]) -> None:
    policy = fakes.FakePolicy(skew=1e-3)
    with pytest.raises(BackendError, match="trainer and sampler disagree"):
        update(policy, groups(policy), config(**settings), 1, exact=True)
    with pytest.raises(BackendError, match=r"more than algorithm\.mismatch_stop"):
        update(policy, groups(policy), config(**settings, mismatch_stop=1e-4), 1)
    assert policy.version == 0 or settings.get("minibatches", 1) == 1
    assert "above algorithm.mismatch_alarm" in update(policy, groups(policy), config(**settings, mismatch_alarm=1e-4), 1).notes[0]


class Skipping(fakes.FakePolicy):
    """Every second gradient is not finite."""

    def optim_step(self, adam: AdamParams) -> Mapping[str, float]:
        skips = len(self.adams) % 2 == 1
        return {**super().optim_step(adam), "skipped": float(skips)}


def test_skipped_updates_are_seen_and_not_counted() -> None:
    policy = Skipping()
    made = update(policy, groups(policy), config(epochs=4), 1)
    assert made.metrics["trainer/updates"] == 2 and made.metrics["trainer/skipped"] == 1


class Drifting(fakes.FakePolicy):
    """Reports a mean ratio that grows with every pass."""

    def forward_backward(self, datums: Sequence[Datum], loss: LossSpec) -> StepOutput:
        output = super().forward_backward(datums, loss)
        return replace(output, metrics={**output.metrics, "ratio_mean": float(len(self.batches))})


def test_a_stop_within_the_first_pass_leaves_no_answer_without_numbers() -> None:
    policy = Drifting()
    found = groups(policy)
    made = update(policy, found, config(minibatches=8, stop_ratio=1.5), 1)
    datums, places = to_datums(found)
    assert policy.version < 8 and set(made.traces) == set(places) and made.metrics["train_datums"] == len(datums)
    assert all(np.all(logprobs_T < 0) and np.all(entropy_T > 0) for logprobs_T, entropy_T in made.traces.values())


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
    assert made.metrics["mismatch/clipped"] == 1.0 and policy.version == 1
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


def test_each_part_is_credited_apart_with_the_kl_as_one_of_them() -> None:
    policy = fakes.FakePolicy()
    policy.logits_KV = policy.logits_KV + np.random.default_rng(5).normal(0, 0.5, policy.logits_KV.shape)
    here = fakes.__file__
    parts = {f"{here}:first_digit": 1.0, f"{here}:brevity": 0.25}
    settings = fakes.config(algorithm={"kl_coef": 0.5, "kl_in": "reward", "advantage": "decoupled"}, reward={"parts": parts})
    found = groups(policy, adjust=kl_penalty(policy, settings), credit=Parts(settings).advantage)
    plain = groups(policy, credit=Parts(fakes.config(algorithm={"advantage": "decoupled"}, reward={"parts": parts})).advantage)
    assert [[set(rollout.scores) for rollout in group.rollouts_G] for group in found] == [[{*parts, "kl_penalty"}] * 4] * 4
    credit = [[[rollout.advantage for rollout in group.rollouts_G] for group in some] for some in (found, plain)]
    assert np.isfinite(credit[0]).all() and not np.allclose(credit[0], credit[1], atol=0.05)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"algorithm": {"correction": "tsi"}}, "did you mean 'tis'"),
        ({"algorithm": {"correction": "tis", "correction_config": {"high": 2.0}}}, "correction 'tis' has no setting 'high'"),
        ({"algorithm": {"loss_config": {"kl_coef": 0.1}}}, "write algorithm.kl_coef=0.1"),
        ({"algorithm": {"loss_config": {"entropy_coef": 0.1}}}, "write algorithm.entropy_coef=0.1"),
        ({"algorithm": {"reference": "tiny"}}, "algorithm.kl_coef is 0"),
        ({"algorithm": {"kl_coef": 0.1, "kl_in": "reward", "kl_estimator": "k2"}}, "the estimator is always k1"),
        ({"algorithm": {"kl_coef": 0.1, "kl_in": "reward"}, "rollout": {"dynamic_sampling": 2}}, "no two rewards are equal"),
    ],
)
def test_settings_that_are_wrong_or_that_nothing_reads_are_one_line(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        check_settings(fakes.config(**settings))
    assert "\n" not in str(caught.value)


def test_settings_that_go_together_are_let_through() -> None:
    algorithm = {"kl_coef": 0.1, "reference": "tiny", "kl_estimator": "k2", "correction": "tis", "correction_config": {"cap": 3.0}}
    check_settings(fakes.config(algorithm=algorithm, rollout={"dynamic_sampling": 2}))
    check_settings(fakes.config())
    check_settings(fakes.config(algorithm={"kl_coef": 0.1, "kl_in": "reward", "correction": "sequence_mask", "minibatches": 2, "epochs": 3}))


def test_every_setting_of_the_loss_is_in_what_the_trainer_gets() -> None:
    settings = config(
        loss="ppo", loss_config={"clip_high": 0.3}, reduction="constant_length", kl_coef=0.2, kl_estimator="k2", entropy_coef=0.01
    ).model_copy(update={"rollout": fakes.config().rollout.model_copy(update={"temperature": 0.7, "max_tokens": 9})})
    policy = fakes.FakePolicy()
    update(policy, groups(policy), settings, 1)
    wanted = LossSpec("ppo", {"clip_high": 0.3, "kl_coef": 0.2, "entropy_coef": 0.01}, "constant_length", None, 0.7, 9, "k2")
    assert policy.losses == [wanted] == [loss_spec(settings)]


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
