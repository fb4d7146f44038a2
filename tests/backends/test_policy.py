"""The local policy: what trains, what samplers see, what is written for inference."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForImageTextToText, AutoTokenizer, Qwen3VLForConditionalGeneration

from seegrad.backends.local.backend import LocalBackend
from seegrad.backends.local.checkpoint import write_model
from seegrad.backends.local.lora import adapter_targets, load_adapter, merge_adapter
from seegrad.config import ModelConfig
from seegrad.errors import RunError, UsageError
from seegrad.families.qwen3_vl import FAMILY
from seegrad.models.base import load_model
from seegrad.types import AdamParams, Datum, LossSpec, SamplingParams
from tests.backends.training import ADAM, LOSS, PROMPTS, changed, largest_gap, policy, rollouts, take_step, tensors
from tests.reference import plain_inputs, plain_logprobs
from tests.tinymodel import tiny_folder


def kind(name: str) -> str:
    part = "vision" if name.startswith("model.visual.") else "language"
    return f"{part} adapter" if ".lora_" in name else part


@pytest.mark.parametrize(
    ("train", "train_vision", "kinds"),
    [
        ("lora", False, {"language adapter"}),
        ("lora", True, {"language adapter", "vision adapter"}),
        ("full", False, {"language"}),
        ("full", True, {"language", "vision"}),
    ],
)
def test_one_step_changes_what_the_mode_says(train: str, train_vision: bool, kinds: set[str]) -> None:
    made = policy(train, train_vision=train_vision)
    before = tensors(made)
    take_step(made)
    take_step(made, 1)  # an adapter's first half has no gradient until its second half has moved
    moved = changed(before, tensors(made))
    assert moved == {name for name in before if kind(name) in kinds}
    assert made.version == 2


ATTENTION, MLP = {"q_proj", "k_proj", "v_proj", "o_proj"}, {"gate_proj", "up_proj", "down_proj"}


@pytest.mark.parametrize(
    ("targets", "train_vision", "language", "tower"),
    [
        (("attention",), False, ATTENTION, set()),
        (("mlp",), False, MLP, set()),
        (("mlp", "q_proj"), False, MLP | {"q_proj"}, set()),
        (("all-linear",), False, ATTENTION | MLP, set()),
        (("attention", "down_proj"), False, ATTENTION | {"down_proj"}, set()),
        (("attention",), True, ATTENTION, {"blocks.attn.qkv", "blocks.attn.proj"}),
        (("mlp",), True, MLP, {"blocks.mlp.linear_fc1", "blocks.mlp.linear_fc2"}),
    ],
    ids=range(7),
)
def test_one_step_changes_the_layers_that_the_words_name(targets: tuple[str, ...], train_vision: bool, language: set[str], tower: set[str]) -> None:
    made = policy(lora_targets=targets, train_vision=train_vision)
    before = tensors(made)
    take_step(made)
    take_step(made, 1)
    moved = changed(before, tensors(made))
    assert moved == {name for name in before if ".lora_" in name}, "every adapter moved, nothing else did"
    layers = {name.partition(".lora_")[0] for name in moved}
    assert {name.rsplit(".", 1)[-1] for name in layers if not name.startswith("model.visual.")} == language
    assert {".".join(word for word in name.split(".")[2:] if not word.isdigit()) for name in layers if name.startswith("model.visual.")} == tower


def test_all_linear_is_what_is_adapted_without_targets() -> None:
    vlm = load_model(tiny_folder(), FAMILY)
    for train_vision in (False, True):
        plain, word = (adapter_targets(vlm, ModelConfig(train_vision=train_vision, lora_targets=targets)) for targets in ((), ("all-linear",)))
        assert plain == word


def test_head_and_embeddings_are_adapted_only_when_named() -> None:
    vlm = load_model(tiny_folder(), FAMILY)
    leaves = {name.rsplit(".", 1)[-1] for name in adapter_targets(vlm, ModelConfig())}
    assert leaves == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert adapter_targets(vlm, ModelConfig(lora_targets=("lm_head", "q_proj"))) == ["lm_head", "q_proj"]
    with_vision = adapter_targets(vlm, ModelConfig(train_vision=True))
    assert "model.visual.blocks.0.attn.proj" in with_vision  # `proj` alone would also name the patch embedding
    assert not any("lm_head" in name or "embed" in name for name in with_vision)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lora_targets": ("q_prj",)}, "no layer 'q_prj'; did you mean 'q_proj'"),
        ({"lora_targets": ("atention",)}, "no layer 'atention'; did you mean 'attention'"),
        ({"lora_targets": ("qkv",)}, "set model.train_vision=true"),
        ({"lora_targets": ("q_proj",), "train_vision": True}, "names no layer of the vision tower"),
    ],
)
def test_wrong_targets_are_one_line(settings: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        policy(**settings)


def test_the_seed_fixes_the_adapter() -> None:
    first, same, other = (tensors(policy(seed=seed)) for seed in (1, 1, 2))
    assert not changed(first, same)
    assert changed(first, other) == {name for name in first if "lora_A" in name}


@pytest.mark.parametrize("train", ["lora", "full"])
def test_fresh_samples_are_on_policy(train: str) -> None:
    made = policy(train)
    for seed in range(2):
        datums = rollouts(made.sampler(), seed)
        metrics = made.forward_backward(datums, LOSS).metrics
        assert metrics["ratio_max_deviation"] < 1e-4
        assert metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-4)
        made.optim_step(ADAM)
    assert made.forward(datums, LOSS).metrics["ratio_max_deviation"] > 1e-3  # after the step they no longer are


@pytest.mark.parametrize("train", ["lora", "full"])
def test_steps_move_towards_what_paid(train: str) -> None:
    made = policy(train)
    datums = rollouts(made.sampler())
    before = made.forward(datums, LossSpec("importance_sampling")).metrics["loss"]
    for _ in range(3):
        made.forward_backward(datums, LossSpec("importance_sampling"))
        made.optim_step(AdamParams(learning_rate=1e-3))
    assert made.forward(datums, LossSpec("importance_sampling")).metrics["loss"] < before - 0.01


@pytest.mark.parametrize("train", ["lora", "full"])
def test_the_reference_is_the_base(train: str) -> None:
    made = policy(train)
    datums = rollouts(made.sampler())
    loss = LossSpec("importance_sampling", {"kl_coef": 0.1})

    def with_reference() -> list[Datum]:
        scored = made.reference().logprobs(datums)
        return [dataclasses.replace(datum, inputs={**datum.inputs, "ref_logprobs": ref}) for datum, ref in zip(datums, scored, strict=True)]

    base = made.sampler().logprobs(datums)
    assert made.forward(with_reference(), loss).metrics["kl"] == pytest.approx(0.0, abs=1e-9)
    take_step(made)
    assert largest_gap(made.reference().logprobs(datums), base) < 1e-6
    assert made.reference().version == 0
    assert made.forward(with_reference(), loss).metrics["kl"] > 1e-5
    made.forward_backward(with_reference(), loss)
    assert made.optim_step(ADAM)["grad_norm"] > 0  # the reference left gradients on


def test_the_reference_of_full_training_can_be_asked_for_late() -> None:
    made = policy("full")
    datums = rollouts(made.sampler())
    base = made.sampler().logprobs(datums)
    take_step(made)
    assert largest_gap(made.reference().logprobs(datums), base) < 1e-6


@pytest.mark.parametrize(("train", "train_vision"), [("lora", False), ("full", True)])
def test_a_sampler_keeps_its_weights(train: str, train_vision: bool) -> None:
    made = policy(train, train_vision=train_vision)
    first, again = made.sampler(), made.sampler()
    datums = rollouts(first)
    before = first.logprobs(datums)
    texts = [completion.tokens_T for row in first.sample(PROMPTS, SamplingParams(max_tokens=8), 2) for completion in row]
    take_step(made)
    second = made.sampler()
    newer = second.logprobs(datums)
    take_step(made, 1)
    for sampler in (first, again):
        assert sampler.version == 0
        assert largest_gap(sampler.logprobs(datums), before) == 0.0
    assert [completion.tokens_T for row in first.sample(PROMPTS, SamplingParams(max_tokens=8), 2) for completion in row] == texts
    assert second.version == 1 and largest_gap(second.logprobs(datums), newer) == 0.0
    assert largest_gap(newer, before) > 1e-3 and largest_gap(made.sampler().logprobs(datums), newer) > 1e-3
    assert made.sampler().version == 2


def test_weights_are_copied_only_for_a_sampler_that_is_held() -> None:
    made = policy()
    rollouts(made.sampler())
    assert made._view is not None and made._view() is None  # nobody holds it: nothing will be copied
    held = made.sampler()
    assert made._view() is held._weights
    take_step(made)
    assert held._weights._kept is not None  # type: ignore[attr-defined]


def test_samplers_of_several_versions_in_threads() -> None:
    made = policy()
    old = made.sampler()
    datums = rollouts(old)
    take_step(made)
    new = made.sampler()
    wanted = {0: old.logprobs(datums), 1: new.logprobs(datums)}
    gaps: list[float] = []

    def ask(sampler: object) -> None:
        for _ in range(3):
            gaps.append(largest_gap(sampler.logprobs(datums), wanted[sampler.version]))  # type: ignore[attr-defined]

    threads = [threading.Thread(target=ask, args=(sampler,)) for sampler in (old, new, old, new)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gaps == [0.0] * 12


def test_gradients_accumulate_until_the_step() -> None:
    made = policy()
    datums = rollouts(made.sampler())
    spec = LossSpec("ppo", denominator=float(sum(int(datum.active_T.sum()) for datum in datums)))
    made.forward_backward(datums, spec)
    whole = {name: p.grad.clone() for name, p in made._trained.items() if p.grad is not None}
    made.optim_step(AdamParams(learning_rate=1e-12))
    assert all(p.grad is None for p in made._trained.values())
    made.forward_backward(datums[:2], spec)
    made.forward_backward(datums[2:], spec)
    # Up to the tiny step in between.
    assert max(float((p.grad - whole[name]).abs().max()) for name, p in made._trained.items() if p.grad is not None) < 1e-5


def test_the_gradient_norm_is_that_of_all_and_is_clipped() -> None:
    norms = {}
    for clip in (0.0, 1e-3):
        made = policy("full", train_vision=True)
        made.forward_backward(rollouts(made.sampler()), LOSS)
        wanted = float(torch.cat([p.grad.flatten() for p in made._trained.values() if p.grad is not None]).norm())
        metrics = made.optim_step(AdamParams(grad_clip_norm=clip, beta1=0.0))
        assert metrics["grad_norm"] == pytest.approx(wanted, rel=1e-4)
        assert 0 < metrics["vision_grad_norm"] < metrics["grad_norm"]
        assert made._optimizer is not None
        norms[clip] = float(torch.cat([made._optimizer.state[p]["exp_avg"].flatten() for p in made._trained.values()]).norm())
        assert norms[clip] == pytest.approx(clip or wanted, rel=1e-3)


def test_the_vision_tower_has_its_own_learning_rate() -> None:
    """Adam's first step moves every entry by the learning rate, whatever the gradient."""
    made = policy("full", train_vision=True)
    before = tensors(made)
    made.forward_backward(rollouts(made.sampler()), LOSS)
    made.optim_step(AdamParams(learning_rate=1e-3, vision_learning_rate=1e-4, eps=1e-12))
    after = tensors(made)
    steps = {name: float((after[name] - before[name]).abs().max()) for name in before}
    for name, step in steps.items():
        assert step == pytest.approx(1e-4 if kind(name) == "vision" else 1e-3, rel=0.02), name


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_not_applied(value: float) -> None:
    made = policy()
    before = tensors(made)
    made.forward_backward(rollouts(made.sampler()), LOSS)
    grad = next(p.grad for p in made._trained.values() if p.grad is not None)
    grad.view(-1)[0] = value
    assert made.optim_step(ADAM)["skipped"] == 1
    assert made.version == 0 and not changed(before, tensors(made))
    take_step(made)
    assert made.version == 1


