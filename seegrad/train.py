"""THE LOOP: examples → groups → datums → gradient → files. It is handed its parts and knows no algorithm; torch is never imported here.

    gather(examples ─ collect ─▶ groups) ─▶ update(groups ─▶ datums ─ forward_backward · optim_step) ─▶ next version
                                    └────────── rollouts, metrics, checkpoint, eval ──────────▶ run directory

All state is the step number and the policy's own: data order, seeds and learning rate follow from the step (`schedule.py`), so a continued run is the
same run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from seegrad.accounting import Ledger, Meter
from seegrad.backends.base import Policy, Sampler
from seegrad.checkpoints import drop_old_states, step_name
from seegrad.config import Config
from seegrad.data.skipping import bad_rows_met, replaced_rows
from seegrad.evaluate import evaluate, write_images
from seegrad.gather import gather
from seegrad.metrics import Stopwatch, rollout_metrics
from seegrad.progress import Reporter
from seegrad.rollout import AdvantageFunction, Grader, Renderer, collect, give_credit
from seegrad.rundir import RunWriter, State
from seegrad.track.tracking import Tracking
from seegrad.types import Example, Group, SamplingParams
from seegrad.update import kl_penalty, score_untrained, update
from seegrad.watch import Watch

HELD_OUT = ("accuracy", "format_rate", "accuracy_given_parsable", "truncated_fraction", "mean_length", "reward")  # of EvalResult.summary


@dataclass(frozen=True)
class Pipeline:
    """What the loop runs on. `exact` says that trainer and sampler compute in float32 on one CPU, so that fresh samples must be on-policy within
    `algorithm.on_policy_tolerance`. `reference` is what a KL term compares with (None: the base)."""

    policy: Policy
    renderer: Renderer
    rewards: Grader
    advantage: AdvantageFunction
    examples: Sequence[Example]
    eval_examples: Sequence[Example] = field(default=())
    exact: bool = False
    reference: Sampler | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: `finished` after all steps, or `interrupted` by a signal after `step` whole ones. `spent`: its tokens and cost, in lines."""

    state: State
    step: int
    spent: tuple[str, ...] = ()


def train(
    pipeline: Pipeline, config: Config, run: RunWriter | None, reporter: Reporter, *, show_samples: bool = False, tracking: Tracking | None = None
) -> Outcome:
    """Take the steps of `config` that `run` has not taken yet; with `run` None nothing is written. `tracking` is told of every step.

    A step whose groups are all flat (or failed) takes no optimizer step and the version stays. Raises BackendError when fresh samples are off-policy
    beyond the tolerance, RewardError when nothing could be graded, RunError when the run directory cannot be written or continued,
    KeyboardInterrupt at the second Ctrl-C; the first one ends the run after the current step and a checkpoint.
    """
    policy, params = pipeline.policy, sampling_params(config, pipeline.renderer)
    done = 0 if run is None else restore(policy, run, reporter, config.save.keep)
    ledger = Ledger(config.cost, () if run is None else run.metrics())
    if tracking is not None:
        tracking.start(done)
    with Watch(run, done, config.steps, reporter) as watch, reporter:
        reporter.start(done, config.steps)
        for step in watch.steps():
            clock = Stopwatch()
            credit = partial(give_credit, advantage_fn=pipeline.advantage)
            asked = gather(partial(answered, pipeline, params, config), credit, pipeline.examples, config, step)
            groups = asked.groups
            for line in bad_rows_met(pipeline.examples):
                reporter.note(f"step {step}: {line}")
            clock.lap("sample")
            untrained = {} if run is None else score_untrained(groups, policy, config)
            trained = update(policy, groups, config, step, reference=pipeline.reference, exact=pipeline.exact)
            clock.lap("train")
            for line in trained.notes:
                reporter.note(f"step {step}: {line}")
            metrics = {**rollout_metrics(groups), **asked.metrics, **trained.metrics, **replaced_rows(pipeline.examples, asked.positions)}
            if config.eval.every and step % config.eval.every == 0:
                metrics.update(held_out(pipeline, config, run, step))
                clock.lap("eval")
            metrics.update({**ledger.add(metrics), **clock.times(metrics["tokens/sampled"])})
            if run is not None:
                run.write_step(step, groups, {**untrained, **trained.traces}, metrics)
            tell(reporter, step, groups, metrics, show_samples)
            if tracking is not None:
                tracking.step(step, groups, metrics)
            if (watch.is_last(step) or (config.save.every and step % config.save.every == 0)) and run is not None:
                with run.checkpoint(step, config.save.keep) as checkpoint:
                    policy.save_weights(checkpoint.weights)
                    policy.save_state(checkpoint.state)
    return Outcome(watch.state, watch.done, tuple(ledger.lines()))


