"""Checkpoints of a run: written aside, described by a manifest, renamed when whole; so a checkpoint exists entirely or not at all.

    .step-000050.tmp/ ── weights/ · state/ ── manifest.json (size and sha256 of every file) ── fsync ── rename ──▶ step-000050/

`weights/` is for inference and is kept for good. `state/` continues training; only the newest few are kept.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from seegrad.durable import dump_json, read_json, remove_partial, sync_folder, sync_paths, write_atomic
from seegrad.errors import RunError

_NAME = re.compile(r"step-(\d{6,})")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint folder, taken after optimizer loop step `step`.

    >>> Checkpoint(Path("run/checkpoints/step-000025"), 25).weights.name
    'weights'
    """

    folder: Path
    step: int

    @property
    def weights(self) -> Path:
        """For inference: an adapter or a whole model folder."""
        return self.folder / "weights"

    @property
    def state(self) -> Path:
        """For continuing: what `Policy.load_state` reads."""
        return self.folder / "state"

    @property
    def has_state(self) -> bool:
        """Whether the full training state is (meant to be) here; old ones are removed to save space."""
        return any(name.startswith("state/") for name in _files(self.folder))

    def damage(self) -> str | None:
        """What is wrong, in words, or None. Every file of the manifest is read and hashed."""
        try:
            files = _files(self.folder)
        except RunError as error:
            return str(error)
        for name, (size, digest) in files.items():
            path = self.folder / name
            if not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != size:
                return f"{name} has {path.stat().st_size} bytes, expected {size}"
            if _sha256(path) != digest:
                return f"{name} has the right size but other bytes than were written"
        return None


def step_name(step: int) -> str:
    """Names sort like numbers.

    >>> step_name(25)
    'step-000025'
    """
    return f"step-{step:06d}"


def step_of(name: str) -> int | None:
    """The number in a name that `step_name` made, else None."""
    match = _NAME.fullmatch(name)
    return int(match.group(1)) if match else None


def checkpoints_in(root: Path) -> list[Checkpoint]:
    """All checkpoints in a folder, oldest first, damaged ones included."""
    if not root.is_dir():
        return []
    found = [Checkpoint(entry, step) for entry in root.iterdir() if (step := step_of(entry.name)) is not None and entry.is_dir()]
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def newest_whole(root: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest undamaged checkpoint with a training state, and one sentence for each damaged one that was skipped.

    None when the run never wrote one. Raises RunError when there are checkpoints but none that can be continued from.
    """
    warnings: list[str] = []
    checkpoints = checkpoints_in(root)
    for checkpoint in reversed(checkpoints):
        problem = checkpoint.damage()
        if problem is not None:
            warnings.append(f"checkpoint {checkpoint.folder} is damaged and skipped: {problem}")
        elif checkpoint.has_state:
            return checkpoint, warnings
    if checkpoints:
        reason = warnings[0] if warnings else f"{root} holds weights only"
        raise RunError(f"no checkpoint in {root} can be continued from ({reason}); start again with another --out")
    return None, warnings


@contextmanager
def writing(root: Path, step: int) -> Iterator[Checkpoint]:
    """A checkpoint to fill; it gets its real name only when the block ends well. A damaged one of the same step is replaced."""
    final = root / step_name(step)
    aside = root / f".{final.name}.tmp"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        yield Checkpoint(aside, step)
        _seal(aside, step)
        _move_into_place(aside, final)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def remove_leftovers(root: Path) -> None:
    """Delete what a killed writer left half done."""
    for entry in root.glob(".step-*"):
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    remove_partial(*root.glob("step-*"))


def drop_old_states(root: Path, keep: int) -> None:
    """Remove `state/` from all but the newest `keep` checkpoints. The manifest forgets the files first, so a kill in between does no damage."""
    with_state = [checkpoint for checkpoint in checkpoints_in(root) if checkpoint.state.is_dir()]
    for checkpoint in with_state[:-keep]:
        path = checkpoint.folder / "manifest.json"
        try:
            manifest = read_json(path)
        except RunError:
            continue  # damaged: left as it is for a person to look at
        manifest["files"] = {name: entry for name, entry in manifest["files"].items() if not name.startswith("state/")}
        write_atomic(path, dump_json(manifest, indent=1))
        shutil.rmtree(checkpoint.state)


def set_aside_after(root: Path, step: int) -> None:
    """Rename checkpoints newer than `step` to `damaged-step-…`: a run that continues from `step` will write those steps again."""
    for checkpoint in checkpoints_in(root):
        if checkpoint.step > step:
            aside = root / f"damaged-{checkpoint.folder.name}"
            shutil.rmtree(aside, ignore_errors=True)
            checkpoint.folder.replace(aside)


def _seal(folder: Path, step: int) -> None:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "sha256": _sha256(path)} for path in paths}
    sync_paths(paths)
    write_atomic(folder / "manifest.json", dump_json({"step": step, "files": files}, indent=1))
    sync_paths(path for path in folder.rglob("*") if path.is_dir())


def _move_into_place(aside: Path, final: Path) -> None:
    old = final.with_name(f".{final.name}.old")
    if final.exists():
        shutil.rmtree(old, ignore_errors=True)
        final.replace(old)
    aside.replace(final)
    sync_folder(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def _files(folder: Path) -> dict[str, tuple[int, str]]:
    """Size and sha256 by relative name, from the manifest. Raises RunError when it cannot be read."""
    manifest = read_json(folder / "manifest.json")
    try:
        return {str(name): (int(entry["size"]), str(entry["sha256"])) for name, entry in manifest["files"].items()}
    except (TypeError, KeyError, ValueError, AttributeError):
        raise RunError(f"{folder / 'manifest.json'} is not a checkpoint manifest") from None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
