"""What a person sees of a run: a progress bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, Self, TextIO

from seegrad.types import Group

# metric, label, format: in the order shown
COLUMNS = (
    ("reward", "reward", "{:.3f}"),
    ("accuracy", "accuracy", "{:.3f}"),
    ("format_rate", "format", "{:.2f}"),
    ("degenerate_fraction", "flat", "{:.2f}"),
    ("rollout/completion_tokens_mean", "length", "{:.1f}"),
    ("rollout/truncated_fraction", "cut", "{:.2f}"),
    ("trainer/kl", "kl", "{:.4f}"),
    ("trainer/grad_norm", "grad", "{:.3f}"),
    ("tokens_per_second", "tok/s", "{:.0f}"),
    ("cost/total", "cost", "{:.2f}"),
    ("eval/accuracy", "eval", "{:.3f}"),
    ("rollout/errors", "errors", "{:.0f}"),
)
_ONLY_WHEN_POSITIVE = frozenset({"rollout/errors"})


class Reporter(Protocol):
    """Told about a run as it goes. A context: entered before the first step, left after the last, however it ends."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def start(self, done: int, steps: int) -> None:
        """`done` of `steps` steps are finished already."""
        ...

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """One more step is finished."""
        ...

    def note(self, text: str) -> None:
        """One line that the person should read."""
        ...

    def samples(self, groups: Sequence[Group]) -> None:
        """Show what was asked, what is right, and every answer with its scores."""
        ...


class Remaining:
    """Seconds left, from the mean of the last 20 steps."""

    def __init__(self, clock: Any = time.monotonic) -> None:
        self._clock = clock
        self._marks: list[float] = []

    def mark(self) -> None:
        """The run starts, or a step ends."""
        self._marks = [*self._marks[-20:], self._clock()]

    def seconds(self, steps_left: int) -> float | None:
        """None before the first step has ended."""
        if len(self._marks) < 2:
            return None
        return (self._marks[-1] - self._marks[0]) / (len(self._marks) - 1) * steps_left


class LineReporter:
    """One plain line per step."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stdout
        self._steps = 0
        self._remaining = Remaining()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.flush()

    def start(self, done: int, steps: int) -> None:
        self._steps = steps
        self._remaining.mark()

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._remaining.mark()
        left = self._remaining.seconds(self._steps - step)
        self.note(f"step {step}/{self._steps}  {describe(metrics)}" + (f"  left {clock_time(left)}" if left is not None else ""))

    def note(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def samples(self, groups: Sequence[Group]) -> None:
        self.note("\n".join(sample_lines(groups)))


class BarReporter:
    """The numbers and a bar that stay at the bottom; notes scroll above them."""

    def __init__(self, stream: TextIO | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.text import Text

        class Bar(Progress):
            """A row of numbers (wrapped on a narrow terminal) over the bar."""

            def get_renderables(self) -> Iterator[Any]:
                for task in self.tasks:
                    yield Text(task.fields["numbers"])
                yield self.make_tasks_table(self.tasks)

        self._console = Console(file=stream, highlight=False)
        self._bar = Bar(
            TextColumn("step"), MofNCompleteColumn(), BarColumn(bar_width=30), TextColumn("left {task.fields[left]}"), console=self._console
        )
        self._task: Any = None
        self._steps = 0
        self._remaining = Remaining()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def start(self, done: int, steps: int) -> None:
        self._steps = steps
        self._remaining.mark()
        self._task = self._bar.add_task("train", total=steps, completed=done, numbers="", left="?")

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._remaining.mark()
        left = self._remaining.seconds(self._steps - step)
        self._bar.update(self._task, completed=step, numbers=describe(metrics), left="?" if left is None else clock_time(left))

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def samples(self, groups: Sequence[Group]) -> None:
        self.note("\n".join(sample_lines(groups)))


def make_reporter(stream: TextIO | None = None) -> Reporter:
    """The bar when `stream` (standard output) is a terminal, else plain lines."""
    target = stream if stream is not None else sys.stdout
    return BarReporter(stream) if target.isatty() else LineReporter(stream)


def describe(metrics: Mapping[str, float]) -> str:
    """The numbers that a person watches, in one line; what a step does not have is left out.

    >>> describe({"reward": 0.5, "format_rate": 1.0, "rollout/errors": 0.0})
    'reward 0.500  format 1.00'
    """
    parts = []
    for name, label, form in COLUMNS:
        value = metrics.get(name)
        if value is not None and not (name in _ONLY_WHEN_POSITIVE and value <= 0):
            parts.append(f"{label} {form.format(value)}")
    return "  ".join(parts)


def clock_time(seconds: float) -> str:
    """
    >>> clock_time(3725), clock_time(65)
    ('1:02:05', '1:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def sample_lines(groups: Sequence[Group]) -> list[str]:
    """Question, gold answer, and each text with its parts, reward and advantage."""
    lines = []
    for group in groups:
        example = group.example
        lines += ["", f"{example.id}  {example.question}"]
        lines += [f"  choices  {' | '.join(example.choices)}"] if example.choices else []
        lines.append(f"  gold     {example.answer}")
        for number, rollout in enumerate(group.rollouts_G, 1):
            parts = "  ".join(f"{name} {value:g}" for name, value in rollout.scores.items())
            verdict = f"error: {rollout.error}" if rollout.error else f"reward {rollout.reward:g}  advantage {rollout.advantage:+.3f}  ({parts})"
            cut = "  [cut]" if rollout.completion.stop_reason == "length" else ""
            lines += [f"  {number:>2}. {rollout.completion.text!r}{cut}", f"      {verdict}"]
    return lines