def restore(policy: Policy, run: RunWriter, reporter: Reporter, keep: int) -> int:
    """Bring the policy to the newest whole checkpoint, cut what lies after it and drop all but `keep` states; returns its step (0: a new run, or
    none was written yet)."""
    checkpoint, warnings = run.resume_point()
    for warning in warnings:
        reporter.note(f"warning: {warning}")
    step = 0 if checkpoint is None else checkpoint.step
    if checkpoint is not None:
        policy.load_state(checkpoint.state)
    if run.resumed:
        reporter.note(f"continuing {run.path} after step {step}" + ("" if step else " (no checkpoint was written yet)"))
    run.cut(step)
    drop_old_states(run.path / "checkpoints", keep)
    return step


def sampling_params(config: Config, renderer: Renderer) -> SamplingParams:
    """How the rollouts of a run are sampled; seeds come per question."""
    rollout = config.rollout
    return SamplingParams(rollout.max_tokens, rollout.temperature, rollout.top_p, rollout.top_k, rollout.stop, renderer.stop_token_ids)


def answered(pipeline: Pipeline, params: SamplingParams, config: Config, examples_P: Sequence[Example], seeds_P: Sequence[int]) -> list[Group]:
    """One group for each example, sampled by the current weights."""
    parts = (pipeline.renderer, pipeline.rewards, pipeline.advantage)
    adjust = kl_penalty(pipeline.policy, config, pipeline.reference)
    return collect(pipeline.policy.sampler(), *parts, examples_P, params, config.rollout.group_size, seeds_P, adjust=adjust)


def held_out(pipeline: Pipeline, config: Config, run: RunWriter | None, step: int) -> dict[str, float]:
    """Evaluation of the current weights, greedy unless told; every answer is kept in eval/step-….json, the rates become metrics `eval/…`."""
    settings, name = config.eval, step_name(step)
    examples = pipeline.eval_examples[: settings.num_items]
    params = sampling_params(config, pipeline.renderer)
    params = replace(params, temperature=settings.temperature, max_tokens=settings.max_tokens or params.max_tokens)
    params = params if settings.temperature else replace(params, top_p=1.0, top_k=0)
    meter = Meter(pipeline.policy.sampler())
    result = evaluate(
        meter,
        pipeline.renderer,
        pipeline.rewards,
        examples,
        params,
        num_samples=settings.samples,
        batch_size=settings.batch_size,
        name=name,
        dataset=config.data.name,
        split=settings.split,
        model=config.model.base,
    )
    if run is not None:
        write_images(examples, run.path / "images")
        result.to_json(run.eval_path(name))
    summary = result.summary
    return {**{f"eval/{key}": summary[key]["estimate"] for key in HELD_OUT if summary[key] is not None}, **meter.metrics()}


def tell(reporter: Reporter, step: int, groups: Sequence[Group], metrics: Mapping[str, float], show_samples: bool) -> None:
    """What a person should know of a step, beyond its line: answers when asked for, failed graders, no gradient, a skipped one."""
    if show_samples:
        reporter.samples(groups)
    errors = [rollout.error for group in groups for rollout in group.rollouts_G if rollout.error is not None]
    if errors:
        total = sum(len(group.rollouts_G) for group in groups)
        alarm = "warning: most of this step is lost: " if 2 * len(errors) > total else ""
        reporter.note(f"step {step}: {alarm}{len(errors)} of {total} answers could not be graded and were left out; the first: {errors[0]}")
    if metrics["train_datums"] == 0:
        flat = all(group.is_flat for group in groups)
        why = "are flat (equal rewards within each)" if flat else "give no credit to an answer that may be trained on"
        reporter.note(f"step {step}: all {len(groups)} groups {why}: nothing to learn from, no update")
    if metrics.get("trainer/skipped"):
        reporter.note(f"step {step}: the gradient is not finite: update skipped")
    reporter.step(step, metrics)
