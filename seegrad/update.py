"""The training half of a step: groups → datums → one or more optimizer steps, and what there is to say about them.

    groups ─ to_datums ─▶ datums ─ ref_logprobs ─ correction ─▶ minibatches × epochs ─ forward_backward · optim_step ─▶ Update
                              └─ recomputed logprobs (when asked for) ─┘

One pass over the whole batch is the default; then the trainer's logprobs of that pass are those at the weights that sampled. With minibatches the
whole batch is scored before the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from seegrad.backends.base import Policy, Sampler
from seegrad.batch import to_datums
from seegrad.config import Config
from seegrad.correction import Correction, corrected, mismatch
from seegrad.errors import BackendError, UsageError
from seegrad.metrics import check_on_policy, largest_deviation, trainer_metrics
from seegrad.rundir import TokenTrace
from seegrad.schedule import adam_params
from seegrad.types import Datum, Group, LossSpec, StepOutput

Place = tuple[int, int]  # group, attempt
KL_PENALTY = "kl_penalty"  # the reward part that `kl_in = "reward"` adds


@dataclass(frozen=True, slots=True)
class Update:
    """What training on a step's groups did. `traces` are the trainer's logprobs and entropies by (group, attempt); `notes` are for a person."""

    metrics: Mapping[str, float]
    traces: Mapping[Place, TokenTrace] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def update(policy: Policy, groups: Sequence[Group], config: Config, step: int, *, reference: Sampler | None = None, exact: bool = False) -> Update:
    """Train on the groups that carry credit; without any, no optimizer step is taken and the version stays.

    `exact`: trainer and sampler compute alike, so fresh samples must be on-policy within `algorithm.on_policy_tolerance`.
    Raises BackendError when they are not, and when the mismatch is above `algorithm.mismatch_stop`; UsageError for a wrong correction.
    """
    algorithm, adam = config.algorithm, adam_params(config, step)
    datums, places = to_datums(groups, mask_truncated=algorithm.mask_truncated)
    if not datums:
        return Update(trainer_metrics([], None, {}, adam.learning_rate))
    sampled = datums = _with_reference(datums, policy, config, reference)
    plain, spec = LossSpec("importance_sampling", temperature=config.rollout.temperature), loss_spec(config)
    fresh: StepOutput | None = None  # the whole batch at the weights that sampled
    numbers: dict[str, float] = {}
    corrects = algorithm.old_logprobs == "recomputed" or algorithm.correction != "none"
    if corrects or algorithm.minibatches > 1:
        fresh = policy.forward(datums, plain)
        if corrects:
            datums, numbers = corrected(datums, fresh.logprobs_D, Correction(algorithm.correction, algorithm.correction_config))
        else:
            numbers = mismatch(datums, fresh.logprobs_D)
        _check(sampled, fresh, numbers, config, exact)
    outputs, optimizers, notes = [], [], []
    for part in _parts(len(datums), algorithm.epochs, algorithm.minibatches, step, config.seed):
        output = policy.forward_backward([datums[index] for index in part], spec)
        if fresh is None:  # then every part is the whole batch
            fresh, numbers = output, mismatch(datums, output.logprobs_D)
            _check(datums, output, numbers, config, exact)
        outputs.append(output)
        optimizers.append(policy.optim_step(adam))
        ratio = output.metrics.get("ratio_mean", 1.0)
        if algorithm.stop_ratio and ratio > algorithm.stop_ratio:
            notes.append(f"the mean ratio {ratio:.2f} is above algorithm.stop_ratio {algorithm.stop_ratio:g}: no more updates on this batch")
            break
    assert fresh is not None, "a batch with datums has at least one part"
    apart = numbers.get("mismatch/mean_abs", 0.0)
    if algorithm.mismatch_alarm and apart > algorithm.mismatch_alarm:
        notes.append(f"trainer and sampler are {apart:.3g} nats apart on average, above algorithm.mismatch_alarm={algorithm.mismatch_alarm:g}")
    metrics = trainer_metrics(sampled, replace(fresh, metrics=_averaged(outputs)), _mean(optimizers), adam.learning_rate)
    taken = sum(not optimizer.get("skipped") for optimizer in optimizers)
    metrics = {**metrics, **numbers, **({"trainer/updates": float(taken)} if algorithm.epochs * algorithm.minibatches > 1 else {})}
    return Update(metrics, traces(sampled, places, fresh), tuple(notes))


def loss_spec(config: Config) -> LossSpec:
    """The loss of a run; the trainer divides logits by the temperature that the sampler used."""
    algorithm = config.algorithm
    terms = {"kl_coef": algorithm.kl_coef if algorithm.kl_in == "loss" else 0.0, "entropy_coef": algorithm.entropy_coef}
    return LossSpec(
        algorithm.loss,
        {**algorithm.loss_config, **{name: value for name, value in terms.items() if value}},
        algorithm.reduction,
        temperature=config.rollout.temperature,
        length=config.rollout.max_tokens,
        kl_estimator=algorithm.kl_estimator,
    )


def check_settings(config: Config) -> None:
    """Raises UsageError for settings of `algorithm` that are wrong or that nothing would read; needs no model."""
    algorithm = config.algorithm
    Correction(algorithm.correction, algorithm.correction_config)
    for name in ("kl_coef", "entropy_coef"):
        if name in algorithm.loss_config:
            raise UsageError(
                f"algorithm.loss_config has {name!r}, which belongs to every loss; write algorithm.{name}={algorithm.loss_config[name]:g}"
            )
    if algorithm.reference and not algorithm.kl_coef:
        raise UsageError(f"algorithm.reference is {algorithm.reference!r} but algorithm.kl_coef is 0: nothing is compared with it; set kl_coef too")
    if algorithm.kl_coef and algorithm.kl_in == "reward" and algorithm.kl_estimator != "k3":
        raise UsageError(
            f"algorithm.kl_estimator={algorithm.kl_estimator!r} is for algorithm.kl_in='loss'; in the reward the estimator is always k1; leave it out"
        )
    if algorithm.kl_coef and algorithm.kl_in == "reward" and config.rollout.dynamic_sampling:
        raise UsageError(
            "rollout.dynamic_sampling replaces groups of equal rewards, and with algorithm.kl_in='reward' no two rewards are equal; "
            "use kl_in='loss', or dynamic_sampling=0"
        )


def kl_penalty(policy: Policy, config: Config, reference: Sampler | None = None) -> Callable[[Sequence[Group]], list[Group]] | None:
    """What `algorithm.kl_in = "reward"` does to graded groups before they get credit: `kl_coef` · Σ_t (logprob − reference logprob) is taken off each
    reward (the estimator k1 of a completion's KL, from the sampler's logprobs; Ouyang et al. 2022, InstructGPT, eq. 2) and shown as the reward part
    `kl_penalty`. None when there is nothing to do."""
    coefficient = config.algorithm.kl_coef
    if not coefficient or config.algorithm.kl_in != "reward":
        return None

    def penalise(groups: Sequence[Group]) -> list[Group]:
        datums, places = to_datums(groups, trained=None)
        scored = (reference or policy.reference()).logprobs(datums, config.rollout.temperature)
        costs: dict[Place, float] = {}
        for datum, place, reference_T in zip(datums, places, scored, strict=True):
            costs[place] = float((datum.inputs["logprobs"].astype(np.float64) - reference_T)[datum.active_T].sum())
        return [
            replace(
                group,
                rollouts_G=tuple(
                    replace(
                        rollout,
                        scores={**rollout.scores, KL_PENALTY: -costs.get((number, attempt), 0.0)},
                        reward=rollout.reward - coefficient * costs.get((number, attempt), 0.0) if rollout.error is None else rollout.reward,
                    )
                    for attempt, rollout in enumerate(group.rollouts_G)
                ),
            )
            for number, group in enumerate(groups)
        ]

    return penalise


def traces(datums: Sequence[Datum], places: Sequence[Place], output: StepOutput | None) -> dict[Place, TokenTrace]:
    """The trainer's logprobs and entropies of each completion that was scored, by (group, attempt)."""
    if output is None:
        return {}
    rows = zip(datums, places, output.logprobs_D, output.entropy_D, strict=True)
    return {place: (logprobs_T[datum.active_T], entropy_T[datum.active_T]) for datum, place, logprobs_T, entropy_T in rows}


