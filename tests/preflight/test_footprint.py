"""The estimate of memory against models whose weights are counted, and steps whose tensors are counted."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

from seegrad.backends.local.backend import LocalBackend
from seegrad.config import Config, load_config
from seegrad.errors import BackendError
from seegrad.families.folder import model_folder, read_json
from seegrad.preflight.footprint import GIB, Lengths, footprint, micro_batch
from seegrad.preflight.machine import Machine
from seegrad.preflight.memory import check_memory
from seegrad.preflight.parameters import read_shape
from seegrad.types import AdamParams, Datum, LossSpec, SamplingParams
from seegrad.wiring import Parts
from tests.preflight.live_memory import LiveMemory

TINY = read_json(model_folder("tiny") / "config.json")
QUESTIONS, GROUP, TOKENS = 4, 6, 48
FACTOR = 1.3  # the estimate is within this factor of what is measured


def settings(*overrides: str) -> Config:
    shape = (f"rollout.questions_per_step={QUESTIONS}", f"rollout.group_size={GROUP}", f"rollout.max_tokens={TOKENS}")
    return load_config("count", [*shape, "eval.num_items=4", *overrides])


@pytest.mark.parametrize(
    ("config", "model"),
    [
        (Qwen3VLConfig(**TINY), Qwen3VLForConditionalGeneration),
        (Qwen3VLConfig(), Qwen3VLForConditionalGeneration),
        (Qwen3_5Config(), Qwen3_5ForConditionalGeneration),
        (Qwen3_5Config(tie_word_embeddings=True, text_config={"num_hidden_layers": 6, "attention_bias": True}), Qwen3_5ForConditionalGeneration),
        (Qwen2_5_VLConfig(text_config={"num_hidden_layers": 3}), Qwen2_5_VLForConditionalGeneration),
        (Qwen2_5_VLConfig(text_config={"num_hidden_layers": 3}, tie_word_embeddings=True), Qwen2_5_VLForConditionalGeneration),
    ],
    ids=["tiny", "qwen3_vl", "qwen3_5", "qwen3_5_tied", "qwen2_5_vl", "qwen2_5_vl_tied"],
)
def test_every_weight_is_counted(config: Any, model: Any) -> None:
    shape = read_shape(json.loads(config.to_json_string(use_diff=False)))
    with torch.device("meta"):
        counted = {name: parameter.numel() for name, parameter in model(config).named_parameters()}
    embeddings = sum(number for name, number in counted.items() if "embed_tokens" in name or "lm_head" in name)
    vision = sum(number for name, number in counted.items() if ".visual." in name)
    assert (shape.num_embedding, shape.num_vision, shape.num_weights) == (embeddings, vision, sum(counted.values()))


@pytest.mark.parametrize(
    "overrides",
    [
        ["model.train_vision=false"],
        ["model.train_vision=true"],
        ["model.train_vision=false", 'model.lora_targets=["q_proj","down_proj"]'],
        ["model.train_vision=false", 'model.lora_targets=["attention"]'],
        ["model.train_vision=true", 'model.lora_targets=["mlp"]'],
        ["model.train_vision=true", 'model.lora_targets=["all-linear","q_proj"]'],
    ],
    ids=range(6),
)
def test_every_weight_of_an_adapter_is_counted(overrides: list[str]) -> None:
    config = settings("model.train=lora", "model.lora_rank=5", *overrides)
    policy = LocalBackend().create(config.model)
    trained = sum(parameter.numel() for parameter in policy._trained.values())  # type: ignore[attr-defined]
    assert footprint(read_shape(TINY), config, Lengths(70), "cpu").num_trained == trained


@pytest.mark.parametrize(
    ("train", "dtype"), [("lora", "float32"), ("lora", "bfloat16"), ("full", "float32"), ("full", "bfloat16"), ("vision", "float32")]
)
def test_the_estimate_of_a_training_step_is_near_what_is_measured(train: str, dtype: str) -> None:
    how = {"lora": ("model.train=lora", "model.train_vision=false"), "full": ("model.train=full", "model.train_vision=false"), "vision": ()}[train]
    config = settings(f"model.dtype={dtype}", *how)
    datums, lengths = _batch(config)
    policy: Any = LocalBackend().create(config.model)
    with LiveMemory() as memory:
        policy.forward_backward(datums, LossSpec("importance_sampling"))
    need = footprint(read_shape(TINY), config, lengths, "cpu")
    assert 1 / FACTOR < need.training / memory.peak < FACTOR, (need.training, memory.peak)
    gradients = sum(p.grad.nbytes for p in policy._trained.values() if p.grad is not None)
    policy.optim_step(AdamParams())
    moments = sum(kept[name].nbytes for kept in policy._optimizer.state.values() for name in ("exp_avg", "exp_avg_sq"))
    adapter = sum(p.nbytes for p in policy._trained.values()) if train == "lora" else 0
    copies = 2 * sum(p.nbytes for p in policy._masters.values())  # and their gradients
    assert need.trained == gradients + moments + adapter + copies


def test_micro_batches_lower_the_estimate_as_they_lower_the_peak() -> None:
    peaks, needs = [], []
    for limit in (400, 100_000):
        config = settings(f"model.max_train_tokens={limit}")
        datums, lengths = _batch(config)
        policy = LocalBackend().create(config.model)
        with LiveMemory() as memory:
            policy.forward_backward(datums, LossSpec("importance_sampling"))
        peaks.append(memory.peak)
        needs.append(footprint(read_shape(TINY), config, lengths, "cpu").training)
    assert peaks[0] < peaks[1] / 2 and needs[0] < needs[1] / 2
    assert micro_batch(settings("model.max_train_tokens=400"), 67) == (67 + 6 * 48, 6, 1)
    assert micro_batch(settings("model.max_train_tokens=200"), 67) == (67 + 2 * 48, 2, 1)


def test_the_estimate_of_sampling_is_near_what_is_measured() -> None:
    """A model that never ends an answer: every row runs to its limit, which is what the estimate supposes."""
    config = settings()
    parts = Parts(config)
    prompts = [parts.renderer.render(row) for row in parts.examples("train")[:QUESTIONS]]
    sampler = LocalBackend().sampler(config.model)
    vlm = sampler._vlm  # type: ignore[attr-defined]
    vlm.banned_ids = torch.unique(torch.cat([vlm.banned_ids, torch.tensor(vlm.eos_ids)]))
    with LiveMemory() as memory:
        sampler.sample(prompts, SamplingParams(TOKENS), GROUP)
    need = footprint(read_shape(TINY), config, _lengths(prompts), "cpu")
    assert 1 / FACTOR < need.sampling / memory.peak < FACTOR, (need.sampling, memory.peak)


def test_memory_fails_on_what_is_certain_and_notes_what_is_estimated() -> None:
    shape = read_shape(json.loads(Qwen3VLConfig().to_json_string(use_diff=False)))
    config, lengths = settings("model.train=lora", "model.dtype=bfloat16"), Lengths(400, 300, 300, 100)
    assert check_memory(shape, config, lengths, Machine("cuda", 140 * GIB, 141 * GIB)).passed is True
    check = check_memory(shape, config, lengths, Machine("cuda", 24 * GIB, 40 * GIB))
    assert check.passed is None and "smaller base" in check.change
    check = check_memory(shape, settings("model.train=full"), lengths, Machine("cuda", 24 * GIB, 40 * GIB))
    assert check.passed is False and check.change == "model.train=lora; then model.dtype=bfloat16, or a smaller base"
    assert check_memory(shape, config, lengths, Machine("cpu", None, None)).passed is True
    small = check_memory(read_shape(TINY), settings(), Lengths(67, 36, 36, 8), Machine("cpu", GIB // 4, GIB))
    assert small.passed is None and "model.max_train_tokens=2048" in small.change


def test_models_that_cannot_be_counted_say_so() -> None:
    with pytest.raises(BackendError, match="model type 'llava' cannot be counted; known: qwen3_vl"):
        read_shape({"model_type": "llava"})
    with pytest.raises(BackendError, match="has no 'vocab_size'"):
        read_shape({**TINY, "text_config": {key: value for key, value in TINY["text_config"].items() if key != "vocab_size"}})


def _batch(config: Config) -> tuple[list[Datum], Lengths]:
    parts = Parts(config)
    prompts = [parts.renderer.render(row) for row in parts.examples("train")[:QUESTIONS]]
    generator = np.random.default_rng(0)
    datums = []
    for prompt in prompts:
        for _ in range(GROUP):
            answer = generator.integers(0, 900, TOKENS)
            model_input = prompt + answer[:-1].tolist()
            mask, targets = np.zeros(len(model_input), np.float32), np.zeros(len(model_input), np.int64)
            mask[-TOKENS:], targets[-TOKENS:] = 1, answer
            datums.append(Datum(model_input, targets, {"mask": mask, "advantages": mask, "logprobs": -mask}))
    return datums, _lengths(prompts)


def _lengths(prompts: Any) -> Lengths:
    pictures = [sum(map(len, prompt.images)) for prompt in prompts]
    return Lengths(max(map(len, prompts)), max(pictures), float(np.mean(pictures)), len(prompts))
