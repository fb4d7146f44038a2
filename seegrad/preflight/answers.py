"""A few real answers: what every reward part gives them, whether the base beats chance, and how many groups would teach nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seegrad.backends.base import Sampler
from seegrad.preflight.check import Check
from seegrad.preflight.flatness import expected_flat
from seegrad.preflight.grading import Grades, most_frequent
from seegrad.statistics import Interval, bootstrap_mean, wilson
from seegrad.types import Answer, Completion, Example, ModelInput, SamplingParams

TOO_FLAT, TOO_CUT, TOO_UNREADABLE = 0.5, 0.1, 0.5  # shares from which a remark is made
_RESAMPLES = 2_000


@dataclass(frozen=True, slots=True)
class Sampled:
    """Answers to some examples with their grades: (scores by part, reward, parsed, correct, error)."""

    examples: tuple[Example, ...]
    completions_PG: tuple[tuple[Completion, ...], ...]
    grades_PG: tuple[tuple[Any, ...], ...]

    @property
    def grades(self) -> list[Any]:
        """Of all answers that could be graded."""
        return [grade for grades_G in self.grades_PG for grade in grades_G if grade[4] is None]

    @property
    def rewards_PG(self) -> list[list[float]]:
        return [[float(grade[1]) for grade in grades_G if grade[4] is None] for grades_G in self.grades_PG]

    def scores(self, part: str) -> list[float]:
        return [float(grade[0][part]) for grade in self.grades]


def sample_answers(
    sampler: Sampler, rewards: Grades, examples: Sequence[Example], prompts: Sequence[ModelInput], params: SamplingParams, num_samples: int
) -> Sampled:
    """`num_samples` answers to each example, graded as in a run."""
    completions_PG = sampler.sample(prompts, params, num_samples, seeds_P=range(len(prompts)))
    answers = [[Answer(one.text, len(one.tokens_T), one.stop_reason == "length") for one in completions_G] for completions_G in completions_PG]
    grades_PG = rewards.grade_groups(list(zip(examples, answers, strict=True)))
    return Sampled(tuple(examples), tuple(map(tuple, completions_PG)), tuple(map(tuple, grades_PG)))


def check_answers(sampled: Sampled, golds: Sequence[Example], max_tokens: int, group_size: int) -> Iterator[Check]:
    """What the answers say. `golds` are all rows that were scanned, for the chance level; `group_size` is the run's own."""
    errors = [str(grade[4]) for grades_G in sampled.grades_PG for grade in grades_G if grade[4] is not None]
    total = sum(map(len, sampled.grades_PG))
    if errors:
        detail = f"{len(errors)} of {total} could not be graded; the first: {errors[0]}"
        yield Check("graders", False, detail, "repair that grader: such an answer has no reward and is not trained on", {"errors": len(errors)})
    if not sampled.grades:
        return
    yield _rates(sampled, max_tokens)
    yield _parts(sampled)
    yield _chance(sampled, golds)
    yield _flat(sampled, group_size)


def _rates(sampled: Sampled, max_tokens: int) -> Check:
    grades = sampled.grades
    completions = [one for completions_G in sampled.completions_PG for one in completions_G]
    correct = wilson(sum(bool(grade[3]) for grade in grades), len(grades))
    readable = wilson(sum(grade[2] is not None for grade in grades), len(grades))
    cut = wilson(sum(one.stop_reason == "length" for one in completions), len(completions))
    lengths = [len(one.tokens_T) for one in completions]
    facts = {
        "answers": len(grades),
        "correct": correct.estimate,
        "format_rate": readable.estimate,
        "truncated_fraction": cut.estimate,
        "mean_length": float(np.mean(lengths)),
    }
    detail = (
        f"{len(grades)} answers to {len(sampled.examples)} questions: {correct.estimate:.0%} correct, {readable.estimate:.0%} readable, "
        f"{cut.estimate:.0%} cut at {max_tokens} tokens, {np.mean(lengths):.0f} tokens on average"
    )
    changes = []
    if readable.estimate < TOO_UNREADABLE:
        changes.append(
            "say in the prompt in which form to answer (data.system_prompt, data.template), or take a grader that reads what the model writes"
        )
    if cut.estimate > TOO_CUT:
        changes.append(f"raise rollout.max_tokens (now {max_tokens}): an answer that is cut can rarely be right")
    return Check("answers", None if changes else True, detail, "; ".join(changes), facts)


