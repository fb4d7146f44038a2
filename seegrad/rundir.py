"""Everything a run leaves on disk: one writer (`RunWriter`, holds the lock), one reader (`RunDir`). docs/run-directory.md describes every file.

    run/  config.toml · environment.json · status.json · lock
          metrics.jsonl                          one line per step
          rollouts/step-000001.jsonl             one line per rollout          rollouts/index.jsonl: one line per group, with byte offset and length
          images/<sha256>.png                    every picture once
          checkpoints/step-000025/               weights/ · state/ · manifest.json
          eval/<name>.json                       evaluations, every item kept

A step is written in this order: images, rollouts, index, metrics; then its checkpoint. So a checkpoint of step s implies all files up to s, and a
run that continues from s cuts everything after it: no gap, no repeat.
"""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from seegrad import checkpoints
from seegrad.checkpoints import Checkpoint, step_name, step_of
from seegrad.config import Config, load_config, resolved_toml
from seegrad.durable import append_lines, cut_lines, dump_json, is_disk_full, read_json, read_lines, sync_paths, write_atomic
from seegrad.environment import changed_versions, describe_environment
from seegrad.errors import RunError
from seegrad.images import content_hash
from seegrad.types import Floats, Group, Rollout

State = Literal["running", "finished", "interrupted", "failed"]
TokenTrace = tuple[Floats, Floats]  # the trainer's logprobs_T and entropy_T of one completion

_LAYOUT = frozenset(
    {"lock", "config.toml", "environment.json", "status.json", "metrics.jsonl", "rollouts", "images", "checkpoints", "eval", "report"}
)


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
        return Status(**read_json(self.path / "status.json"))

    def environment(self) -> dict[str, Any]:
        """Versions, machine, command line and seed."""
        return dict(read_json(self.path / "environment.json"))

    def is_locked(self) -> bool:
        """Whether a process is writing here now."""
        if not (self.path / "lock").exists():
            return False
        descriptor = os.open(self.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return not _try_flock(descriptor)
        finally:
            os.close(descriptor)

    def metrics(self) -> list[dict[str, Any]]:
        """One mapping per finished step, with `step`; a value that was not finite is None."""
        return list(read_lines(self.path / "metrics.jsonl"))

    def index(self) -> Iterator[IndexEntry]:
        """All groups in the order in which they were sampled."""
        for line in read_lines(self.path / "rollouts" / "index.jsonl"):
            yield IndexEntry(**{**line, "rewards": tuple(line["rewards"])})

    def group(self, entry: IndexEntry) -> list[dict[str, Any]]:
        """The rollouts of one group, read from its place without reading the rest."""
        path = self.path / "rollouts" / entry.file
        with path.open("rb") as file:
            file.seek(entry.offset)
            return list(_parse(file.read(entry.length), path))

    def rollouts(self, step: int) -> list[dict[str, Any]]:
        """All rollouts of one step. Raises RunError when the step was not written."""
        path = self.path / "rollouts" / f"{step_name(step)}.jsonl"
        if not path.is_file():
            raise RunError(f"{self.path} has no rollouts of step {step}; its last step is {self.status().step}")
        return list(_parse(path.read_bytes(), path))

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
        lock = _lock(path)
        try:
            if (path / "config.toml").exists():
                raise RunError(f"{path} already holds a run; continue it with --resume {path}, or give another out=")
            foreign = sorted(entry.name for entry in path.iterdir() if entry.name not in _LAYOUT and not entry.name.endswith(".tmp"))
            if foreign:
                raise RunError(f"{path} is not empty (it holds {foreign[0]!r}); give another out=")
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
        return cls(path, _lock(path), resumed=True)

    def resume_point(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest whole checkpoint (None: start from step 0) and warnings: damaged checkpoints that were skipped, versions that have changed.

        Raises RunError when there are checkpoints and all are damaged.
        """
        checkpoint, warnings = checkpoints.newest_whole(self.path / "checkpoints")
        changed = changed_versions(self.environment(), describe_environment())
        if changed:
            warnings.append(f"versions differ from the run's start ({changed}): the continuation may not be bit for bit")
        return checkpoint, warnings

    def cut(self, step: int) -> None:
        """Remove everything after `step`, so that the next step written is `step` + 1."""
        with self._space(self.path):
            checkpoints.remove_leftovers(self.path / "checkpoints")
            checkpoints.set_aside_after(self.path / "checkpoints", step)
            cut_lines(self.path / "metrics.jsonl", lambda line: line["step"] <= step)
            cut_lines(self.path / "rollouts" / "index.jsonl", lambda line: line["step"] <= step)
            for path in (*(self.path / "rollouts").glob("step-*.jsonl"), *(self.path / "eval").glob("step-*.json")):
                number = step_of(path.stem)
                if number is not None and number > step:
                    path.unlink()
            for folder in ("", "rollouts", "images", "eval"):
                for path in (self.path / folder).glob(".*.tmp"):
                    path.unlink()

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
    root.mkdir(parents=True, exist_ok=True)
    date = datetime.date.today().isoformat()
    for number in range(1, 100_000):
        path = root / f"{name}-{date}-{number}"
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise RunError(f"{root} already holds 99,999 runs named {name}-{date}; give another out=")


def short_floats(values_T: Floats) -> list[float]:
    """Each float32 as its shortest decimal that reads back as the same float32.

    >>> short_floats(np.array([-0.1, 2.0], np.float32))
    [-0.1, 2.0]
    """
    decimals: list[float] = np.asarray(values_T, np.float32).astype("U32").astype(np.float64).tolist()
    return decimals


def _lock(path: Path) -> int:
    """An open descriptor of `lock` with an exclusive flock (dropped by the system when the process dies). A reader may hold it for an instant."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise RunError(f"{path} cannot be used as a run directory: {error.strerror}; give another out=") from error
    try:
        for _ in range(5):
            if _try_flock(descriptor):
                os.pwrite(descriptor, f"{os.getpid():<10}\n".encode(), 0)  # always as long: a full disk has room for it the next time
                return descriptor
            time.sleep(0.02)
        owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
    except OSError as error:
        os.close(descriptor)
        raise RunError(f"{path} cannot be locked: {error.strerror}; free some space or give another out=") from error
    os.close(descriptor)
    raise RunError(f"{path} is being written by process {owner}; wait for it, stop it, or give another out=")


def _try_flock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _parse(data: bytes, path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(data.splitlines(), 1):
        try:
            yield json.loads(line)
        except ValueError as error:
            raise RunError(f"{path}: line {number} is not valid JSON: {error}") from None


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
