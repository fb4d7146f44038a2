"""Qwen3.5 and Qwen2.5-VL: the token count from a size equals what their own image processor makes of a picture; markers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from transformers import AutoImageProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from seegrad import registry
from seegrad.errors import DataError
from seegrad.families.base import Family
from seegrad.families.folder import processor_config

# The image processors' files as they come with the models, as far as they say something about sizes.
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen2_5_vl": {"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "merge_size": 2},
    "qwen3_5": {
        "image_processor_type": "Qwen2VLImageProcessorFast",
        "size": {"longest_edge": 16777216, "shortest_edge": 65536},
        "patch_size": 16,
        "merge_size": 2,
    },
}
SIDES = {"qwen2_5_vl": 28, "qwen3_5": 32}
FEW = [(96, 96), (128, 64), (1, 1), (1, 200), (28, 5600), (17, 23), (42, 70), (300, 200), (1000, 700), (23, 3), (56, 56), (1003, 411)]


def family(name: str) -> Family:
    found: Family = registry.load("family", name)
    assert found.name == name
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_counts_what_the_processor_makes(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": name}), encoding="utf-8")
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(CONFIGS[name] | {"temporal_patch_size": 2}), encoding="utf-8")
    processor = AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
    for width, height in FEW:
        grid = processor(images=[Image.new("RGB", (width, height))], return_tensors="np")["image_grid_thw"][0]
        counted = family(name).num_image_tokens(width, height, processor_config(tmp_path))
        assert counted == int(np.prod(grid)) // 4, (width, height)
    others = [family(name).num_image_tokens(width, height, CONFIGS[other]) for other in CONFIGS for width, height in FEW]
    assert others[: len(FEW)] != others[len(FEW) :]  # another patch size is noticed


@pytest.mark.parametrize("name", CONFIGS)
def test_counts_follow_the_resizing_for_any_size(name: str) -> None:
    config, side = CONFIGS[name], SIDES[name]
    limits = (
        (config["min_pixels"], config["max_pixels"]) if "min_pixels" in config else (config["size"]["shortest_edge"], config["size"]["longest_edge"])
    )
    draw = np.random.default_rng(0)
    sizes = np.concatenate([draw.integers(1, 9000, (1500, 2)), draw.integers(1, 120, (1500, 2)), side * draw.integers(1, 60, (200, 2)) + side // 2])
    for width, height in sizes.tolist():
        try:
            rows, columns = smart_resize(height, width, side, *limits)
        except ValueError:
            with pytest.raises(DataError, match="200 times"):
                family(name).num_image_tokens(width, height, config)
            continue
        assert family(name).num_image_tokens(width, height, config) == rows * columns // side**2, (width, height)


@pytest.mark.parametrize("name", CONFIGS)
def test_markers(name: str) -> None:
    facts = family(name)
    assert facts.placeholder == "<|image_pad|>" and facts.end_of_turn == "<|im_end|>"
    assert set(facts.banned) == {"<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"}