def test_a_batch_without_signal_moves_nothing() -> None:
    made = policy()
    take_step(made)
    before = tensors(made)
    for datums in ([], [dataclasses.replace(d, inputs={**d.inputs, "mask": np.zeros(len(d), np.float32)}) for d in rollouts(made.sampler())]):
        assert made.forward_backward(datums, LOSS).metrics["loss"] == 0.0
        metrics = made.optim_step(ADAM)
        assert metrics["grad_norm"] == 0.0 and metrics["skipped"] == 1.0
    assert made.version == 1 and not changed(before, tensors(made))


def test_small_steps_are_not_lost_in_bfloat16() -> None:
    made = policy("full", dtype="bfloat16")
    before = tensors(made)
    name = "model.language_model.layers.0.mlp.up_proj.weight"
    assert before[name].dtype == torch.bfloat16
    datums = rollouts(made.sampler())
    for _ in range(4):
        made.forward_backward(datums, LossSpec("cross_entropy"))
        made.optim_step(AdamParams(learning_rate=1e-4))
    moved = tensors(made)[name].float() - before[name].float()
    assert moved[before[name].abs() > 0.0625].any()  # numbers there are 5e-4 apart: a step of 1e-4 alone rounds to nothing, four of them do not
    assert float((made._masters[name].detach() - before[name].float()).abs().max()) == pytest.approx(4e-4, rel=0.2)


