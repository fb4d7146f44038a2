"""One frozen tree: recipes, overrides, and what a wrong key or value says."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from seegrad import registry
from seegrad.config import Config, from_tree, load_config, recipe_names, resolved_toml
from seegrad.errors import UsageError
from seegrad.rewards.base import Rewards

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_parses_and_names_what_exists(name: str) -> None:
    config = load_config(name)
    assert config.name == name
    Rewards(config.reward.parts)
    assert callable(registry.load("dataset", config.data.name))
    assert callable(registry.load("advantage", config.algorithm.advantage))
    assert config.algorithm.loss in registry.names("loss")


def test_the_three_tasks_are_recipes() -> None:
    assert {"count", "choice", "ground"} <= set(recipe_names())


def test_overrides_win_and_are_typed() -> None:
    config = load_config("count", ["steps=3", "optimizer.learning_rate=1e-5", "rollout.stop=['。','\\n']", "model.train_vision=false", "out=runs/a"])
    assert (config.steps, config.optimizer.learning_rate, config.rollout.stop) == (3, 1e-5, ("。", "\\n"))
    assert config.model.train_vision is False and config.out == "runs/a"
    assert load_config("count", ["steps=3", "steps=4"]).steps == 4
    assert load_config("count", ["data.system_prompt=a = b"]).data.system_prompt == "a = b"
    assert load_config("count", ["data.system_prompt="]).data.system_prompt == ""


@pytest.mark.parametrize("text", ["2024-01-01", "07:32:00", "5", "007", "1.50", "1e3", "0x10", "true", "[a", "inf", "runs/5"])
def test_a_text_setting_takes_what_was_typed(text: str) -> None:
    assert load_config("count", [f"out={text}"]).out == text


def test_a_quoted_text_is_read_as_toml() -> None:
    assert load_config("count", ['out="a\\tb"']).out == "a\tb"


def test_reward_parts_may_be_addresses() -> None:
    config = load_config("count", ["reward.parts.my/file.v2.py:grade=0.5", "reward.parts.count=2"])
    assert config.reward.parts["my/file.v2.py:grade"] == 0.5 and config.reward.parts["count"] == 2
    assert load_config("count", ["reward.parts={ iou = 1 }"]).reward.parts == {"iou": 1.0}


def test_a_tree_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Config().steps = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("stepz=3", "unknown key 'stepz'; did you mean 'steps'"),
        ("learning_rate=3", "did you mean 'optimizer.learning_rate'"),
        ("optimizer.lerning_rate=3", "did you mean 'optimizer.learning_rate'"),
        ("modle.base=tiny", "did you mean 'model'"),
        ("group_sise=4", "did you mean 'rollout.group_size'"),
        ("qqqq=1", "--dry-run"),
        ("steps", "is not key=value"),
        ("=3", "is not key=value"),
        ("steps=many", "steps: .*'many'"),
        ("steps=0", "steps: .*0"),
        ("steps=true", "steps: .*should not be true or false"),
        ("rollout.temperature=true", "temperature: .*should not be true or false"),
        ("seed=99999999999999999999", "seed: .*less than"),
        ("rollout.group_size=1", "group_size"),
        ("optimizer.learning_rate=nan", "learning_rate"),
        ("optimizer.learning_rate=inf", "learning_rate"),
        ("model=tiny", "model"),
        ("steps.x=1", "steps"),
        ("model.base.x=1", "'base' is a value, not a section"),
        ("model.train=half", "model.train"),
    ],
)
def test_a_wrong_override_is_explained_in_one_line(override: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        load_config("count", [override])
    assert "\n" not in str(caught.value)


def test_every_misspelled_key_is_recognised() -> None:
    """One letter missing from any key of any section: the right key is named."""
    for section, info in Config.model_fields.items():
        for key in getattr(info.annotation, "model_fields", {}):
            if len(key) < 4:
                continue
            with pytest.raises(UsageError, match="did you mean") as caught:
                from_tree({section: {key[:2] + key[3:]: 1}}, "test")
            assert key in str(caught.value), (section, key)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [("cuont", "no recipe 'cuont'; did you mean 'count'"), ("nowhere.toml", "does not exist; recipes in the package: .*count"), ("", "no recipe ''")],
)
def test_a_wrong_recipe_is_explained(recipe: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_config(recipe)


@pytest.mark.parametrize(
    ("content", "message"), [(b"steps = = 3", "not valid TOML"), (b"steps = 3\nname = '\xff'", "not valid TOML|UTF-8"), (b"setps = 3", "'steps'")]
)
def test_a_wrong_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        load_config(str(path))
    assert "mine.toml" in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_in_the_way_does_not_hide_a_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "count").write_text("notes, not TOML")
    monkeypatch.chdir(tmp_path)
    assert load_config("count").data.name == "count"


@pytest.mark.parametrize("name", recipe_names())
def test_the_resolved_tree_is_enough_to_run_again(tmp_path: Path, name: str) -> None:
    config = load_config(name, ["eval.max_tokens=7", "model.lora_alpha=16"])
    path = tmp_path / "resolved.toml"
    path.write_text(resolved_toml(config), encoding="utf-8")
    assert load_config(str(path)) == config


@given(name=TEXT, part=TEXT, weight=st.floats(allow_nan=False, allow_infinity=False), stops=st.lists(TEXT, max_size=3), rate=st.floats(1e-300, 1e300))
def test_any_value_survives_the_resolved_file(name: str, part: str, weight: float, stops: list[str], rate: float) -> None:
    tree = {"name": name, "reward": {"parts": {part: weight}}, "rollout": {"stop": stops}, "optimizer": {"learning_rate": rate}}
    config = from_tree(tree, "test")
    assert from_tree(tomllib.loads(resolved_toml(config)), "again") == config
