"""The questions of a step: sampled, and with `rollout.dynamic_sampling` the flat groups replaced by other questions, a bounded number of times.

    question_positions ─▶ collect ─▶ groups ─┬─ with credit ─────────────────────────────▶ trained
                              ▲              └─ flat ─ how many? ─ extra_positions ─┐      (kept, counted, not trained)
                              └─────────────────────────────────────────────────────┘

Credit is given again over all groups when questions were added, because an advantage may look at the whole step.

Rows and seeds follow from the step and the number of the try, so a continued run gathers the same groups.
Source: dynamic sampling of DAPO (arXiv 2503.14476), section 3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seegrad.batch import has_credit
from seegrad.config import Config
from seegrad.schedule import extra_positions, question_positions, sampling_seeds
from seegrad.types import Example, Group

Collect = Callable[[Sequence[Example], Sequence[int]], list[Group]]  # examples_P, seeds_P → groups
Credited = Callable[[Sequence[Group]], list[Group]]  # the same groups with advantages over all of them


@dataclass(frozen=True, slots=True)
class Gathered:
    """All groups of a step in the order in which they were asked, and their rows."""

    groups: list[Group]
    positions: list[int]
    metrics: dict[str, float]


def gather(collect: Collect, credit: Credited, examples: Sequence[Example], config: Config, step: int) -> Gathered:
    """Ask the questions of step `step`. A group without credit is flat, or its graders failed, or all that carries its credit was cut and is masked
    (`algorithm.mask_truncated`).

    Metrics, with dynamic sampling on: `rollout/resampled_groups` (groups asked beyond the first `questions_per_step`) and
    `rollout/groups_with_credit`.
    """
    settings, masked = config.rollout, config.algorithm.mask_truncated
    positions = question_positions(len(examples), settings.questions_per_step, step, config.seed)
    groups = _ask(collect, examples, positions, sampling_seeds(len(positions), step, config.seed))
    for attempt in range(1, settings.dynamic_sampling + 1):
        missing = settings.questions_per_step - _num_with_credit(groups, masked)
        if not missing:
            break
        more = extra_positions(len(examples), missing, step, config.seed, attempt)
        groups += _ask(collect, examples, more, sampling_seeds(missing, step, config.seed, first=len(groups)))
        positions += more
    if len(groups) > settings.questions_per_step:
        groups = credit(groups)
    metrics = {}
    if settings.dynamic_sampling:
        metrics = {
            "rollout/resampled_groups": float(len(groups) - settings.questions_per_step),
            "rollout/groups_with_credit": float(_num_with_credit(groups, masked)),
        }
    return Gathered(groups, positions, metrics)


def _num_with_credit(groups: Sequence[Group], mask_truncated: bool) -> int:
    return sum(has_credit(group, mask_truncated) for group in groups)


def _ask(collect: Collect, examples: Sequence[Example], positions: Sequence[int], seeds_P: Sequence[int]) -> list[Group]:
    return collect([examples[position] for position in positions], seeds_P)
