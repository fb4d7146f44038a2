"""Everything a run leaves on disk: one writer (`RunWriter`, holds the lock), one reader (`RunDir`). docs/run-directory.md describes every file.

    run/  config.toml · environment.json · rows.json · status.json · lock
          metrics.jsonl                          one line per step
          rollouts/step-000001.jsonl             one line per rollout          rollouts/index.jsonl: one line per group, with byte offset and length
          images/<sha256>.png                    every picture once
          checkpoints/step-000025/               weights/ · state/ · manifest.json
          eval/<name>.json                       evaluations, every item kept      track/: what trackers keep

A step is written in this order: images, rollouts, index, metrics; then its checkpoint. So a checkpoint of step s implies all files up to s, and a
run that continues from s cuts everything after it: no gap, no repeat.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from seegrad import checkpoints
from seegrad.checkpoints import Checkpoint, step_name, step_of
from seegrad.config import Config, load_config, resolved_toml
from seegrad.durable import (
    append_lines,
    cut_lines,
    dump_json,
    is_disk_full,
    lock_folder,
    parse_lines,
    read_json,
    read_lines,
    remove_partial,
    sync_paths,
    try_flock,
    write_atomic,
)
from seegrad.environment import changed_versions, describe_environment
from seegrad.errors import RunError
from seegrad.images import content_hash
from seegrad.types import Floats, Group, Rollout

State = Literal["running", "finished", "interrupted", "failed"]
TokenTrace = tuple[Floats, Floats]  # the trainer's logprobs_T and entropy_T of one completion

_FILES = ("lock", "config.toml", "environment.json", "rows.json", "status.json", "metrics.jsonl")
_LAYOUT = frozenset((*_FILES, "rollouts", "images", "checkpoints", "eval", "report", "track"))


@dataclass(frozen=True, slots=True)
class Status:
    """How far a run is. `step` counts finished steps of `steps`; `message` says why it stopped."""

    state: State
    step: int
    steps: int
    message: str = ""
    pid: int = 0
    time: str = ""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """Where one group lies: `length` bytes from `offset` in rollouts/`file`, and what came of it."""

    step: int
    group: int
    file: str
    offset: int
    length: int
    example_id: str
    rewards: tuple[float | None, ...]
    num_correct: int
    flat: bool


def is_timing(metric: str) -> bool:
    """Whether a metric depends on the machine's speed rather than on the run: these differ between two equal runs."""
    return metric.startswith("time/") or metric == "tokens_per_second"


