"""From a config to the parts of a run. Beside `cli.py` the only place where data, renderer, rewards and backend meet.

Config ─▶ model folder ─▶ ChatRenderer ┐
       ├▶ data set ────────────────────┤
       ├▶ Rewards ─────────────────────┼─▶ Parts ─▶ train · evaluate · doctor · sample
       └▶ backend (opened on first use)┘
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

from seegrad import registry
from seegrad.advantages import Credit
from seegrad.backends.base import Backend, Sampler
from seegrad.checkpoints import Checkpoint, checkpoints_in, step_of
from seegrad.config import Config, ModelConfig, load_config
from seegrad.data.pictures import MAX_ASPECT
from seegrad.data.rows import load_rows
from seegrad.data.shapes import Shapes
from seegrad.data.skipping import Fitting, Skipping
from seegrad.errors import DataError, RunError, UsageError
from seegrad.families.folder import model_folder
from seegrad.images import clean, size
from seegrad.renderers.chat import ChatRenderer
from seegrad.rewards.base import Rewards
from seegrad.types import Example, SamplingParams
from seegrad.update import KL_PENALTY

CONFIG_FILE = "config.toml"
BUNDLED = "tiny"  # always the bundled model; a folder of that name is ./tiny


@dataclass(frozen=True)
class Parts:
    """Everything that a config names, each part made when it is first asked for: `data show` never opens a model."""

    config: Config

    @cached_property
    def renderer(self) -> ChatRenderer:
        model, data = self.config.model, self.config.data
        return ChatRenderer(model_folder(model.base, weights=False), enable_thinking=model.enable_thinking, system_prompt=data.system_prompt)

    @cached_property
    def rewards(self) -> Rewards:
        reward = self.config.reward
        return Rewards(
            reward.parts,
            settings=reward.settings,
            minimum=reward.minimum,
            maximum=reward.maximum,
            isolate=reward.isolate,
            workers=reward.workers,
            timeout=reward.timeout,
        )

    @cached_property
    def advantage(self) -> Credit:
        algorithm, weights = self.config.algorithm, dict(self.config.reward.parts)
        if algorithm.kl_in == "reward":
            weights[KL_PENALTY] = algorithm.kl_coef
        return Credit(registry.load("advantage", algorithm.advantage), algorithm.advantage_config, weights, self.config.rollout.group_size)

    @cached_property
    def backend(self) -> Backend:
        uri = self.config.model.backend
        return cast(Backend, registry.load("backend", uri.partition(":")[0])(uri))

    @property
    def exact(self) -> bool:
        """Whether trainer and sampler compute in float32 on this machine's CPU: then fresh samples must be on-policy to rounding."""
        model = self.config.model
        on_cpu = model.device == "cpu" or (model.device == "auto" and "cuda" not in self.backend.capabilities)
        return model.backend.startswith("local") and model.dtype == "float32" and on_cpu

    def close(self) -> None:
        """Give the backend back, if one was opened, and end the workers of the rewards."""
        if "rewards" in self.__dict__:
            self.rewards.close()
        if "backend" in self.__dict__:
            self.backend.close()

    def examples(self, split: str, *, train: bool = False) -> Sequence[Example]:
        """A split of the data set; raises UsageError or DataError in one line when there is none.

        Rows with a prompt of over `data.max_prompt_tokens` are bad rows. With `train` so are those that cannot be rendered, and bad rows are skipped
        unless `data.bad_rows` says stop. A drawn row is never bad.
        """
        data, rows = self.config.data, load_rows(split, self.config.data)
        if isinstance(rows, Shapes) and not data.max_prompt_tokens:
            return rows
        if train or data.max_prompt_tokens:
            rows = Fitting(rows, self._prompt_length, data.max_prompt_tokens)
        return Skipping(rows) if train and data.bad_rows == "skip" else rows

    def _prompt_length(self, example: Example) -> int:
        return self.renderer.count(example.question, [size(data) for data in example.images])

    def sampling(self, *, temperature: float, max_tokens: int | None = None, seed: int = 0) -> SamplingParams:
        """The rollout's sampling settings with another temperature (0: greedy, without top-p and top-k)."""
        rollout = self.config.rollout
        top_p, top_k = (rollout.top_p, rollout.top_k) if temperature else (1.0, 0)
        return SamplingParams(max_tokens or rollout.max_tokens, temperature, top_p, top_k, rollout.stop, self.renderer.stop_token_ids, seed)


@dataclass(frozen=True, slots=True)
class Target:
    """What a user names when they name a model: a base, a run, one of its checkpoints, or a model folder.

    `weights` are put over `config.model.base` (None: the base itself); `run` is the run directory that the weights come from, if any.
    """

    label: str
    config: Config
    weights: Path | None = None
    run: Path | None = None
    step: int = 0

    def sampler(self, parts: Parts) -> Sampler:
        return parts.backend.sampler(self.config.model, self.weights)


