"""What is known of a model family without loading it: marker strings and how many tokens a picture takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Family:
    """Torch-free facts of one family.

    `placeholder` is the marker that the chat template writes once per picture and that stands at every image position of the model input.
    `banned` are the markers that a model must never write, because the next forward pass would look for a picture behind them.
    `end_of_turn` ends an answer. `num_image_tokens(width, height, processor_config)` counts from the size in pixels alone and raises DataError
    for a size that the family's image processor refuses.

    >>> from seegrad.families.qwen3_vl import FAMILY
    >>> FAMILY.num_image_tokens(128, 128, {"patch_size": 8, "merge_size": 2, "size": {"shortest_edge": 1024, "longest_edge": 65536}})
    64
    """

    name: str
    placeholder: str
    banned: tuple[str, ...]
    end_of_turn: str
    num_image_tokens: Callable[[int, int, Mapping[str, Any]], int]

    def __post_init__(self) -> None:
        if self.placeholder not in self.banned:
            raise ValueError(f"family {self.name!r}: the placeholder {self.placeholder!r} must be one of the banned markers {self.banned}")
