"""Graders that can hang."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from seegrad import registry
from seegrad.rewards.calling import Part, Verdict
from seegrad.types import Answer, Example

CAN_HANG = frozenset({"math"})  # registered rewards that may take forever on some texts


def can_hang(name: str) -> bool:
    """Whether a part may take forever: every function of the user's own, and those registered ones that are in the table."""
    return name in CAN_HANG or name not in registry.TABLE["reward"]


@dataclass(slots=True)
class Job:
    """All answers of one group for one part; `verdicts` is filled in, in the order of `answers`."""

    part: Part
    example: Example
    answers: Sequence[Answer]
    verdicts: list[Verdict] = field(default_factory=list)


class Pool:
    """Runs jobs."""

    def __init__(self, workers: int, timeout: float) -> None:
        self.workers, self.timeout = workers, timeout

    def run(self, jobs: Sequence[Job]) -> None:
        """Fill in the verdicts of all jobs."""
        from seegrad.rewards.asynchronous import LoopThread

        loop = LoopThread(self.timeout)
        loop.run(jobs)
        loop.close()

    def close(self) -> None:
        """End the workers."""
