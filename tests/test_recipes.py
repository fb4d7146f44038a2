"""Every recipe that people know from elsewhere: its settings are those of its source, and it takes two real steps on rows of the true schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from seegrad.config import load_config, resolved_toml
from seegrad.data.rows import load_rows
from seegrad.launch import read_launch, start
from seegrad.rewards.base import Rewards
from tests.data import schemas

ROWS: dict[str, Callable[[Path], object]] = {
    "geoqa": lambda folder: schemas.write_geoqa(folder / "all.parquet", {"train": 8, "dev": 2, "test": 12}),
    "geo3k": lambda folder: [schemas.write_geometry3k(folder / f"{split}.parquet", 8) for split in ("train", "validation", "test")],
    "gsm8k": lambda folder: schemas.write_gsm8k(folder, 230),
    "tutorial": lambda folder: None,  # drawn, not read
}
SMALL = (
    "model.base=tiny model.dtype=float32 model.device=cpu model.lora_rank=2 model.max_sample_batch=8 steps=2 rollout.questions_per_step=2 "
    "rollout.group_size=2 rollout.max_tokens=6 eval.every=2 eval.num_items=2 save.every=0"
)


def small(name: str, folder: Path) -> list[str]:
    """Overrides that make a recipe take two short steps with the bundled model on rows in `folder`."""
    ROWS[name](folder)
    return [*SMALL.split(), *([] if name == "tutorial" else [f"data.path={folder}"])]


@pytest.mark.parametrize("name", sorted(ROWS))
def test_two_steps_with_the_bundled_model(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows").mkdir()
    (tmp_path / "mine.py").write_text("def digest(example, text):\n    return sum(map(ord, text)) % 97 / 97\n", encoding="utf-8")
    varied = "reward.parts.mine.py:digest=0.5"  # so that answers differ in reward: an untrained model gets nothing right in a few tokens
    launch = read_launch([name, *small(name, tmp_path / "rows"), varied], out=tmp_path / "run")
    assert start(launch) == 0
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["step"] for line in metrics] == [1, 2]
    assert all(line["rollout/errors"] == 0 for line in metrics), "no grader failed"
    assert all(line["train_datums"] > 0 and line["trainer/grad_norm"] > 0 for line in metrics), "both steps had something to learn from"
    assert "eval/accuracy" in metrics[-1]
    assert "bad" not in capsys.readouterr().out, "and no row was unusable"


@pytest.mark.parametrize("name", sorted(ROWS))
def test_every_gold_scores_one_with_the_recipes_grader(name: str, tmp_path: Path) -> None:
    config = load_config(name, small(name, tmp_path))
    rewards = Rewards({part: weight for part, weight in config.reward.parts.items() if part not in ("description", "format")})
    try:
        for split in (config.data.train_split, config.eval.split):
            rows = load_rows(split, config.data)
            for example in rows[: min(8, len(rows))]:
                right, wrong = (rewards.grade(example, f"\\boxed{{{answer}}}") for answer in (example.answer, "E" if name == "geoqa" else "987654"))
                assert (right.error, right.correct, right.reward) == (None, True, 1.0), example
                assert (wrong.error, wrong.correct, wrong.reward) == (None, False, 0.0), example
    finally:
        rewards.close()


@pytest.mark.parametrize("name", sorted(ROWS))
def test_the_dry_run_is_enough_to_run_again(name: str, tmp_path: Path) -> None:
    config = load_config(name)
    (tmp_path / "again.toml").write_text(resolved_toml(config), encoding="utf-8")
    assert load_config(str(tmp_path / "again.toml")) == config


def test_geoqa_has_the_settings_of_the_published_runs() -> None:
    config = load_config("geoqa")
    assert (config.model.base, config.model.train, config.model.lora_rank, config.model.enable_thinking) == ("Qwen/Qwen3.5-4B", "lora", 32, False)
    assert (config.rollout.questions_per_step, config.rollout.group_size, config.rollout.max_tokens) == (8, 8, 1024)
    assert (config.rollout.temperature, config.rollout.top_p, config.rollout.top_k) == (1.0, 1.0, 0)
    assert (config.algorithm.advantage, config.algorithm.loss, config.algorithm.kl_coef) == ("mean", "importance_sampling", 0)
    assert (config.optimizer.learning_rate, config.optimizer.schedule, config.steps, config.save.every) == (4e-5, "constant", 100, 25)
    assert (config.data.name, config.data.train_split, config.eval.split, config.eval.num_items) == ("geoqa", "train", "test", 100)
    assert (config.eval.temperature, config.eval.samples) == (0.0, 1), "greedy"
    assert config.reward.parts == {"choice": 1.0}


def test_geo3k_has_the_settings_of_the_published_example() -> None:
    config = load_config("geo3k")
    assert config.model.base == "Qwen/Qwen3-VL-2B-Instruct"
    assert (config.rollout.questions_per_step, config.rollout.group_size, config.rollout.max_tokens) == (64, 8, 4096)
    assert (config.algorithm.advantage, config.algorithm.reduction, config.algorithm.kl_coef) == ("mean_std", "sequence_mean", 0)
    assert config.algorithm.loss_config == {"clip_low": 0.2, "clip_high": 0.28}
    assert (config.algorithm.correction, config.algorithm.correction_config, config.algorithm.old_logprobs) == ("tis", {"cap": 2.0}, "recomputed")
    assert (config.optimizer.learning_rate, config.optimizer.beta1, config.optimizer.beta2, config.optimizer.weight_decay) == (1e-6, 0.9, 0.98, 0.1)
    assert (config.save.every, config.data.max_prompt_tokens) == (100, 4096)


def test_tutorial_has_the_settings_of_the_exercise() -> None:
    config = load_config("tutorial")
    assert config.reward.parts == {"count": 1.0, "description": 0.5, "format": 0.2}
    assert (config.rollout.group_size, config.rollout.questions_per_step, config.rollout.max_tokens, config.rollout.temperature) == (4, 8, 128, 0.8)
    assert (config.algorithm.advantage, config.algorithm.kl_coef, config.optimizer.grad_clip_norm) == ("mean_std", 0.05, 1.0)
    assert (config.optimizer.learning_rate, config.optimizer.vision_learning_rate) == (1e-6, 1e-7)
    passes = config.steps * config.rollout.questions_per_step / 500
    assert 3 <= passes < 3 + config.rollout.questions_per_step / 500, "three epochs of 500 questions"
