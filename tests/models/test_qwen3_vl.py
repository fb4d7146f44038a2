"""Prefill, extend and scoring against plain transformers calls; gradients too."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from seegrad.errors import BackendError, DataError, SamplerError
from seegrad.families.qwen3_vl import FAMILY
from seegrad.models import base
from seegrad.models.base import VLM, causal_mask, load_model, repeat_rows, select_rows
from seegrad.models.qwen import image_positions
from seegrad.models.qwen3_vl import Qwen3VL
from seegrad.types import ImageChunk, ModelInput, TextChunk
from tests.reference import BANNED, plain_inputs, plain_logprobs, plain_model
from tests.tinymodel import IMAGE_PAD, image_prompt, picture, text_tokens, tiny_folder

MIXED = (
    image_prompt("how many circles?", picture(0)),
    image_prompt("hello"),
    image_prompt("which is wider?", picture(1), picture(2, 128, 64)),
    image_prompt("?", picture(3, 64, 96)),
)


@pytest.fixture
def vlm() -> VLM:
    return load_model(tiny_folder(), FAMILY)


def plain_hidden(prompt: ModelInput, tokens: tuple[int, ...] = ()) -> Tensor:
    with torch.no_grad():
        hidden: Tensor = plain_model(tiny_folder()).model(**plain_inputs(tiny_folder(), prompt, tokens)).last_hidden_state[0]
    return hidden


def test_positions_equal_those_of_transformers(vlm: VLM) -> None:
    assert isinstance(vlm, Qwen3VL)
    for prompt in MIXED:
        inputs = plain_inputs(tiny_folder(), prompt)
        expected, delta = plain_model(tiny_folder()).model.get_rope_index(
            inputs["input_ids"], mm_token_type_ids=inputs["mm_token_type_ids"], image_grid_thw=inputs.get("image_grid_thw")
        )
        grids = {str(index): (int(grid[1]) // 2, int(grid[2]) // 2) for index, grid in enumerate(inputs.get("image_grid_thw", []))}
        positions, following = vlm._positions([prompt], list(grids), grids, len(prompt) + 3)
        assert torch.equal(positions[:, :, 3:], expected)
        assert int(following[0]) == len(prompt) + int(delta[0, 0])
    assert not np.array_equal(image_positions(2, 3, 4)[0], image_positions(3, 2, 4)[0])


def test_prefill_of_a_mixed_batch_equals_plain_forward_passes(vlm: VLM) -> None:
    with torch.no_grad():
        prefix = vlm.prefill(MIXED)
    assert prefix.lengths_P.tolist() == [len(prompt) for prompt in MIXED]
    for row, prompt in enumerate(MIXED):
        mine = prefix.hidden_PTH[row, prefix.mask_PT[row]]
        assert (mine - plain_hidden(prompt)).abs().max() < 1e-5
    swapped = plain_hidden(image_prompt("which is wider?", picture(2, 128, 64), picture(1)))  # pictures in the wrong order are noticed
    assert (prefix.hidden_PTH[2, prefix.mask_PT[2]] - swapped).abs().max() > 1e-2


@pytest.mark.parametrize("plant", ["nothing", "position", "mask", "rows"])
def test_extend_continues_as_one_forward_pass_would(vlm: VLM, plant: str) -> None:
    """Right-padded continuations of repeated prompts; each planted error must be noticed."""
    suffixes = [text_tokens("three"), text_tokens("a longer answer"), text_tokens("x")]
    counts = [1, 0, 2, 0]
    width = max(map(len, suffixes))
    tokens = torch.tensor([suffix + (0,) * (width - len(suffix)) for suffix in suffixes])
    real = torch.tensor([[True] * len(suffix) + [False] * (width - len(suffix)) for suffix in suffixes])
    with torch.no_grad():
        whole = vlm.prefill(MIXED)
        prefix = whole.repeat(counts)
        rows = torch.tensor([0, 2, 0 if plant == "rows" else 2])
        mask = torch.ones_like(prefix.mask_PT) if plant == "mask" else prefix.mask_PT
        start = prefix.next_position_P + (1 if plant == "position" else 0)
        hidden = vlm.extend(select_rows(whole.cache, rows), tokens, torch.cat([mask, real], 1), start)
    assert torch.equal(repeat_rows(counts, vlm.device), torch.tensor([0, 2, 2]))
    worst = 0.0
    for row, (prompt, suffix) in enumerate(zip([MIXED[0], MIXED[2], MIXED[2]], suffixes, strict=True)):
        plain = plain_hidden(prompt, suffix)[len(prompt) :]
        worst = max(worst, float((hidden[row, : len(suffix)] - plain).abs().max()))
    assert worst < 1e-5 if plant == "nothing" else worst > 1e-3


def test_extend_in_two_calls_equals_one(vlm: VLM) -> None:
    tokens = torch.tensor([text_tokens("abcd"), text_tokens("wxyz")])
    with torch.no_grad():
        prefix = vlm.prefill(MIXED[:2])
        ones = torch.ones(2, 4, dtype=torch.bool)
        rows = torch.arange(2)
        at_once = vlm.extend(select_rows(prefix.cache, rows), tokens, torch.cat([prefix.mask_PT, ones], 1), prefix.next_position_P)
        cache = select_rows(prefix.cache, rows)
        first = vlm.extend(cache, tokens[:, :3], torch.cat([prefix.mask_PT, ones[:, :3]], 1), prefix.next_position_P)
        last = vlm.extend(cache, tokens[:, 3:], torch.cat([prefix.mask_PT, ones], 1), prefix.next_position_P + 3)
        alone = vlm.prefill(MIXED[:1])
        unmasked = vlm.extend(alone.cache, tokens[:1], None, alone.next_position_P)
    torch.testing.assert_close(torch.cat([first, last], 1), at_once, atol=1e-5, rtol=0)
    torch.testing.assert_close(unmasked, at_once[:1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("plant", [False, True])
def test_gradients_through_the_shared_prefix_equal_plain_ones(vlm: VLM, plant: bool) -> None:
    vlm.vision_frozen = False
    answers = [text_tokens("three"), text_tokens("seven")]
    vlm.hf.requires_grad_(True)
    prefix = vlm.prefill(MIXED[:1]).repeat([2])
    if plant:  # a prefix without gradient
        prefix = replace(prefix, cache=detached(prefix.cache))
    tokens = torch.tensor(answers)
    mask = torch.cat([prefix.mask_PT, torch.ones_like(tokens, dtype=torch.bool)], 1)
    hidden = torch.cat([prefix.last_PH[:, None], vlm.extend(prefix.cache, tokens, mask, prefix.next_position_P)[:, :-1]], 1)
    logprobs, _ = vlm.log_probs(hidden.flatten(0, 1), tokens.flatten(), 1.0)
    logprobs.sum().backward()
    mine = {name: parameter.grad for name, parameter in vlm.hf.named_parameters()}

    plain = load_model(tiny_folder(), FAMILY).hf
    plain.requires_grad_(True)
    for answer in answers:
        logits = plain(**plain_inputs(tiny_folder(), MIXED[0], answer)).logits[0, len(MIXED[0]) - 1 : -1]
        logits = logits.index_fill(-1, torch.tensor(BANNED), -torch.inf)
        logits.log_softmax(-1)[torch.arange(len(answer)), torch.tensor(answer)].sum().backward()
    worst = 0.0
    for name, parameter in plain.named_parameters():
        mine_here = mine[name]
        if mine_here is None:
            assert plant, name
            continue
        scale = max(float(parameter.grad.abs().max()), 1e-3)
        worst = max(worst, float((mine_here - parameter.grad).abs().max()) / scale)
    assert worst > 1e-2 if plant else worst < 1e-4
    assert any(name.startswith(vlm.vision_prefix) and gradient is not None for name, gradient in mine.items()) or plant


def detached(cache: base.DynamicCache) -> base.DynamicCache:
    return base.DynamicCache([(keys.detach(), values.detach()) for keys, values in base.layer_states(cache)])


def test_a_frozen_tower_carries_no_gradient(vlm: VLM) -> None:
    vlm.hf.requires_grad_(True)
    vlm.prefill(MIXED[:1]).last_PH.sum().backward()
    with_gradient = {name for name, parameter in vlm.hf.named_parameters() if parameter.grad is not None}
    assert any(name.startswith(vlm.language_prefix) for name in with_gradient)
    assert not any(name.startswith(vlm.vision_prefix) for name in with_gradient)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_equal_the_obvious_formula(vlm: VLM, temperature: float) -> None:
    prompt, answer = MIXED[0], (*text_tokens("three"), IMAGE_PAD)
    with torch.no_grad():
        hidden = plain_hidden(prompt, answer[:-1])[len(prompt) - 1 :]
        logprobs, entropy = vlm.log_probs(hidden, torch.tensor(answer), temperature)
    plain = plain_logprobs(plain_model(tiny_folder()), tiny_folder(), prompt, answer, temperature=temperature)
    assert np.abs(logprobs.numpy() - plain)[:5].max() < 1e-5
    # The banned target: everything banned but itself.
    others = tuple(token for token in BANNED if token != IMAGE_PAD)
    lifted = plain_logprobs(plain_model(tiny_folder()), tiny_folder(), prompt, answer, temperature=temperature, banned=others)
    assert abs(float(logprobs[5]) - lifted[5]) < 1e-5
    assert np.abs(logprobs.numpy() - lifted)[:5].max() > 1e-5  # lifting the ban everywhere is noticed
    allowed = [token for token in range(264) if token not in BANNED]
    distribution = (vlm.hf.lm_head(hidden)[0, allowed].double() / temperature).softmax(-1)
    assert abs(float(entropy[0]) + float((distribution * distribution.log()).sum())) < 1e-5


def test_log_probs_in_chunks_give_the_same_numbers_and_gradients(vlm: VLM, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = torch.randn(10, 64, generator=torch.Generator().manual_seed(1))
    targets = torch.arange(10)

    def run() -> tuple[Tensor, Tensor, Tensor]:
        leaf = hidden.clone().requires_grad_()
        logprobs, entropy = vlm.log_probs(leaf, targets, 0.9)
        logprobs.pow(2).sum().backward()
        assert leaf.grad is not None
        return logprobs.detach(), entropy, leaf.grad

    whole = run()
    monkeypatch.setattr(base, "_LOGIT_CELLS", 264 * 3)
    for mine, theirs in zip(run(), whole, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-5)


def test_logits_ban_and_divide(vlm: VLM) -> None:
    hidden = torch.randn(2, 64, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        halved, zero, plain = vlm.logits(hidden, 2.0), vlm.logits(hidden, 0.0), vlm.hf.lm_head(hidden)
    assert torch.isneginf(halved[:, list(BANNED)]).all()
    assert torch.equal(halved[:, :256], plain[:, :256] / 2)
    assert torch.equal(zero[:, :256], plain[:, :256])


def test_what_a_prompt_must_not_hold(vlm: VLM) -> None:
    with pytest.raises(SamplerError, match=r"num_tokens=12 .* 36 tokens"):
        vlm.prefill([image_prompt("?", picture(0), num_tokens=12)])
    with pytest.raises(SamplerError, match="placeholder id 261"):
        vlm.prefill([ModelInput((TextChunk((1, IMAGE_PAD)),))])
    with pytest.raises(SamplerError, match="prompt 1 has no tokens"):
        vlm.prefill([MIXED[1], ModelInput(())])
    with pytest.raises(SamplerError, match="no prompts"):
        vlm.prefill([])
    with pytest.raises(DataError, match="not a picture"):
        vlm.prefill([ModelInput((ImageChunk(b"not a picture", "png", 36),))])


def test_masks_let_padding_see_itself_only() -> None:
    mask = torch.tensor([[False, True, True], [True, True, True]])
    allowed = causal_mask(mask, 3, "sdpa", torch.float32)
    assert allowed is not None
    assert allowed[0, 0].tolist() == [[True, False, False], [False, True, False], [False, True, True]]
    assert allowed[1, 0].tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    added = causal_mask(mask, 3, "eager", torch.float32)
    assert added is not None
    assert torch.equal(added == 0, allowed)
    assert causal_mask(mask[1:], 3, "sdpa", torch.float32) is None


def test_folders_that_cannot_be_loaded_give_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder(), folder)
    (folder / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}")
    with pytest.raises(BackendError, match="cannot load the model") as caught:
        load_model(folder, FAMILY)
    assert "\n" not in str(caught.value)
    shutil.copy(tiny_folder() / "model.safetensors", folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "qwen2_vl"}), encoding="utf-8")
    with pytest.raises(BackendError, match="model_type 'qwen2_vl'"):
        load_model(folder, FAMILY)
    shutil.copy(tiny_folder() / "config.json", folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(BackendError, match=r"tokenizer\.json"):
        load_model(folder, FAMILY)
