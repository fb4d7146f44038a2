"""A run's settings: one frozen tree, most used first. A recipe is a TOML file of these sections; `section.key=value` overrides it.

    Config
    ├── (top)       task name, steps, seed, out
    ├── model       which weights, what trains
    ├── data        which rows
    ├── rollout     how many questions, attempts and tokens
    ├── reward      which graders, with which weights
    ├── algorithm   advantage, loss, KL
    ├── optimizer   Adam and the learning-rate schedule
    ├── eval        when, on what
    ├── save        how often checkpoints are written
    ├── track       SwanLab, W&B, TensorBoard, trackio
    └── cost        prices of tokens

Unknown keys are errors that name the nearest key. `resolved_toml` is written to the run directory and is enough to run again.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from seegrad.errors import UsageError, nearest


class Section(BaseModel):
    """A frozen table that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_value_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """`steps=true` is a mistake, not one step."""
        if isinstance(value, bool) and info.field_name is not None and cls.model_fields[info.field_name].annotation is not bool:
            raise PydanticCustomError("not_a_truth_value", "Input should not be true or false")
        return value


class ModelConfig(Section):
    """Which weights, and what of them trains."""

    base: str = "tiny"  # a hub id, a folder, or `tiny` (bundled)
    backend: str = "local:"  # local: · later ray: trio: tinker:
    train: Literal["lora", "full"] = "lora"
    train_vision: bool = False  # the vision tower (and its merger) trains too
    lora_rank: int = Field(32, ge=1)
    lora_alpha: float | None = None  # None: equal to the rank (scaling 1)
    lora_targets: tuple[str, ...] = ()  # module names, or attention, mlp, all-linear; empty: every linear layer of the language model
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: str = "auto"  # auto: cuda when there is one, else cpu
    enable_thinking: bool = False  # passed to the chat template
    max_sample_batch: int = Field(256, ge=1)  # rows decoded together
    max_train_tokens: int = Field(16384, ge=1)  # padded tokens in one micro-batch


class DataConfig(Section):
    """Which rows."""

    name: str = "count"  # a registered data set, `file.py:function`, or `table` (rows of your own, at `path`)
    train_split: str = "train"
    language: Literal["zh", "en", "both"] = "both"
    blank_images: bool = False  # every picture white: the blind baseline
    system_prompt: str = ""
    path: str = ""  # where the rows are: a file, a glob, a folder or a hub id; empty: the data set's own place on the hub
    revision: str = ""  # of a hub data set: branch, tag or commit; empty: the newest
    hub: Literal["huggingface", "modelscope"] = "huggingface"
    prompt_key: str = ""  # columns of a table; empty: the usual names (problem, question, prompt …)
    answer_key: str = ""
    image_keys: tuple[str, ...] = ()
    choices_key: str = ""
    id_key: str = ""
    template: str = ""  # text around a table's prompt, with {prompt} in it; empty: the prompt alone
    bad_rows: Literal["skip", "stop"] = "skip"  # rows that cannot be used: counted by reason and replaced, or an error
    max_pixels: int = Field(0, ge=0)  # larger pictures are shrunk to this many pixels, aspect kept; 0: left to the model's image processor
    max_prompt_tokens: int = Field(0, ge=0)  # longer prompts (picture tokens included) are bad rows; 0: no limit; never cut


class RolloutConfig(Section):
    """What is sampled in a step."""

    questions_per_step: int = Field(32, ge=1)
    group_size: int = Field(8, ge=2)
    max_tokens: int = Field(64, ge=1)
    temperature: float = Field(1.0, gt=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0)
    stop: tuple[str, ...] = ()
    dynamic_sampling: int = Field(0, ge=0)  # times that flat groups of a step are replaced by other questions


class RewardConfig(Section):
    """Reward parts and their weights. A part is a registered reward or `file.py:function`; the sum is the reward."""

    parts: dict[str, float] = Field(default_factory=lambda: {"count": 1.0})
    settings: dict[str, dict[str, Any]] = Field(default_factory=dict)  # keyword arguments of a part, by its name
    minimum: float | None = None  # the weighted sum is not less than this
    maximum: float | None = None
    isolate: bool = True  # parts that can hang (`math`, functions of your own) run in worker processes that can be killed
    workers: int = Field(2, ge=1)  # of them
    timeout: float = Field(30.0, gt=0)  # seconds for one call of one part; over it the answer has a failed grader, not a score of 0