def find_target(name: str, *, recipe: str | None = None, overrides: Sequence[str] = ()) -> Target:
    """Read `name` as a run directory, a checkpoint folder, a model folder or a base model, in this order.

    The settings are the run's own, or the recipe's (`count` when neither says); `overrides` are laid over them.
    Raises UsageError or RunError when it is none of these.
    """
    path = Path(name)
    found = _run_and_checkpoint(path)
    if found is not None:
        return _run_target(*found, recipe, overrides)
    if path.is_dir() and (path / "adapter_config.json").is_file():
        raise UsageError(f"{name} is an adapter outside a run directory; export it first: seegrad export RUN --out FOLDER")
    if path.is_dir() and name != BUNDLED and not (path / "config.json").is_file():
        raise RunError(
            f"{name} is neither a run directory ({CONFIG_FILE}) nor a model folder (config.json); runs here: {', '.join(run_names()) or 'none'}"
        )
    if path.is_file():
        raise UsageError(f"{name} is a file; give the run directory or the model folder: {path.parent}")
    if not path.is_dir() and (name.startswith((".", "/", "runs/")) or name.count("/") > 1):
        raise RunError(f"{name} does not exist; runs here: {', '.join(run_names()) or 'none'}; the bundled model is: tiny")
    config = load_config(recipe or "count", overrides)
    return Target(path.name if path.is_dir() else name, _with_model(config, config.model.model_copy(update={"base": name})))


def _run_and_checkpoint(path: Path) -> tuple[Path, Checkpoint] | None:
    """The run and checkpoint of `RUN`, `RUN/checkpoints/step-000025` or the `weights` in it; None when the path is nothing of the kind."""
    if (path / CONFIG_FILE).is_file():
        return path, _newest(path)
    for folder in (path, path.parent):
        step, run = step_of(folder.name), folder.parent.parent
        if step is not None and folder.is_dir() and (run / CONFIG_FILE).is_file():
            return run, Checkpoint(folder, step)
    return None


def _run_target(run: Path, checkpoint: Checkpoint, recipe: str | None, overrides: Sequence[str]) -> Target:
    config = load_config(str(run / CONFIG_FILE), () if recipe else overrides)
    if recipe:
        config = _with_model(load_config(recipe, overrides), config.model)
    damage = checkpoint.damage()
    if damage:
        raise RunError(f"checkpoint {checkpoint.folder} is damaged: {damage}; others: {', '.join(map(str, _folders(run)))}")
    return Target(f"{run.resolve().name}@{checkpoint.step}", config, checkpoint.weights, run, checkpoint.step)


def _newest(run: Path) -> Checkpoint:
    found = checkpoints_in(run / "checkpoints")
    if not found:
        raise RunError(f"{run} has no checkpoint yet; continue it with: seegrad train --resume {run}")
    return next((checkpoint for checkpoint in reversed(found) if checkpoint.damage() is None), found[-1])


def _folders(run: Path) -> list[Path]:
    return [checkpoint.folder for checkpoint in checkpoints_in(run / "checkpoints")]


def _with_model(config: Config, model: ModelConfig) -> Config:
    return config.model_copy(update={"model": model})


def run_names(root: Path = Path("runs")) -> list[str]:
    """Run directories under `root`, the newest last."""
    if not root.is_dir():
        return []
    found = [folder for folder in root.iterdir() if (folder / CONFIG_FILE).is_file()]
    return [str(folder) for folder in sorted(found, key=lambda folder: (folder / CONFIG_FILE).stat().st_mtime)]


def eval_path(target: Target, split: str) -> Path:
    """Where an evaluation is kept unless told: in the run that the weights come from, else in `runs/base-NAME`.

    The newest checkpoint of a run writes `SPLIT.json`; so the name says the data set when it is not the run's own.
    """
    if target.run is None:
        return Path("runs") / f"base-{target.label.replace('/', '-')}" / "eval" / f"{file_word(target.config.data.name)}-{file_word(split)}.json"
    newest = _newest(target.run).step
    own = load_config(str(target.run / CONFIG_FILE)).data.name
    parts = [f"step-{target.step:06d}"] if target.step != newest else []
    parts += [file_word(target.config.data.name)] if target.config.data.name != own else []
    return target.run / "eval" / f"{'-'.join([*parts, file_word(split)])}.json"


def file_word(name: str) -> str:
    """A name as part of a file's name: of an address the function, and no sign that a shell or a path reads.

    >>> file_word("my/rows.py:dev"), file_word("a/b"), file_word("train[-100:]"), file_word("train[:100]")
    ('dev', 'a-b', 'train--100..end', 'train-0..100')
    """
    word = name.rpartition(":")[2] if "[" not in name else name.replace("[:", "[0:").replace(":]", ":end]")
    return word.replace("/", "-").replace("[", "-").replace("]", "").replace(":", "..")


def own_example(question: str, images: Sequence[Path]) -> Example:
    """An example of the user's own: pictures are cleaned like those of a data set. Raises DataError or UsageError in one line."""
    if not question:
        raise UsageError("a picture needs a question; for example: --question 'How many circles are in the picture?'")
    pictures = []
    for path in images:
        if not path.is_file():
            raise DataError(f"picture {path} does not exist")
        try:
            pictures.append(clean(path.read_bytes(), max_aspect=MAX_ASPECT))
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
    return Example(id="own", question=question, answer="", images=tuple(pictures))
