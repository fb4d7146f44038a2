"""docs/rewards.md: every piece of code on the page runs, every setting on it is one."""

from __future__ import annotations

import inspect
import io
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from PIL import Image

from seegrad import registry
from seegrad.config import Config, load_config
from seegrad.rewards.base import Rewards
from seegrad.types import Answer, Example

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "rewards.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
FILES = {found[1]: code for kind, code in BLOCKS if kind == "python" and (found := re.match(r"# (\w+\.py)\n", code))}
REWARDS = [
    "mine.py:short", "settings.py:near", "yes_no.py:yes_no", "group.py:rare", "pictures.py:names_the_colour",
    "objects.py:steps", "objects.py:brief", "later.py:patient",
]  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, code in FILES.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def row() -> Example:
    stream = io.BytesIO()
    Image.new("RGB", (8, 8), (200, 10, 10)).save(stream, "PNG")
    return Example("row-1", "Is it red?", "yes", (stream.getvalue(),))


def test_every_reward_on_the_page_grades() -> None:
    assert {name.partition(":")[0] for name in REWARDS} == FILES.keys()
    answers = [Answer("first it is red, so yes", 60), Answer("no", 5)]
    with Rewards(dict.fromkeys(REWARDS, 1.0)) as rewards:
        right, wrong = rewards.grade_groups([(row(), answers)])[0]
    assert (right.error, wrong.error) == (None, None)
    assert list(right.scores.values()) == [1, pytest.approx(0.6), 1, 1, 1, pytest.approx(2 / 3), 1, 1]
    assert list(wrong.scores.values()) == [1, pytest.approx(0.05), 0, 1, 0, 0, 1, 0]


def test_every_program_on_the_page_runs() -> None:
    programs = [code for kind, code in BLOCKS if kind == "python" and not code.startswith("# ")]
    assert len(programs) == 1
    for code in programs:
        exec(compile(code, "rewards.md", "exec"), {})


def test_every_command_and_recipe_on_the_page_is_understood() -> None:
    commands = [shlex.split(line)[2:] for kind, code in BLOCKS if kind == "sh" for line in code.splitlines() if line.startswith("seegrad train")]
    configs = [load_config(words[0], words[1:]) for words in commands]
    configs += [Config.model_validate({"name": "x", **tomllib.loads(code)}) for kind, code in BLOCKS if kind == "toml"]
    assert len(configs) == 4
    for config in configs:
        Rewards(config.reward.parts, settings=config.reward.settings, minimum=config.reward.minimum, maximum=config.reward.maximum)


def test_the_defaults_on_the_page_are_the_defaults() -> None:
    reward = Config(name="x").reward
    for name, value in {"isolate": "`true`" if reward.isolate else "`false`", "workers": reward.workers, "timeout": f"{reward.timeout:g}"}.items():
        assert f"| `reward.{name}` | {value} |" in PAGE
    for name in ("length", "repetition"):
        settings = [
            parameter for parameter in inspect.signature(registry.load("reward", name)).parameters.values() if parameter.default != parameter.empty
        ]
        assert len(settings) == 2 and all(f"`{setting.name}` ({setting.default})" in PAGE for setting in settings)
