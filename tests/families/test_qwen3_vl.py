"""The token count from a size equals what the real image processor makes of a picture of that size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil, smart_resize

from seegrad.errors import DataError
from seegrad.families.qwen3_vl import FAMILY, num_image_tokens, resized

TINY = {"patch_size": 8, "merge_size": 2, "temporal_patch_size": 2, "size": {"shortest_edge": 1024, "longest_edge": 65536}}
LARGE = {"patch_size": 16, "merge_size": 2, "temporal_patch_size": 2, "size": {"shortest_edge": 65536, "longest_edge": 16777216}}
OLDER = {"patch_size": 14, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 3136, "max_pixels": 200704}
SIZES = [(96, 96), (128, 64), (1, 1), (1, 200), (200, 1), (28, 5600), (17, 23), (24, 40), (300, 200), (1000, 700), (23, 3), (56, 56)]


def processed_tokens(width: int, height: int, config: dict[str, Any]) -> int:
    processor = Qwen2VLImageProcessorPil(**config)
    grid = processor(images=[Image.new("RGB", (width, height))], return_tensors="np")["image_grid_thw"][0]
    return int(np.prod(grid)) // int(config["merge_size"]) ** 2


@pytest.mark.parametrize("config", [TINY, LARGE, OLDER, {"patch_size": 14, "merge_size": 2}], ids=["tiny", "large", "older", "defaults"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_counts_what_the_processor_makes(width: int, height: int, config: dict[str, Any]) -> None:
    assert num_image_tokens(width, height, config) == processed_tokens(width, height, config)


def test_the_comparison_notices_swapped_limits_and_another_rounding() -> None:
    config = {**TINY, "size": {"shortest_edge": 4096, "longest_edge": 65536}}
    assert num_image_tokens(24, 24, TINY) != processed_tokens(24, 24, config)
    assert num_image_tokens(24, 24, {**config, "patch_size": 16}) != processed_tokens(24, 24, config)


@settings(max_examples=300, deadline=None)
@given(
    width=st.integers(1, 3000),
    height=st.integers(1, 3000),
    factor=st.sampled_from([16, 28, 32]),
    limits=st.sampled_from([(1024, 65536), (3136, 200704), (65536, 16777216), (4096, 4096)]),
)
def test_resizing_follows_the_processor_for_any_size(width: int, height: int, factor: int, limits: tuple[int, int]) -> None:
    try:
        expected = smart_resize(height, width, factor, *limits)
    except ValueError:
        with pytest.raises(DataError, match="200 times"):
            resized(width, height, factor, *limits)
        return
    assert resized(width, height, factor, *limits) == expected


@pytest.mark.parametrize(("width", "height"), [(10_000, 1), (1, 10_000), (1, 201), (700, 3), (20, 5000), (0, 5)])
def test_a_sliver_is_refused_in_one_line(width: int, height: int) -> None:
    with pytest.raises(DataError, match=f"{width}×{height}"):
        num_image_tokens(width, height, TINY)


def test_without_resizing_the_patches_are_counted() -> None:
    assert num_image_tokens(64, 32, {**TINY, "do_resize": False}) == processed_tokens(64, 32, {**TINY, "do_resize": False}) == 8


def test_the_placeholder_is_banned_with_every_vision_marker() -> None:
    assert FAMILY.placeholder in FAMILY.banned
    assert set(FAMILY.banned) >= {"<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"}
    assert FAMILY.end_of_turn not in FAMILY.banned