class AlgorithmConfig(Section):
    """From rewards to a gradient."""

    advantage: str = "mean"
    advantage_config: dict[str, float] = Field(default_factory=dict)  # settings of the function; `positive`, `negative`: factors by sign
    loss: str = "importance_sampling"
    loss_config: dict[str, float] = Field(default_factory=dict)
    reduction: Literal["sum", "token_mean", "sequence_mean", "constant_length"] = "token_mean"  # constant_length: ÷ rollout.max_tokens
    kl_coef: float = Field(0.0, ge=0)  # weight of the KL to the reference
    kl_estimator: Literal["k2", "k3", "k3_unbiased"] = "k3"
    reference: str = ""  # what the KL compares with: a model, a run or a checkpoint; empty: the base
    kl_in: Literal["loss", "reward"] = "loss"  # reward: the KL of each answer is taken off its reward
    entropy_coef: float = 0.0  # weight of an entropy bonus
    epochs: int = Field(1, ge=1)  # passes over the answers of a step
    minibatches: int = Field(1, ge=1)  # optimizer steps in each of them
    stop_ratio: float = Field(0.0, ge=0)  # no more updates on a batch once the mean ratio is above this; 0: off
    mask_truncated: bool = False  # answers cut at the limit are not trained on
    old_logprobs: Literal["sampler", "recomputed"] = "sampler"  # recomputed: by the trainer, before the first update of a step
    correction: str = "none"  # of a sampler that is not the trainer: none, tis, icepop, sequence_tis, sequence_mask, geometric_mask
    correction_config: dict[str, float] = Field(default_factory=dict)
    mismatch_alarm: float = Field(0.0, ge=0)  # mean |trainer − sampler| logprob that is told; 0: off
    mismatch_stop: float = Field(0.0, ge=0)  # and that ends the run
    on_policy_tolerance: float = Field(1e-4, gt=0)  # float32 CPU: largest |trainer − sampler| logprob on fresh samples


class OptimizerConfig(Section):
    """Adam and its schedule."""

    learning_rate: float = Field(1e-4, gt=0)
    vision_learning_rate: float | None = Field(None, gt=0)  # None: the same as learning_rate
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    warmup_steps: int = Field(0, ge=0)
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.95, ge=0, lt=1)
    eps: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    grad_clip_norm: float = Field(1.0, ge=0)  # 0: off


class EvalConfig(Section):
    """Evaluation: greedy unless told."""

    every: int = Field(0, ge=0)  # steps between evaluations while training; 0: none
    split: str = "dev"
    num_items: int = Field(200, ge=1)
    batch_size: int = Field(128, ge=1)
    max_tokens: int | None = Field(None, ge=1)  # None: as in rollout
    samples: int = Field(1, ge=1)  # answers to each item; more than one gives mean@k and pass@k
    temperature: float = Field(0.0, ge=0, validate_default=True)  # 0: greedy

    @field_validator("temperature")
    @classmethod
    def _several_answers_differ(cls, temperature: float, info: ValidationInfo) -> float:
        if temperature == 0 and info.data.get("samples", 1) > 1:
            told = "eval.samples is over 1, and at temperature 0 all answers to an item are the same; set eval.temperature, e.g. to 0.7"
            raise PydanticCustomError("same_answers", told)
        return temperature


class SaveConfig(Section):
    """Checkpoints: sampler weights and full training state."""

    every: int = Field(25, ge=0)  # steps; 0: only at the end
    keep: int = Field(2, ge=1)  # newest full states that are kept (weights for inference are all kept)


class TrackConfig(Section):
    """Where metrics are sent beside the run directory."""

    to: tuple[Literal["swanlab", "wandb", "tensorboard", "trackio"], ...] = ()
    project: str = "seegrad"
    offline: bool = False  # write locally, send nothing
    samples: int = Field(4, ge=0)  # answers with their pictures that are shown for every `every`-th step; 0: none
    every: int = Field(10, ge=1)

    @field_validator("to", mode="before")
    @classmethod
    def _names_with_commas(cls, value: Any) -> Any:
        """`track.to=wandb` and `track.to=wandb,tensorboard` are lists too."""
        return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value


class CostConfig(Section):
    """Prices per million tokens; with any of them a run says what it would have cost."""

    currency: str = "¥"
    prefill: float | None = Field(None, ge=0)
    sampled: float | None = Field(None, ge=0)
    trained: float | None = Field(None, ge=0)


class Config(Section):
    """One run. Defaults run on a laptop."""

    name: str = "count"
    steps: int = Field(100, ge=1)
    seed: int = Field(0, ge=0, lt=2**63)
    out: str = ""  # run directory; empty: runs/<name>-<date>-<number>
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    rollout: RolloutConfig = RolloutConfig()
    reward: RewardConfig = RewardConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    eval: EvalConfig = EvalConfig()
    save: SaveConfig = SaveConfig()
    track: TrackConfig = TrackConfig()
    cost: CostConfig = CostConfig()


def recipe_names() -> list[str]:
    """Names of the recipes in the package, sorted."""
    folder = resources.files("seegrad") / "recipes"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load_config(recipe: str, overrides: Iterable[str] = ()) -> Config:
    """The config of a recipe name or TOML file with `key=value` overrides. Raises UsageError in one line.

    >>> load_config("count", ["steps=3"]).steps
    3
    """
    tree = _read_recipe(recipe)
    for override in overrides:
        _apply(tree, override)
    return from_tree(tree, recipe)