class RunDir:
    """Reads a run directory, also one that is being written. Half-written last lines are not seen."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Raises RunError when the folder is not a run."""
        path = Path(path)
        if not (path / "config.toml").is_file():
            raise RunError(f"{path} is not a run directory (no config.toml in it); `seegrad train` makes one")
        return cls(path)

    def config(self) -> Config:
        """The resolved settings that the run was started with."""
        return load_config(str(self.path / "config.toml"))

    def status(self) -> Status:
        """The last status that was written. A killed run still says `running`; `is_locked` tells whether it is alive."""
        tree = read_json(self.path / "status.json")
        try:
            return Status(**tree)
        except TypeError as error:
            raise RunError(f"{self.path / 'status.json'} is not the status of a run: {error}") from None

    def environment(self) -> dict[str, Any]:
        """Versions, machine, command line and seed."""
        return dict(read_json(self.path / "environment.json"))

    def is_locked(self) -> bool:
        """Whether a process is writing here now."""
        if not (self.path / "lock").exists():
            return False
        descriptor = os.open(self.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return not try_flock(descriptor)
        finally:
            os.close(descriptor)

    def metrics(self) -> list[dict[str, Any]]:
        """One mapping per finished step, with `step`; a value that was not finite is None."""
        return list(read_lines(self.path / "metrics.jsonl"))

    def index(self) -> Iterator[IndexEntry]:
        """All groups in the order in which they were sampled."""
        for line in read_lines(self.path / "rollouts" / "index.jsonl"):
            try:
                yield IndexEntry(**{**line, "rewards": tuple(line["rewards"])})
            except (KeyError, TypeError) as error:
                raise RunError(f"{self.path}/rollouts/index.jsonl has a line that describes no group ({type(error).__name__}: {error})") from None

    def group(self, entry: IndexEntry) -> list[dict[str, Any]]:
        """The rollouts of one group, read from its place without reading the rest."""
        path = self.path / "rollouts" / entry.file
        with path.open("rb") as file:
            file.seek(entry.offset)
            return list(parse_lines(file.read(entry.length), path))

    def rollouts(self, step: int) -> list[dict[str, Any]]:
        """All rollouts of one step. Raises RunError when the step was not written."""
        path = self.path / "rollouts" / f"{step_name(step)}.jsonl"
        if not path.is_file():
            raise RunError(f"{self.path} has no rollouts of step {step}; its last step is {self.status().step}")
        return list(parse_lines(path.read_bytes(), path))

    def image(self, digest: str) -> bytes:
        """The encoded picture with this content hash."""
        path = self.path / "images" / f"{digest}.png"
        if not path.is_file():
            raise RunError(f"{path} does not exist")
        return path.read_bytes()

    def checkpoints(self) -> list[Checkpoint]:
        """Oldest first; not checked for damage (see `Checkpoint.damage`)."""
        return checkpoints.checkpoints_in(self.path / "checkpoints")

    def eval_names(self) -> list[str]:
        """Names of the evaluations that are kept here."""
        return sorted(path.stem for path in (self.path / "eval").glob("*.json"))

    def read_eval(self, name: str) -> dict[str, Any]:
        """One evaluation with every item."""
        return dict(read_json(self.eval_path(name)))

    def eval_path(self, name: str) -> Path:
        """Where the evaluation of that name lies or will lie. Writing one needs no lock: the file appears in one piece."""
        return self.path / "eval" / f"{name}.json"

    def kept(self) -> str:
        """What is safe on disk, in words."""
        steps = sum(1 for _ in read_lines(self.path / "metrics.jsonl"))
        found = self.checkpoints()
        return f"steps 1-{steps}" + (f" and checkpoint {found[-1].folder}" if found else " and no checkpoint") if steps else "nothing yet"

    @contextmanager
    def _space(self, target: Path) -> Iterator[None]:
        """A write that fails for lack of space becomes one line that says what was kept."""
        try:
            yield
        except Exception as error:
            if isinstance(error, RunError) or not is_disk_full(error, self.path):
                raise
            raise RunError(
                f"disk full while writing {target}; kept: {self.kept()}; free some space, then: seegrad train --resume {self.path}"
            ) from error


class RunWriter(RunDir):
    """Writes a run directory. Holds its lock from `create` or `resume` until `close` (or until the process ends, however it ends)."""

    def __init__(self, path: Path, lock: int, *, resumed: bool = False) -> None:
        super().__init__(path)
        self.resumed = resumed
        self._lock = lock
        self._unsynced: list[Path] = []
        self._known_images = {entry.name for entry in (path / "images").iterdir()} if (path / "images").is_dir() else set()

    @classmethod
    def create(cls, path: Path | str, config: Config) -> Self:
        """A new run. Raises RunError when the folder already holds a run or something else, or is being written."""
        path = Path(path)
        lock = lock_folder(path)
        try:
            if (path / "config.toml").exists():
                raise RunError(f"{path} already holds a run; continue it with --resume {path}, or give another --out")
            foreign = sorted(entry.name for entry in path.iterdir() if entry.name not in _LAYOUT and not entry.name.endswith(".tmp"))
            if foreign:
                raise RunError(f"{path} is not empty (it holds {foreign[0]!r}); give another --out")
            run = cls(path, lock)
            with run._space(path):
                for folder in ("rollouts", "images", "checkpoints", "eval"):
                    (path / folder).mkdir(exist_ok=True)
                write_atomic(path / "environment.json", dump_json({**describe_environment(), "seed": config.seed}, indent=1))
                run.write_status("running", 0, config.steps)
                write_atomic(path / "config.toml", resolved_toml(config).encode("utf-8"))  # last: its presence makes the folder a run
        except BaseException:
            os.close(lock)
            raise
        return run

    @classmethod
    def resume(cls, path: Path | str) -> Self:
        """Take the lock of an existing run. Nothing is changed before `cut`."""
        path = Path(path)
        RunDir.open(path)
        return cls(path, lock_folder(path), resumed=True)

    def resume_point(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest whole checkpoint (None: start from step 0) and warnings: damaged checkpoints that were skipped, versions that have changed.

        Raises RunError when there are checkpoints and all are damaged, or none although the run must have written one: continuing would start
        over and delete what was kept.
        """
        checkpoint, warnings = checkpoints.newest_whole(self.path / "checkpoints")
        if checkpoint is None and (done := self._steps_past_a_checkpoint()):
            raise RunError(
                f"{self.path} has taken {done} steps but its checkpoints are gone, so it would start over and delete them; "
                "bring the checkpoints back, or start again with another --out"
            )
        try:
            changed = changed_versions(self.environment(), describe_environment())
            versions = f"versions differ from the run's start ({changed}): the continuation may not be bit for bit" if changed else None
        except RunError as error:
            versions = f"{error}: whether versions have changed since the run's start is not known"
        absent = None if checkpoint is None else self._absent_steps(checkpoint.step)
        return checkpoint, [*warnings, *(warning for warning in (versions, absent) if warning)]

    def _steps_past_a_checkpoint(self) -> int:
        """Steps taken, when a checkpoint must have been written before the last of them; else 0."""
        done = max((step for line in read_lines(self.path / "metrics.jsonl") if isinstance(step := line.get("step"), int)), default=0)
        settings = self.config()
        return done if self._is_finished() or 0 < settings.save.every < done else 0

    def _is_finished(self) -> bool:
        try:
            return self.status().state == "finished"
        except RunError:
            return False

    def _absent_steps(self, last: int) -> str | None:
        """Steps up to `last` that metrics.jsonl or the index should hold and do not, in words: somebody has cut these files."""
        for path in (self.path / "metrics.jsonl", self.path / "rollouts" / "index.jsonl"):
            absent = sorted(set(range(1, last + 1)) - {line.get("step") for line in read_lines(path)})
            if absent:
                return f"{path} lacks {len(absent)} of steps 1-{last} (first: {absent[0]}); they cannot be written again: curves have a gap"
        return None

    def cut(self, step: int) -> None:
        """Remove everything after `step`, so that the next step written is `step` + 1."""
        with self._space(self.path):
            checkpoints.remove_leftovers(self.path / "checkpoints")
            checkpoints.set_aside_after(self.path / "checkpoints", step)
            for path in (self.path / "metrics.jsonl", self.path / "rollouts" / "index.jsonl"):
                cut_lines(path, partial(_is_within, path, step))
            for path in (*(self.path / "rollouts").glob("step-*.jsonl"), *(self.path / "eval").glob("step-*.json")):
                number = step_of(path.stem)
                if number is not None and number > step:
                    path.unlink()
            remove_partial(*(self.path / folder for folder in ("", "rollouts", "images", "eval")))

    def write_step(self, step: int, groups: Sequence[Group], traces: Mapping[tuple[int, int], TokenTrace], metrics: Mapping[str, float]) -> None:
        """Keep one finished step: every rollout (with the trainer's view of those that were trained on, by (group, rollout)) and the metrics line."""
        path = self.path / "rollouts" / f"{step_name(step)}.jsonl"
        with self._space(path):
            for group in groups:
                for image in group.example.images:
                    self._write_image(image)
            blocks = [_group_lines(step, number, group, traces) for number, group in enumerate(groups)]
            write_atomic(path, b"".join(blocks))
            offset, entries = 0, []
            for number, (group, block) in enumerate(zip(groups, blocks, strict=True)):
                entries.append(asdict(_index_entry(step, number, group, path.name, offset, len(block))))
                offset += len(block)
            append_lines(self.path / "rollouts" / "index.jsonl", entries)
            append_lines(self.path / "metrics.jsonl", [{"step": step, **metrics}])

    @contextmanager
    def checkpoint(self, step: int, keep: int) -> Iterator[Checkpoint]:
        """Fill `.weights` and `.state` of the checkpoint inside the block; afterwards it is on disk, whole, and only `keep` states are left."""
        root = self.path / "checkpoints"
        with self._space(root / step_name(step)):
            sync_paths(self._unsynced)
            self._unsynced.clear()
            with checkpoints.writing(root, step) as checkpoint:
                yield checkpoint
            checkpoints.drop_old_states(root, keep)

    def write_status(self, state: State, step: int, steps: int, message: str = "") -> None:
        """Replace status.json in one piece."""
        status = Status(state, step, steps, message, os.getpid(), datetime.datetime.now().astimezone().isoformat(timespec="seconds"))
        with self._space(self.path / "status.json"):
            write_atomic(self.path / "status.json", dump_json(asdict(status), indent=1))

    def close(self) -> None:
        """Give up the lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write_image(self, image: bytes) -> None:
        path = self.path / "images" / f"{content_hash(image)}.png"
        if path.name not in self._known_images:
            write_atomic(path, image, sync=False)
            self._unsynced.append(path)
            self._known_images.add(path.name)


def new_path(name: str, root: Path = Path("runs")) -> Path:
    """Claim `runs/<name>-<date>-<number>`, the first number that is free. The folder is made, so that two runs never get the same one."""
    date = datetime.date.today().isoformat()
    stem = re.sub(r"[/\\\x00-\x1f]+", "-", name) or "run"  # a name is free text, a folder is one word
    try:
        root.mkdir(parents=True, exist_ok=True)
        for number in range(1, 100_000):
            path = root / f"{stem}-{date}-{number}"
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return path
    except OSError as error:
        raise RunError(f"no run directory can be made in {root.absolute()}: {error.strerror or error}; give a place with --out") from error
    raise RunError(f"{root} already holds 99,999 runs named {name}-{date}; give another --out")


def _is_within(path: Path, last: int, line: Mapping[str, Any]) -> bool:
    step = line.get("step")
    if not isinstance(step, int):
        raise RunError(f"{path} has a line without a step number ({str(dict(line))[:80]}); repair or delete that line")
    return step <= last


def short_floats(values_T: Floats) -> list[float]:
    """Each float32 as its shortest decimal that reads back as the same float32.

    >>> short_floats(np.array([-0.1, 2.0], np.float32))
    [-0.1, 2.0]
    """
    decimals: list[float] = np.asarray(values_T, np.float32).astype("U32").astype(np.float64).tolist()
    return decimals


def _index_entry(step: int, number: int, group: Group, file: str, offset: int, length: int) -> IndexEntry:
    rewards = tuple(None if rollout.error else float(rollout.reward) for rollout in group.rollouts_G)
    correct = sum(rollout.correct for rollout in group.rollouts_G)
    return IndexEntry(step, number, file, offset, length, group.example.id, rewards, correct, group.is_flat)


def _group_lines(step: int, number: int, group: Group, traces: Mapping[tuple[int, int], TokenTrace]) -> bytes:
    example = group.example
    shared = {
        "step": step,
        "group": number,
        "example_id": example.id,
        "question": example.question,
        "answer": example.answer,
        "choices": list(example.choices),
        "images": [content_hash(image) for image in example.images],
        "prompt_tokens": len(group.model_input),
    }
    return b"".join(
        dump_json({**shared, "attempt": attempt, **_rollout_fields(rollout, traces.get((number, attempt)))})
        for attempt, rollout in enumerate(group.rollouts_G)
    )


def _rollout_fields(rollout: Rollout, trace: TokenTrace | None) -> dict[str, Any]:
    completion = rollout.completion
    return {
        "text": completion.text,
        "stop_reason": completion.stop_reason,
        "scores": {name: float(value) for name, value in rollout.scores.items()},
        "reward": float(rollout.reward),
        "advantage": float(rollout.advantage),
        "parsed": rollout.parsed,
        "correct": bool(rollout.correct),
        "policy_version": rollout.policy_version,
        "error": rollout.error,
        "tokens": [int(token) for token in completion.tokens_T],
        "sampler_logprobs": short_floats(completion.logprobs_T),
        "trainer_logprobs": None if trace is None else short_floats(trace[0]),
        "entropy": None if trace is None else short_floats(trace[1]),
    }