def _parts(sampled: Sampled) -> Check:
    """A part that is 0 for every answer is named: it is what a model that is never asked for a form gets from a grader of that form."""
    names = list(sampled.grades[0][0])
    means = {name: float(np.mean(sampled.scores(name))) for name in names}
    shown = ", ".join(f"{name} {value:.2f}" for name, value in means.items())
    zero = [name for name in names if not any(sampled.scores(name))]
    constant = [name for name in names if name not in zero and len(set(sampled.scores(name))) == 1]
    facts = {"mean_by_part": means, "always_zero": zero, "constant": constant}
    detail = f"mean of each: {shown}"
    detail += f"; 0 for all {len(sampled.grades)} answers: {', '.join(zero)}" if zero else ""
    detail += f"; the same for all: {', '.join(constant)}" if constant else ""
    if not zero:
        return Check("reward parts", True, detail, facts=facts)
    named = ", ".join(zero)
    change = f"ask for what {named} looks for in the prompt (data.system_prompt, data.template), or leave it out (reward.parts)"
    return Check("reward parts", None, detail, f"{change}; look at the answers: seegrad sample", facts)


def chance_level(examples: Sequence[Example]) -> tuple[float, str]:
    """(share that guessing gets right, how it guesses): one of the choices where every gold is a letter, else always the most frequent gold."""
    lettered = [row for row in examples if row.choices and row.answer.strip().upper() in _letters(len(row.choices))]
    if len(lettered) == len(examples):
        return float(np.mean([1 / len(row.choices) for row in lettered])), "one of the choices at random"
    answer, share = most_frequent([row.answer for row in examples])
    return share, f"always {answer!r}, the most frequent gold of {len(examples):,}"


def _letters(number: int) -> list[str]:
    return [chr(ord("A") + index) for index in range(min(number, 26))]


def _chance(sampled: Sampled, golds: Sequence[Example]) -> Check:
    level, how = chance_level(golds)
    rates = [float(np.mean([bool(grade[3]) for grade in grades_G if grade[4] is None])) for grades_G in sampled.grades_PG if _graded(grades_G)]
    accuracy = bootstrap_mean(rates, num_resamples=_RESAMPLES)
    facts = {"chance": level, "accuracy": accuracy.estimate, "low": accuracy.low, "high": accuracy.high}
    detail = f"guessing ({how}) gets {level:.1%}, the base {_percent(accuracy)}"
    if accuracy.low > level:
        return Check("chance", True, f"{detail}: above chance", facts=facts)
    if accuracy.high < level:
        change = "see what it says: seegrad sample; a base below chance mostly does not answer in the form that is read"
        return Check("chance", None, f"{detail}: below chance", change, facts)
    change = "look at more rows (--num-items), or start from a base that can do some of it: what is never right by more than luck teaches little"
    return Check("chance", None, f"{detail}: not to be told from chance with {len(rates)} questions", change, facts)


def _flat(sampled: Sampled, group_size: int) -> Check:
    rewards_PG = [rewards_G for rewards_G in sampled.rewards_PG if rewards_G]
    seen = sum(len(set(rewards_G)) == 1 for rewards_G in rewards_PG)
    share, doubled = expected_flat(rewards_PG, group_size), expected_flat(rewards_PG, 2 * group_size).estimate
    facts = {
        "expected": share.estimate,
        "low": share.low,
        "high": share.high,
        "at_twice_the_group_size": doubled,
        "group_size": group_size,
        "flat": seen,
    }
    num = max(map(len, rewards_PG))
    detail = (
        f"about {_percent(share)} of groups of {group_size} will have equal rewards and teach nothing (Dirichlet-multinomial over {len(rewards_PG)} "
        f"questions × {num} answers; {seen} of these are flat)"
    )
    if len({reward for rewards_G in rewards_PG for reward in rewards_G}) == 1:
        detail += "; no group has two different rewards: there is nothing to learn from"
        return Check("flat groups", None, detail, "try another reward, model or prompt", facts)
    if share.estimate <= TOO_FLAT:
        return Check("flat groups", True, detail, facts=facts)
    correct = float(np.mean([bool(grade[3]) for grade in sampled.grades]))
    change = f"rollout.group_size={2 * group_size} (about {doubled:.0%} then)"
    if correct > 0.8:
        change += ", or harder questions: most answers are right already"
    elif correct < 0.2:
        change += ", or easier questions, a clearer prompt, or a part that gives some credit on the way: most answers are wrong"
    else:
        change += ", or a part with more than two values"
    return Check("flat groups", None, detail, change, facts)


def _graded(grades_G: Sequence[Any]) -> bool:
    return any(grade[4] is None for grade in grades_G)


def _percent(interval: Interval) -> str:
    return f"{interval.estimate:.0%} [{interval.low:.0%}, {interval.high:.0%}]"
