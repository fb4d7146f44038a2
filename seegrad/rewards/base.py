"""Several graders, one reward: the weighted sum of the parts that a config names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from seegrad.errors import UsageError, nearest
from seegrad.rewards.asynchronous import LoopThread
from seegrad.rewards.calling import Job, Part, Verdict, load_part
from seegrad.rewards.isolated import Pool, can_hang
from seegrad.types import Answer, Example


class Grade(NamedTuple):
    """What the graders say of one answer; `error` names a grader that failed, and then `reward` is 0 and means nothing."""

    scores: dict[str, float]
    reward: float
    parsed: str | None
    correct: bool
    error: str | None


class Rewards:
    """The reward parts of a run, loaded once; `docs/rewards.md` says what a part may be.

    `settings` are keyword arguments by part; `minimum` and `maximum` clip the weighted sum. With `isolate`, parts that can hang run in `workers`
    processes of their own, in which a call ends after `timeout` seconds. They start when they are first needed and end with `close`, or with this
    process, however it ends. May be used from several threads.
    Raises UsageError for an unknown name, a file that does not load, a setting that a part does not take, or a weight that is not finite.

    >>> Rewards({"count": 1.0, "format": 0.2}).grade(Example("a", "?", "3"), "1+2=3, \\\\boxed{3}").reward
    1.2
    """

    def __init__(
        self,
        parts: Mapping[str, float],
        *,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        minimum: float | None = None,
        maximum: float | None = None,
        isolate: bool = True,
        workers: int = 2,
        timeout: float = 30.0,
    ) -> None:
        if not parts:
            raise UsageError("reward.parts is empty; name at least one reward, for example reward.parts.count=1")
        self.parts: dict[str, float] = dict(parts)
        self.minimum, self.maximum = _bounds(minimum, maximum)
        settings = settings or {}
        for name in settings:
            if name not in self.parts:
                raise UsageError(f"reward.settings.{name}: there is no reward part {name!r}{nearest(name, self.parts)}")
        self._parts: list[Part] = []
        for name, weight in self.parts.items():
            if not math.isfinite(weight):
                raise UsageError(f"reward {name!r} has weight {weight}, expected a finite number")
            self._parts.append(load_part(name, settings.get(name, {})))
        self._isolated = {part.name for part in self._parts if isolate and can_hang(part.name)}
        self._pool = Pool(workers, timeout)
        self._loop = LoopThread(timeout)

    def grade(self, example: Example, answer: str | Answer) -> Grade:
        """Grade one answer with every part. A group function gets a group of one.

        `parsed` and `correct` come from the first part that says whether the answer is right. When none does, `parsed` comes from the first that
        returns a Score (else it is the text), and an answer is correct when the first part gives at least 1. A part that raises, hangs, or returns
        anything but a finite number or a Score, is an error and never a score of 0.
        """
        return self.grade_groups([(example, [answer])])[0][0]

    def grade_groups(self, groups: Sequence[tuple[Example, Sequence[str | Answer]]]) -> list[list[Grade]]:
        """Grade all answers of every group; the result has the shape of `groups`. Parts in workers run side by side."""
        asked = [(example, [answer if isinstance(answer, Answer) else Answer(answer) for answer in answers]) for example, answers in groups]
        jobs = [Job(part, example, answers) for part in self._parts for example, answers in asked if answers]
        self._pool.run([job for job in jobs if job.part.name in self._isolated])
        self._loop.run([job for job in jobs if job.part.name not in self._isolated])
        done = iter(jobs)
        verdicts = {part.name: [next(done).verdicts if answers else [] for _, answers in asked] for part in self._parts}
        return [
            [self._grade(example, answer, {name: verdicts[name][row][column] for name in self.parts}) for column, answer in enumerate(answers)]
            for row, (example, answers) in enumerate(asked)
        ]

    def close(self) -> None:
        """End the workers. They start again when they are needed again."""
        self._pool.close()
        self._loop.close()

    def __enter__(self) -> Rewards:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _grade(self, example: Example, answer: Answer, verdicts: Mapping[str, Verdict]) -> Grade:
        errors = [verdict.error for verdict in verdicts.values() if verdict.error is not None]
        valid = {name: verdict for name, verdict in verdicts.items() if verdict.error is None}
        scores = {name: verdict.value for name, verdict in valid.items()}
        parsed, correct = self._opinion(valid, answer.text)
        reward = sum(self.parts[name] * value for name, value in scores.items())
        if not math.isfinite(reward):
            errors.append(f"the weighted sum of {scores} is not a finite number (sample {example.id!r})")
        if errors:
            return Grade(scores, 0.0, parsed, False, "; ".join(errors))
        return Grade(scores, min(max(reward, self.minimum), self.maximum), parsed, correct, None)

    def _opinion(self, verdicts: Mapping[str, Verdict], text: str) -> tuple[str | None, bool]:
        opinions = [verdict for verdict in verdicts.values() if verdict.judges]
        for opinion in opinions:
            if opinion.correct is not None:
                return opinion.parsed, opinion.correct
        first = next(iter(self.parts))
        return (opinions[0].parsed if opinions else text), first in verdicts and verdicts[first].value >= 1


def _bounds(minimum: float | None, maximum: float | None) -> tuple[float, float]:
    low, high = -math.inf if minimum is None else minimum, math.inf if maximum is None else maximum
    if math.isnan(low) or math.isnan(high) or low > high:
        raise UsageError(f"reward.minimum is {minimum} and reward.maximum {maximum}, expected minimum ≤ maximum")
    return low, high
