"""What a tracker is: four calls, and what they are told. An adapter's package is imported in `start`, in the tracker's own process.

Tracking (the run's process) ─ pipe ─▶ worker.py (one process per tracker) ─▶ Adapter ─▶ swanlab · wandb · tensorboard · trackio
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:  # a tracker's process starts quickly: it imports neither numpy nor the settings
    from seegrad.rundir import State

# tracker: the package to import, and its adapter. The name is also that of the extra that installs it.
ADAPTERS: Mapping[str, tuple[str, str]] = {
    "swanlab": ("swanlab", "seegrad.track.swanlab:SwanLab"),
    "wandb": ("wandb", "seegrad.track.wandb:WeightsAndBiases"),
    "tensorboard": ("tensorboard", "seegrad.track.tensorboard:TensorBoard"),
    "trackio": ("trackio", "seegrad.track.trackio:Trackio"),
}


@dataclass(frozen=True, slots=True)
class Start:
    """What an adapter needs to open a tracker's run. `folder` is where its files go; `id` is the same whenever the run is continued (`resumed`);
    `done` steps are finished; `process` is the one that trains."""

    project: str
    name: str
    config: Mapping[str, Any]
    folder: Path
    offline: bool
    id: str
    resumed: bool = False
    done: int = 0
    process: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer, to be looked at: PNG pictures, what was asked, what is right, what was said and how it was graded."""

    images: tuple[bytes, ...]
    id: str
    question: str
    gold: str
    answer: str
    reward: float
    advantage: float
    correct: bool
    scores: str

    @property
    def caption(self) -> str:
        """Everything but the picture, in short lines."""
        return f"{self.id}\n{self.question}\ngold: {self.gold}\nreward {self.reward:g}  advantage {self.advantage:+.3f}\n{self.answer}"


COLUMNS = ("id", "question", "gold", "answer", "reward", "advantage", "correct", "scores")  # of a table of samples, beside the picture


class Adapter(Protocol):
    """One tracker. Any exception that a call raises is counted and told; it never reaches the run."""

    rewinds: bool  # whether `start` takes back the points after `done`; else steps that were sent once are not sent again

    def start(self, start: Start) -> str:
        """Open the tracker's run, or continue it; returns where it can be looked at: an address or a folder."""
        ...

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """The finite numbers of one step under their own names. Steps come in order."""
        ...

    def samples(self, step: int, rows: Sequence[Sample]) -> None:
        """Some answers of a step that was logged just before."""
        ...

    def finish(self, state: State, message: str) -> None:
        """Close the tracker's run; everything is written or sent afterwards."""
        ...


@dataclass(frozen=True, slots=True)
class Message:
    """What goes through the pipe to a tracker's process. `content`: Start; metrics; samples; (state, message)."""

    kind: Literal["start", "log", "samples", "finish"]
    step: int
    content: Any
