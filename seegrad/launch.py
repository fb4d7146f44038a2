"""From the words after `seegrad train` to a run: a new one, or one that is continued.

words ─ recipe | run directory | key=value ─▶ Launch(config, path, continues) ─▶ parts, run directory, policy ─▶ train()
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from seegrad import registry
from seegrad.advantages import Credit
from seegrad.config import Config, load_config, recipe_names
from seegrad.errors import RunError, UsageError
from seegrad.types import Example
from seegrad.update import check_settings, loss_spec
from seegrad.wiring import CONFIG_FILE, Parts, Target, find_target, run_names

if TYPE_CHECKING:
    from seegrad.rundir import RunWriter

ROWS_FILE = "rows.json"  # in the run directory: which rows it began with


@dataclass(frozen=True, slots=True)
class Launch:
    """What is to be started. `path` is the run directory (None: a new one in runs/); `continues` says that it holds a run already."""

    config: Config
    path: Path | None
    continues: bool


def read_launch(words: Sequence[str], *, model: str | None = None, out: Path | None = None, resume: bool = False) -> Launch:
    """Sort the words into recipe, run directory (only with `resume`) and settings. Raises UsageError or RunError in one line."""
    settings = [word for word in words if "=" in word]
    names = [word for word in words if "=" not in word]
    folders = [name for name in names if resume and name not in recipe_names() and not name.endswith(".toml")]
    recipes = [name for name in names if name not in folders]
    if len(recipes) > 1:
        raise UsageError(f"one recipe at a time, given {' and '.join(map(repr, recipes))}; settings are written key=value")
    if len(folders) > 1:
        raise UsageError(f"one run at a time, given {' and '.join(map(repr, folders))}")
    if model is not None:
        settings.append(f"model.base={json.dumps(model)}")
    if not resume:
        config = load_config(recipes[0] if recipes else "count", settings)
        return Launch(config, out or (Path(config.out) if config.out else None), continues=False)
    return _resumed(recipes[0] if recipes else None, settings, Path(folders[0]) if folders else None, out)


def _resumed(recipe: str | None, settings: Sequence[str], folder: Path | None, out: Path | None) -> Launch:
    if folder is not None and out is not None and folder.resolve() != out.resolve():
        raise UsageError(f"--resume {folder} and --out {out} name two run directories; give one")
    path = folder or out or _newest_run(recipe)
    if not (path / CONFIG_FILE).is_file():
        if recipe is None or path == folder:
            raise RunError(
                f"{path} is not a run that can be continued; runs here: {', '.join(run_names()) or 'none'}; start one: seegrad train count"
            )
        return Launch(load_config(recipe, settings), path, continues=False)
    stored = load_config(str(path / CONFIG_FILE))
    difference = first_difference(stored, load_config(recipe or str(path / CONFIG_FILE), settings))
    if difference:
        raise UsageError(
            f"{path} was started with other settings ({difference}); continue it without the change, or start a new run with another --out"
        )
    return Launch(stored, path, continues=True)


def _newest_run(recipe: str | None) -> Path:
    """The newest run in runs/, of that recipe when one is given."""
    for name in reversed(run_names()):
        if recipe is None or load_config(str(Path(name) / CONFIG_FILE)).name == load_config(recipe).name:
            return Path(name)
    raise RunError(f"there is no run{f' of {recipe!r}' if recipe else ''} in runs/ to continue; start one: seegrad train {recipe or 'count'}")


def start(launch: Launch, *, show_samples: bool = False, save: bool = True) -> int:
    """Train. Cheap mistakes are found before a model is loaded, and a directory is made only once everything else is there.

    Returns the exit code: 0 when all steps are done, 130 when a signal ended the run after a whole step.
    """
    from seegrad.data.skipping import about_rows, skipped_rows
    from seegrad.progress import make_reporter
    from seegrad.rundir import RunWriter, new_path
    from seegrad.track.tracking import Tracking, check
    from seegrad.train import Pipeline, train

    config, parts = launch.config, Parts(launch.config)
    if not save and (launch.continues or launch.path is not None):
        raise UsageError(f"--no-save writes nothing, but {launch.path} is named as the run directory; leave out one of the two")
    if launch.continues and (finished := _finished(launch.path)):
        print(finished)
        return 0
    if ":" not in config.algorithm.loss and config.algorithm.loss not in registry.names("loss"):
        registry.load("loss", config.algorithm.loss)  # raises; a loss that exists is loaded by the backend, because it may need torch
    advantage, base = check_algorithm(parts)
    check(config.track)
    examples = parts.examples(config.data.train_split, train=True)
    held_out = parts.examples(config.eval.split) if config.eval.every else ()
    if about := about_rows(examples):
        print(about)
    parts.backend.check_loss(loss_spec(config))
    renderer, rewards = parts.renderer, parts.rewards
    run: RunWriter | None = None
    try:
        if launch.continues and launch.path is not None:
            run = RunWriter.resume(launch.path)
            _check_rows(run, examples)
        policy = parts.backend.create(config.model, seed=config.seed)
        if save and run is None:
            run = RunWriter.create(launch.path or new_path(config.name), config)
            _check_rows(run, examples)
        reference = None if base is None else parts.backend.sampler(base.config.model, base.weights)
        pipeline = Pipeline(policy, renderer, rewards, advantage, examples, held_out, exact=parts.exact, reference=reference)
        reporter = make_reporter()
        with Tracking(config, run, reporter) as tracking:
            outcome = train(pipeline, config, run, reporter, show_samples=show_samples, tracking=tracking)
            tracking.state = outcome.state
    finally:
        if run is not None:
            run.close()
        parts.close()
    if told := skipped_rows(examples):
        print(told)
    for line in outcome.spent:
        print(line)
    if run is not None:
        print(f"{outcome.state} after step {outcome.step}: {run.path}")
        print(f"continue: seegrad train --resume {run.path}" if outcome.state == "interrupted" else f"evaluate: seegrad eval {run.path}")
    return 0 if outcome.state == "finished" else 130


def _check_rows(run: RunWriter, examples: Sequence[Example]) -> None:
    """Write down which rows a run begins with. Raises RunError when a continued one would go on with others."""
    from seegrad.data.fingerprint import difference, fingerprint
    from seegrad.durable import dump_json, read_json, write_atomic

    path, now = run.path / ROWS_FILE, fingerprint(examples)
    if not now:
        return
    if not path.exists():
        write_atomic(path, dump_json(now))
    elif changed := difference(read_json(path), now):
        raise RunError(
            f"{run.path}: the training rows have changed since the run began ({changed}); bring the old ones back "
            "(data.revision pins those of a hub), or start a new run with another --out"
        )


def check_algorithm(parts: Parts) -> tuple[Credit, Target | None]:
    """The advantage and the reference (None: the base) of a run. Raises UsageError or RunError for wrong settings of `algorithm`; opens nothing."""
    check_settings(parts.config)
    return parts.advantage, reference_target(parts.config)


def reference_target(config: Config) -> Target | None:
    """What `algorithm.reference` names, to be opened like the model of this run (device, precision, batches). None: the base."""
    if not config.algorithm.reference:
        return None
    try:
        found = find_target(config.algorithm.reference)
    except (UsageError, RunError) as error:
        raise type(error)(f"algorithm.reference: {error}") from None
    here = {name: getattr(config.model, name) for name in ("backend", "dtype", "device", "max_sample_batch", "max_train_tokens")}
    return replace(found, config=found.config.model_copy(update={"model": found.config.model.model_copy(update=here)}))


def _finished(path: Path | None) -> str | None:
    """A sentence when the run has nothing left to do and its last checkpoint is whole."""
    from seegrad.rundir import RunDir

    if path is None:
        return None
    run = RunDir.open(path)
    try:
        status, checkpoints = run.status(), run.checkpoints()
    except RunError:  # a damaged status.json says nothing; what is left to do follows from the checkpoints
        return None
    whole = bool(checkpoints) and checkpoints[-1].step >= status.steps and checkpoints[-1].damage() is None
    return f"{path} is finished ({status.step} steps); evaluate: seegrad eval {path}" if status.state == "finished" and whole else None


def first_difference(old: Config, new: Config) -> str | None:
    """The first setting in which two configs differ, as `key: old → new`, or None. `out` does not count."""
    flat_old, flat_new = _flat(old), _flat(new)
    for key in [*flat_old, *(key for key in flat_new if key not in flat_old)]:
        if key != "out" and flat_old.get(key) != flat_new.get(key):
            return f"{key}: {flat_old.get(key)!r} → {flat_new.get(key)!r}"
    return None


def _flat(config: Config) -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in config.model_dump().items():
        if isinstance(value, dict):
            flat.update({f"{key}.{inner}": item for inner, item in value.items()})
        else:
            flat[key] = value
    return flat
