"""The picture cache: same numbers, each picture once, bounded."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seegrad.backends.local.sampler import LocalSampler
from seegrad.backends.local.vision_cache import VisionCache
from seegrad.families.qwen3_vl import FAMILY
from seegrad.models.base import VLM, load_model
from seegrad.types import SamplingParams
from tests.tinymodel import image_prompt, picture, tiny_folder

PROMPTS = (image_prompt("how many?", picture(0)), image_prompt("two", picture(1), picture(0)), image_prompt("none"))
PARAMS = SamplingParams(max_tokens=6)


@pytest.fixture
def vlm() -> VLM:
    return load_model(tiny_folder(), FAMILY)


def counted(vlm: VLM) -> list[int]:
    """How many pictures each later call of the vision tower sees."""
    calls: list[int] = []
    vlm.hf.model.visual.register_forward_pre_hook(lambda _module, _inputs, named: calls.append(len(named["grid_thw"])), with_kwargs=True)
    return calls


def test_kept_features_give_the_same_numbers_and_each_picture_is_encoded_once(vlm: VLM) -> None:
    calls = counted(vlm)
    plain = LocalSampler(vlm).sample(PROMPTS, PARAMS, 2)
    assert calls == [2]  # two pictures, though three places show one
    cache = VisionCache()
    vlm.image_store = cache
    first, second = LocalSampler(vlm).sample(PROMPTS, PARAMS, 2), LocalSampler(vlm).sample(PROMPTS, PARAMS, 2)
    assert calls == [2, 2]
    assert (cache.hits["features"], cache.misses["features"]) == (2, 2)
    assert cache.hit_rate("features") == 0.5
    for groups in (first, second):
        for group, other in zip(groups, plain, strict=True):
            assert [c.tokens_T for c in group] == [c.tokens_T for c in other]
            assert all(np.array_equal(a.logprobs_T, b.logprobs_T) for a, b in zip(group, other, strict=True))


def test_a_picture_that_is_kept_under_the_wrong_name_is_noticed(vlm: VLM) -> None:
    """The comparison above can fail: features of another picture give other numbers."""
    vlm.image_store = cache = VisionCache()
    plain = LocalSampler(vlm).sample(PROMPTS[:1], PARAMS)[0][0]
    LocalSampler(vlm).sample(PROMPTS[1:2], PARAMS)
    kinds = [entry for entry in cache._kept if entry[0] == "features"]
    cache._kept[kinds[0]], cache._kept[kinds[1]] = cache._kept[kinds[1]], cache._kept[kinds[0]]
    wrong = LocalSampler(vlm).sample(PROMPTS[:1], PARAMS)[0][0]
    assert wrong.tokens_T != plain.tokens_T or np.abs(wrong.logprobs_T - plain.logprobs_T).max() > 1e-2


def test_what_a_sampler_kept_can_be_trained_on(vlm: VLM) -> None:
    """Tensors made while sampling are ordinary ones: a training step may need them for its gradient."""
    vlm.image_store = VisionCache()
    LocalSampler(vlm).sample(PROMPTS, PARAMS)
    vlm.hf.requires_grad_(True)
    vlm.prefill(PROMPTS).last_PH.sum().backward()
    assert vlm.hf.model.language_model.layers[0].mlp.up_proj.weight.grad is not None


def test_a_tower_that_trains_is_run_every_time(vlm: VLM) -> None:
    vlm.image_store = cache = VisionCache()
    vlm.vision_frozen = False
    calls = counted(vlm)
    before = LocalSampler(vlm).sample(PROMPTS[:1], PARAMS)[0][0]
    vlm.hf.model.visual.patch_embed.proj.weight.data.mul_(1.5)
    after = LocalSampler(vlm).sample(PROMPTS[:1], PARAMS)[0][0]
    assert calls == [1, 1]
    assert before.tokens_T != after.tokens_T or not np.allclose(before.logprobs_T, after.logprobs_T, atol=1e-4)
    assert cache.misses["features"] == 0
    assert cache.hit_rate("pixels") == 0.5  # only the tower's input is kept


def test_the_least_recently_used_go_first() -> None:
    def four_bytes() -> tuple[torch.Tensor, ...]:
        return (torch.zeros(1),)

    cache = VisionCache(max_bytes=12)
    for name in "abc":
        cache.put("features", name, four_bytes())
    assert cache.get("features", "a") is not None
    cache.put("features", "d", four_bytes())
    assert [name for name in "abcd" if cache.get("features", name) is not None] == ["a", "c", "d"]
    assert cache.get("pixels", "a") is None  # another kind
    cache.put("features", "a", (torch.zeros(2),))  # replaced by a larger one
    assert cache.num_bytes == 12
    assert [name for name in "acd" if cache.get("features", name) is not None] == ["a", "d"]
    cache.put("features", "huge", (torch.zeros(4),))
    assert cache.get("features", "huge") is None
    assert cache.num_bytes == 12
    cache.put("pixels", "p", four_bytes())
    cache.drop("features")
    assert (len(cache), cache.num_bytes) == (1, 4)