def test_adapter_folder_loads_with_peft_and_merges_equal(tmp_path: Path) -> None:
    made = policy(train_vision=True)
    take_step(made)
    take_step(made, 1)
    datums = rollouts(made.sampler())
    trained = made.sampler().logprobs(datums)
    made.save_weights(tmp_path / "weights")
    assert {path.name for path in (tmp_path / "weights").iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}

    base = Qwen3VLForConditionalGeneration.from_pretrained(tiny_folder()).eval()
    plain = PeftModel.from_pretrained(base, tmp_path / "weights").eval()
    prompt, tokens = datums[0].model_input, tuple(datums[0].target_tokens_T[datums[0].active_T].tolist())
    start = len(prompt) - len(tokens) + 1
    with torch.no_grad():
        logits = plain(**plain_inputs(tiny_folder(), prompt)).logits[0, start - 1 :]
    logits[:, load_model(tiny_folder(), FAMILY).banned_ids] = -torch.inf
    by_peft = logits.log_softmax(-1)[torch.arange(len(tokens)), torch.tensor(tokens)].numpy()
    assert np.abs(by_peft - trained[0][datums[0].active_T]).max() < 1e-5

    reopened = LocalBackend().sampler(ModelConfig(base=str(tiny_folder()), device="cpu"), tmp_path / "weights")
    assert largest_gap(reopened.logprobs(datums), trained) < 1e-5
    merged = load_model(tiny_folder(), FAMILY)
    merge_adapter(merged, tmp_path / "weights")
    write_model(tmp_path / "merged", merged)
    whole = LocalBackend().sampler(ModelConfig(base=str(tmp_path / "merged"), device="cpu"))
    assert largest_gap(whole.logprobs(datums), trained) < 1e-4
    untrained = LocalBackend().sampler(ModelConfig(base=str(tiny_folder()), device="cpu"))
    assert largest_gap(untrained.logprobs(datums), trained) > 1e-3  # the comparison can tell


def test_model_folder_of_full_training_loads_with_transformers(tmp_path: Path) -> None:
    made = policy("full", train_vision=True)
    take_step(made)
    datums = rollouts(made.sampler())
    trained = made.sampler().logprobs(datums)
    made.save_weights(tmp_path / "weights")
    model = AutoModelForImageTextToText.from_pretrained(tmp_path / "weights").eval()
    assert AutoTokenizer.from_pretrained(tmp_path / "weights").chat_template
    tokens = tuple(datums[0].target_tokens_T[datums[0].active_T].tolist())
    prompt = PROMPTS[0]
    assert np.abs(plain_logprobs(model, tmp_path / "weights", prompt, tokens) - trained[0][datums[0].active_T]).max() < 1e-4


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_damaged_adapter_folder_is_named(tmp_path: Path, name: str) -> None:
    policy().save_weights(tmp_path)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(RunError, match=str(tmp_path)) as caught:
        load_adapter(load_model(tiny_folder(), FAMILY), tmp_path)
    assert "\n" not in str(caught.value)
    path.unlink()
    with pytest.raises(RunError, match=f"no {name}"):
        load_adapter(load_model(tiny_folder(), FAMILY), tmp_path)
