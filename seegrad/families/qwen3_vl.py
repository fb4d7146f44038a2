"""Qwen3-VL: marker strings and the size rule of its image processor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from seegrad.families.base import Family
from seegrad.picture_file import fault

MAX_ASPECT_RATIO = 200  # the processor refuses pictures that are longer than this many times their width


def num_image_tokens(width: int, height: int, processor_config: Mapping[str, Any]) -> int:
    """Tokens of a picture of `width` × `height` pixels: patches of the resized picture divided by merge_size².

    `processor_config` is the image processor's JSON (`patch_size`, `merge_size`, `size` or `min_pixels` and `max_pixels`). Raises DataError for an
    aspect ratio over 200.
    """
    patch, merge = int(processor_config.get("patch_size", 14)), int(processor_config.get("merge_size", 2))
    if processor_config.get("do_resize", True):
        height, width = resized(width, height, patch * merge, *pixel_limits(processor_config))
    return (height // patch) * (width // patch) // merge**2


def pixel_limits(processor_config: Mapping[str, Any]) -> tuple[int, int]:
    """Smallest and largest number of pixels after resizing; `min_pixels` and `max_pixels` win over `size`, as in the processor."""
    size = processor_config.get("size") or {}
    low = processor_config.get("min_pixels") or size.get("shortest_edge") or 56 * 56
    high = processor_config.get("max_pixels") or size.get("longest_edge") or 28 * 28 * 1280
    return int(low), int(high)


def resized(width: int, height: int, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """(height, width) after the family's resizing: both multiples of `factor`, the area within the limits, the aspect ratio about kept.

    Sides are rounded to the nearest multiple first (half to even); only when the area is then outside the limits are they scaled,
    down to the multiple below (at least one) or up to the multiple above.
    """
    if min(width, height) < 1 or max(width, height) / min(width, height) > MAX_ASPECT_RATIO:
        message = f"picture of {width}×{height} pixels: one side is over {MAX_ASPECT_RATIO} times the other; pad or crop it"
        raise fault("picture too long and thin", message)
    rows, columns = round(height / factor), round(width / factor)
    if rows * columns * factor**2 > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        rows, columns = max(1, math.floor(height / shrink / factor)), max(1, math.floor(width / shrink / factor))
    elif rows * columns * factor**2 < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        rows, columns = math.ceil(height * grow / factor), math.ceil(width * grow / factor)
    return rows * factor, columns * factor


FAMILY = Family(
    name="qwen3_vl",
    placeholder="<|image_pad|>",
    banned=("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"),
    end_of_turn="<|im_end|>",
    num_image_tokens=num_image_tokens,
)
