"""State folders: continuing equals never having stopped, bit for bit; damage and other settings are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from seegrad.backends.local.policy import LocalPolicy
from seegrad.errors import RunError
from tests.backends.training import ADAM, LOSS, changed, largest_gap, policy, rollouts, take_step, tensors
from tests.disk import small_file_system
from tests.tinymodel import tiny_folder


def everything(made: LocalPolicy) -> dict[str, torch.Tensor]:
    """Weights and optimizer moments."""
    assert made._optimizer is not None
    names = {id(p): name for name, p in made._stepped().items()}
    moments = {f"{names[id(p)]} {key}": value.clone() for p, state in made._optimizer.state.items() for key, value in state.items()}
    return tensors(made) | moments


@pytest.mark.parametrize(
    "settings",
    [
        {"train": "lora"},
        {"train": "lora", "train_vision": True},
        {"train": "full", "train_vision": True},
        {"train": "full", "dtype": "bfloat16"},
    ],
)
def test_continuing_equals_never_stopping(tmp_path: Path, settings: dict[str, object]) -> None:
    straight = policy(**settings)  # type: ignore[arg-type]
    take_step(straight)
    take_step(straight, 1)
    straight.save_state(tmp_path)
    take_step(straight, 2)

    resumed = policy(**settings, seed=99)  # type: ignore[arg-type]
    resumed.load_state(tmp_path)
    assert resumed.version == 2
    take_step(resumed, 2)
    assert not changed(everything(straight), everything(resumed))
    assert resumed.version == straight.version == 3
    # Without the moments the same step would end elsewhere: the comparison can tell.
    forgetful = policy(**settings, seed=99)  # type: ignore[arg-type]
    forgetful.load_state(tmp_path)
    forgetful._optimizer = None
    take_step(forgetful, 2)
    assert changed(everything(straight), everything(forgetful))


def test_gradients_not_yet_applied_are_kept(tmp_path: Path) -> None:
    straight = policy()
    datums = rollouts(straight.sampler())
    straight.forward_backward(datums, LOSS)
    straight.save_state(tmp_path)
    resumed = policy(seed=99)
    resumed.load_state(tmp_path)
    for made in (straight, resumed):
        made.optim_step(ADAM)
    assert not changed(everything(straight), everything(resumed))


def test_loading_leaves_samplers_alone(tmp_path: Path) -> None:
    made = policy()
    take_step(made)
    made.save_state(tmp_path)
    take_step(made, 1)
    held = made.sampler()
    datums = rollouts(held)
    before = held.logprobs(datums)
    made.load_state(tmp_path)
    assert made.version == 1
    assert largest_gap(held.logprobs(datums), before) == 0.0
    assert largest_gap(made.sampler().logprobs(datums), before) > 1e-4


@pytest.mark.parametrize("name", ["state.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["half", "empty", "missing", "flipped"])
def test_a_damaged_file_is_named_and_nothing_changes(tmp_path: Path, name: str, damage: str) -> None:
    made = policy()
    take_step(made)
    made.save_state(tmp_path)
    path = tmp_path / name
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        middle = len(content) // 2
        path.write_bytes({"half": content[:middle], "empty": b"", "flipped": content[:middle] + b"\xff" + content[middle + 1 :]}[damage])
    before = everything(made)
    with pytest.raises(RunError, match=name) as caught:
        made.load_state(tmp_path)
    assert "\n" not in str(caught.value)
    assert not changed(before, everything(made)) and made.version == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lora_rank": 8}, "lora_rank=4 .now 8."),
        ({"lora_alpha": 1.5}, "lora_alpha=4.0 .now 1.5."),
        ({"lora_targets": ("q_proj",)}, "lora_targets"),
        ({"train_vision": True}, "train_vision=False .now True."),
        ({"train": "full"}, "train='lora' .now 'full'."),
        ({"folder": "another"}, "base="),
    ],
)
def test_other_settings_are_named(tmp_path: Path, settings: dict[str, object], words: str) -> None:
    made = policy()
    made.save_state(tmp_path)
    given = {**settings, "folder": tiny_folder(seed=1)} if "folder" in settings else settings
    with pytest.raises(RunError, match=words):
        policy(**given).load_state(tmp_path)  # type: ignore[arg-type]


def test_a_state_of_another_format_is_refused(tmp_path: Path) -> None:
    made = policy()
    made.save_state(tmp_path)
    facts = json.loads((tmp_path / "state.json").read_text())
    (tmp_path / "state.json").write_text(json.dumps({**facts, "format": 2}))
    with pytest.raises(RunError, match="format 2, expected 1"):
        made.load_state(tmp_path)


@pytest.mark.parametrize("train", ["lora", "full"])
def test_a_full_disk_is_one_line(tmp_path: Path, train: str) -> None:
    made = policy(train=train)
    take_step(made)
    with small_file_system(tmp_path / "small", "32k") as folder:
        for save in (made.save_weights, made.save_state):
            with pytest.raises(RunError, match=r"cannot be written: .*No space left on device.*; free some space"):
                save(folder / save.__name__)