def from_tree(tree: Mapping[str, Any], source: str) -> Config:
    """Validate a nested mapping; `source` names where it came from in the error."""
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise UsageError(f"{source}: unknown key {path!r}{_nearest_key(path)}") from None
        raise UsageError(f"{source}: {path}: {first['msg']} (given {first.get('input')!r})") from None


def resolved_toml(config: Config) -> str:
    """The whole tree as TOML, every value written out; `None` values are left out (their default is None)."""
    lines: list[str] = []
    sections = []
    for key, value in config.model_dump().items():
        if isinstance(value, dict):
            sections.append((key, value))
        else:
            lines.append(f"{key} = {_toml_value(value)}")
    for name, table in sections:
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {_toml_value(value)}" for key, value in table.items() if value is not None]
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _toml_text(value)
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml_text(key)} = {_toml_value(item)}" for key, item in value.items()) + " }"
    return "[" + ", ".join(_toml_value(item) for item in value) + "]"


def _toml_text(text: str) -> str:
    """JSON's escapes are TOML's too, but TOML also wants the delete character escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _read_recipe(recipe: str) -> dict[str, Any]:
    path = Path(recipe)
    if recipe in recipe_names():
        text = (resources.files("seegrad") / "recipes" / f"{recipe}.toml").read_text(encoding="utf-8")
    elif path.suffix == ".toml" or path.is_file():
        text = _read_file(path)
    else:
        raise UsageError(f"no recipe {recipe!r}{nearest(recipe, recipe_names())}; or give a path ending in .toml")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{recipe}: not valid TOML: {error}") from None


def _read_file(path: Path) -> str:
    if not path.is_file():
        raise UsageError(f"recipe file {str(path)!r} does not exist; recipes in the package: {', '.join(recipe_names())}")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as UTF-8 text: {error}") from None


def _apply(tree: dict[str, Any], override: str) -> None:
    key, found, raw = override.partition("=")
    key = key.strip()
    if not found or not key:
        raise UsageError(f"override {override!r} is not key=value; for example: steps=50 optimizer.learning_rate=1e-5")
    *parents, leaf = _split_key(key)
    node = tree
    for part in parents:
        child = node.setdefault(part, {})
        if not isinstance(child, dict):
            raise UsageError(f"override {override!r}: {part!r} is a value, not a section")
        node = child
    node[leaf] = raw.strip() if _is_text(key) and not raw.strip().startswith(('"', "'")) else _parse_value(raw.strip())


def _is_text(key: str) -> bool:
    """True for a setting that is a string: `out=2024-01-01` is a folder, not a date."""
    section, _, leaf = key.rpartition(".")
    owner = Config.model_fields[section].annotation if section in Config.model_fields else Config
    fields = getattr(owner, "model_fields", {}) if section in ("", *Config.model_fields) else {}
    return leaf in fields and fields[leaf].annotation is str


def _split_key(key: str) -> list[str]:
    """`reward.parts.my/file.py:f` keeps the address in one piece, `reward.settings.my/file.py:f.size` too."""
    if key.startswith("reward.settings.") and key.count(".") > 2:
        part, _, setting = key.removeprefix("reward.settings.").rpartition(".")
        return ["reward", "settings", part, setting]
    return key.split(".", 2) if key.startswith("reward.parts.") else key.split(".")


def _parse_value(raw: str) -> Any:
    """TOML's own reading where it has one (numbers, booleans, lists, tables), else a plain string."""
    try:
        return tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return raw


def _all_keys() -> list[str]:
    keys: list[str] = []
    for name, info in Config.model_fields.items():
        section = info.annotation
        if isinstance(section, type) and issubclass(section, Section):
            keys.extend(f"{name}.{inner}" for inner in section.model_fields)
        keys.append(name)
    return keys


def _nearest_key(path: str) -> str:
    """The nearest whole key; a bare leaf that exists in one section is named with its section."""
    keys = _all_keys()
    leaf = path.rsplit(".", 1)[-1]
    same_leaf = [key for key in keys if key.rsplit(".", 1)[-1] == leaf]
    if same_leaf:
        return f"; did you mean {same_leaf[0]!r}?"
    hint = nearest(path, keys)
    return hint if "did you mean" in hint else _nearest_leaf(leaf, keys)


def _nearest_leaf(leaf: str, keys: list[str]) -> str:
    leaves = {key.rsplit(".", 1)[-1]: key for key in keys}
    hint = nearest(leaf, leaves)
    if "did you mean" in hint:
        return f"; did you mean {leaves[hint.split(chr(39))[1]]!r}?"
    return "; `seegrad train RECIPE --dry-run` prints every key"