def score_untrained(groups: Sequence[Group], policy: Policy, config: Config) -> dict[Place, TokenTrace]:
    """The same numbers without a gradient, for the completions that are not trained on: flat groups, failed graders, masked ones. Call it before
    `update`, while the weights are those that sampled."""
    datums, places = to_datums(groups, trained=False, mask_truncated=config.algorithm.mask_truncated)
    plain = LossSpec("importance_sampling", temperature=config.rollout.temperature)
    return traces(datums, places, policy.forward(datums, plain) if datums else None)


def _with_reference(datums: Sequence[Datum], policy: Policy, config: Config, reference: Sampler | None) -> list[Datum]:
    """The datums, with the reference's logprobs as input `ref_logprobs` when the loss has a KL term."""
    if not config.algorithm.kl_coef or config.algorithm.kl_in != "loss":
        return list(datums)
    scored = (reference or policy.reference()).logprobs(datums, config.rollout.temperature)
    return [replace(datum, inputs={**datum.inputs, "ref_logprobs": logprobs_T}) for datum, logprobs_T in zip(datums, scored, strict=True)]


def _check(datums: Sequence[Datum], output: StepOutput, numbers: Mapping[str, float], config: Config, exact: bool) -> None:
    if exact:
        check_on_policy(largest_deviation(datums, output), config.algorithm.on_policy_tolerance)
    limit, apart = config.algorithm.mismatch_stop, numbers.get("mismatch/mean_abs", 0.0)
    if limit and not apart <= limit:
        raise BackendError(
            f"trainer and sampler are {apart:.3g} nats apart on average, more than algorithm.mismatch_stop={limit:g}; "
            "look for the reason (weights, precision, prompts), or set algorithm.correction"
        )


def _parts(count: int, epochs: int, minibatches: int, step: int, seed: int) -> list[list[int]]:
    """Which datums each optimizer step takes: every epoch takes each once; with several parts in a fresh order that follows from the step."""
    if minibatches == 1:
        return [list(range(count))] * epochs
    parts: list[list[int]] = []
    for epoch in range(epochs):
        order = np.random.default_rng((seed, step, epoch)).permutation(count)
        parts += [sorted(int(index) for index in piece) for piece in np.array_split(order, minibatches) if len(piece)]
    return parts


def _averaged(outputs: Sequence[StepOutput]) -> dict[str, float]:
    """Metrics of several passes, averaged by their tokens."""
    if len(outputs) == 1:
        return dict(outputs[0].metrics)
    tokens = [max(output.metrics.get("num_tokens", 0.0), 1.0) for output in outputs]
    names = dict.fromkeys(name for output in outputs for name in output.metrics)
    return {name: float(np.average([output.metrics.get(name, 0.0) for output in outputs], weights=tokens)) for name in names}


def _mean(optimizers: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Means over the optimizer steps; the largest value of `skipped`, so that one skipped step is seen."""
    if len(optimizers) == 1:
        return dict(optimizers[0])
    means = {name: float(np.mean([values[name] for values in optimizers])) for name in optimizers[0]}
    return {**means, **({"skipped": max(values["skipped"] for values in optimizers)} if "skipped" in means else {})}
