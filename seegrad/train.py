"""THE LOOP: examples → groups → datums → gradient → files. It is handed its parts and knows no algorithm; torch is never imported here.

    question_positions ─▶ examples_P ─ collect ─▶ groups ─ to_datums ─▶ datums ─ forward_backward · optim_step ─▶ next version
                                                    └────────── rollouts, metrics, checkpoint, eval ──────────▶ run directory

All state is the step number and the policy's own: data order, seeds and learning rate follow from the step (`schedule.py`), so a continued run is the
same run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from seegrad.accounting import Ledger, Meter
from seegrad.backends.base import Policy
from seegrad.batch import to_datums
from seegrad.checkpoints import step_name
from seegrad.config import Config
from seegrad.data.skipping import bad_rows_met, replaced_rows
from seegrad.evaluate import evaluate, write_images
from seegrad.metrics import Stopwatch, check_on_policy, largest_deviation, rollout_metrics, trainer_metrics
from seegrad.progress import Reporter
from seegrad.rollout import AdvantageFunction, Grader, Renderer, collect
from seegrad.rundir import RunWriter, State, TokenTrace
from seegrad.schedule import adam_params, question_positions, sampling_seeds
from seegrad.track.tracking import Tracking
from seegrad.types import Datum, Example, Group, LossSpec, SamplingParams, StepOutput
from seegrad.watch import Watch

HELD_OUT = ("accuracy", "format_rate", "accuracy_given_parsable", "truncated_fraction", "mean_length", "reward")  # of EvalResult.summary


@dataclass(frozen=True)
class Pipeline:
    """What the loop runs on. `exact` says that trainer and sampler compute in float32 on one CPU, so that fresh samples must be on-policy within
    `algorithm.on_policy_tolerance`."""

    policy: Policy
    renderer: Renderer
    rewards: Grader
    advantage: AdvantageFunction
    examples: Sequence[Example]
    eval_examples: Sequence[Example] = field(default=())
    exact: bool = False


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
    policy, renderer, rewards, settings = pipeline.policy, pipeline.renderer, pipeline.rewards, config.rollout
    params = sampling_params(config, renderer)
    done = 0 if run is None else restore(policy, run, reporter)
    ledger = Ledger(config.cost, () if run is None else run.metrics())
    if tracking is not None:
        tracking.start(done)
    with Watch(run, done, config.steps, reporter) as watch, reporter:
        reporter.start(done, config.steps)
        for step in watch.steps():
            clock = Stopwatch()
            positions = question_positions(len(pipeline.examples), settings.questions_per_step, step, config.seed)
            examples_P = [pipeline.examples[position] for position in positions]
            seeds_P = sampling_seeds(len(examples_P), step, config.seed)
            for line in bad_rows_met(pipeline.examples):
                reporter.note(f"step {step}: {line}")
            groups = collect(policy.sampler(), renderer, rewards, pipeline.advantage, examples_P, params, settings.group_size, seeds_P)
            clock.lap("sample")
            datums, places = to_datums(groups)
            datums = with_reference(datums, policy, config)
            untrained = {} if run is None else score_untrained(groups, policy, config)
            adam, output, optimizer = adam_params(config, step), None, {}
            if datums:
                output = policy.forward_backward(datums, loss_spec(config))
                if pipeline.exact:
                    check_on_policy(largest_deviation(datums, output), config.algorithm.on_policy_tolerance)
                optimizer = dict(policy.optim_step(adam))
            clock.lap("train")
            metrics = {**rollout_metrics(groups), **trainer_metrics(datums, output, optimizer, adam.learning_rate)}
            metrics.update(replaced_rows(pipeline.examples, positions))
            if config.eval.every and step % config.eval.every == 0:
                metrics.update(held_out(pipeline, config, run, step))
                clock.lap("eval")
            metrics.update({**ledger.add(metrics), **clock.times(metrics["tokens/sampled"])})
            if run is not None:
                run.write_step(step, groups, {**untrained, **traces(datums, places, output)}, metrics)
            tell(reporter, step, groups, metrics, show_samples)
            if tracking is not None:
                tracking.step(step, groups, metrics)
            if (watch.is_last(step) or (config.save.every and step % config.save.every == 0)) and run is not None:
                with run.checkpoint(step, config.save.keep) as checkpoint:
                    policy.save_weights(checkpoint.weights)
                    policy.save_state(checkpoint.state)
    return Outcome(watch.state, watch.done, tuple(ledger.lines()))


def restore(policy: Policy, run: RunWriter, reporter: Reporter) -> int:
    """Bring the policy to the newest whole checkpoint and cut what lies after it; returns its step (0: a new run, or none was written yet)."""
    checkpoint, warnings = run.resume_point()
    for warning in warnings:
        reporter.note(f"warning: {warning}")
    step = 0 if checkpoint is None else checkpoint.step
    if checkpoint is not None:
        policy.load_state(checkpoint.state)
    if run.resumed:
        reporter.note(f"continuing {run.path} after step {step}" + ("" if step else " (no checkpoint was written yet)"))
    run.cut(step)
    return step


def sampling_params(config: Config, renderer: Renderer) -> SamplingParams:
    """How the rollouts of a run are sampled; seeds come per question."""
    rollout = config.rollout
    return SamplingParams(rollout.max_tokens, rollout.temperature, rollout.top_p, rollout.top_k, rollout.stop, renderer.stop_token_ids)


def loss_spec(config: Config) -> LossSpec:
    """The loss of a run; the trainer divides logits by the temperature that the sampler used."""
    algorithm = config.algorithm
    terms = {"kl_coef": algorithm.kl_coef, "entropy_coef": algorithm.entropy_coef}
    return LossSpec(
        algorithm.loss,
        {**algorithm.loss_config, **{name: value for name, value in terms.items() if value}},
        algorithm.reduction,
        temperature=config.rollout.temperature,
        length=config.rollout.max_tokens,
        kl_estimator=algorithm.kl_estimator,
    )


def with_reference(datums: Sequence[Datum], policy: Policy, config: Config) -> list[Datum]:
    """The datums, with the base model's logprobs as input `ref_logprobs` when the loss has a KL term."""
    if not config.algorithm.kl_coef or not datums:
        return list(datums)
    scored = policy.reference().logprobs(datums, config.rollout.temperature)
    return [replace(datum, inputs={**datum.inputs, "ref_logprobs": logprobs_T}) for datum, logprobs_T in zip(datums, scored, strict=True)]


def traces(datums: Sequence[Datum], places: Sequence[tuple[int, int]], output: StepOutput | None) -> dict[tuple[int, int], TokenTrace]:
    """The trainer's logprobs and entropies of each completion that was trained on, by (group, attempt)."""
    if output is None:
        return {}
    rows = zip(datums, places, output.logprobs_D, output.entropy_D, strict=True)
    return {place: (logprobs_T[datum.active_T], entropy_T[datum.active_T]) for datum, place, logprobs_T, entropy_T in rows}


def score_untrained(groups: Sequence[Group], policy: Policy, config: Config) -> dict[tuple[int, int], TokenTrace]:
    """The same numbers, at the same weights and without a gradient, for the completions that are not trained on: flat groups, failed graders."""
    datums, places = to_datums(groups, trained=False)
    plain = LossSpec("importance_sampling", temperature=config.rollout.temperature)
    return traces(datums, places, policy.forward(datums, plain) if datums else None)


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
        reporter.note(f"step {step}: all {len(groups)} groups are flat (equal rewards within each): nothing to learn from, no update")
    if metrics.get("trainer/skipped"):
        reporter.note(f"step {step}: the gradient is not finite: update skipped")
    reporter.step(step, metrics)
