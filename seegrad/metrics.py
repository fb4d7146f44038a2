"""From one step's groups and training output to the numbers of metrics.jsonl. docs/run-directory.md lists every name."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from seegrad.accounting import image_tokens
from seegrad.errors import BackendError, RewardError
from seegrad.types import Datum, Group, StepOutput


def rollout_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Rates and means over the attempts that were graded, and token counts. Raises RewardError when not one attempt could be graded."""
    rollouts = [rollout for group in groups for rollout in group.rollouts_G]
    graded = [rollout for rollout in rollouts if rollout.error is None]
    if not graded:
        raise RewardError(f"not one of {len(rollouts)} answers of this step could be graded; the first: {rollouts[0].error}")
    parts = dict.fromkeys(name for rollout in graded for name in rollout.scores)
    lengths = [len(rollout.completion.tokens_T) for rollout in rollouts]
    return {
        "reward": _mean([rollout.reward for rollout in graded]),
        **{f"reward/{name}": _mean([rollout.scores[name] for rollout in graded if name in rollout.scores]) for name in parts},
        "format_rate": _mean([rollout.parsed is not None for rollout in graded]),
        "accuracy": _mean([rollout.correct for rollout in graded]),
        "degenerate_fraction": _mean([group.is_flat for group in groups]),
        "rollout/completion_tokens_mean": _mean(lengths),
        "rollout/truncated_fraction": _mean([rollout.completion.stop_reason == "length" for rollout in rollouts]),
        "rollout/errors": float(len(rollouts) - len(graded)),
        **{f"rollout/errors/{name}": float(count) for name in parts if (count := sum(name not in rollout.scores for rollout in rollouts))},
        **_prompt_tokens(groups),
        "tokens/sampled": float(sum(lengths)),
    }


def trainer_metrics(datums: Sequence[Datum], output: StepOutput | None, optimizer: Mapping[str, float], learning_rate: float) -> dict[str, float]:
    """What the training half of a step did; only counts and the learning rate when there was nothing to train on."""
    metrics = {"train_datums": float(len(datums)), "trainer/learning_rate": learning_rate, "tokens/trained": 0.0, "tokens/trained_sequence": 0.0}
    if output is None:
        return metrics
    entropy = np.concatenate([entropy_T[datum.active_T] for entropy_T, datum in zip(output.entropy_D, datums, strict=True)])
    return {
        **metrics,
        "trainer/entropy": float(entropy.mean()) if len(entropy) else 0.0,
        **{f"trainer/{name}": float(value) for name, value in (*output.metrics.items(), *optimizer.items())},
        "trainer/ratio_max_deviation": largest_deviation(datums, output),
        "tokens/trained": float(len(entropy)),
        "tokens/trained_sequence": float(sum(map(len, datums))),
    }


def largest_deviation(datums: Sequence[Datum], output: StepOutput) -> float:
    """Largest |trainer − sampler| logprob (nats) over all trained tokens; 0 when the trainer sees exactly what the sampler saw."""
    gaps = [np.abs(logprobs_T - datum.inputs["logprobs"])[datum.active_T] for datum, logprobs_T in zip(datums, output.logprobs_D, strict=True)]
    return float(np.concatenate(gaps).max(initial=0.0)) if gaps else 0.0


def check_on_policy(deviation: float, tolerance: float) -> None:
    """Raises BackendError naming both numbers when fresh samples are not on-policy. (`not <=` so that NaN is refused too.)"""
    if not deviation <= tolerance:
        raise BackendError(
            f"trainer and sampler disagree: largest |trainer - sampler| logprob is {deviation:.3g}, expected at most {tolerance:.3g} "
            "(algorithm.on_policy_tolerance); raise the tolerance only when you know why they differ"
        )


class Stopwatch:
    """Wall time of the stages of one step, in seconds.

    >>> sorted(Stopwatch().times(0.0))
    ['time/step', 'tokens_per_second']
    """

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self._laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """Everything since the last lap was `name`."""
        now = time.perf_counter()
        self._laps[f"time/{name}"] = now - self._last
        self._last = now

    def times(self, num_sampled: float) -> dict[str, float]:
        """All laps, the whole step so far, and sampled tokens per second of the whole step."""
        whole = time.perf_counter() - self._start
        return {**self._laps, "time/step": whole, "tokens_per_second": num_sampled / max(whole, 1e-9)}


def _prompt_tokens(groups: Sequence[Group]) -> dict[str, float]:
    """Prompts counted once per group, pictures apart from text; and once per attempt."""
    whole = sum(len(group.model_input) for group in groups)
    image = sum(image_tokens(group.model_input) for group in groups)
    repeated = sum(len(group.model_input) * len(group.rollouts_G) for group in groups)
    names = ("tokens/prefill", "tokens/prefill_image", "tokens/prefill_text", "tokens/prefill_per_answer")
    return dict(zip(names, map(float, (whole, image, whole - image, repeated)), strict=True))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 0.0
