"""Random folders of well under a million parameters for every family, of the real architecture classes; see `tests/tinymodel.py` for the tokenizer.

A picture of 16 by 16 pixels is one token in all of them.
"""

from __future__ import annotations

import atexit
import json
import math
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen3_5Config, Qwen3_5ForConditionalGeneration
from transformers.utils.logging import disable_progress_bar

from tests.tinymodel import ENDOFTEXT, IM_END, IMAGE_PAD, VIDEO_PAD, VISION_END, VISION_START, VOCABULARY, _write_tokenizer, tiny_folder

FAMILIES = ("qwen3_vl", "qwen3_5", "qwen2_5_vl")

TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "eos_token_id": IM_END,
    "pad_token_id": ENDOFTEXT,
}
VISION = {
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 2,
    "out_hidden_size": 48,
    "patch_size": 8,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
MARKER_IDS = {"image_token_id": IMAGE_PAD, "video_token_id": VIDEO_PAD, "vision_start_token_id": VISION_START, "vision_end_token_id": VISION_END}


@cache
def folder(family: str) -> Path:
    """A folder that lives as long as the test process. Do not write into it."""
    if family == "qwen3_vl":
        return tiny_folder()
    made = Path(tempfile.mkdtemp(prefix=f"seegrad-{family}-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = {"qwen3_5": _qwen3_5, "qwen2_5_vl": _qwen2_5_vl}[family]()
        _spread(model)
    model.generation_config.eos_token_id = [IM_END, ENDOFTEXT]
    model.generation_config.pad_token_id = ENDOFTEXT
    disable_progress_bar()
    model.save_pretrained(made)
    _write_tokenizer(made)
    (made / "preprocessor_config.json").write_text((tiny_folder() / "preprocessor_config.json").read_text(encoding="utf-8"), encoding="utf-8")
    return made


def _qwen3_5() -> Any:
    text = TEXT | {
        "num_hidden_layers": 4,
        "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
        "head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [2, 1, 1],
            "mrope_interleaved": True,
            "partial_rotary_factor": 0.5,
        },
    }
    config = Qwen3_5Config(text_config=text, vision_config=VISION | {"num_position_embeddings": 144}, tie_word_embeddings=False, **MARKER_IDS)
    return Qwen3_5ForConditionalGeneration(config)


def _qwen2_5_vl() -> Any:
    text = TEXT | {"num_hidden_layers": 3, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 2, 2]}}
    # Windows of 2 by 2 tokens in the first block, the whole picture in the second.
    vision = VISION | {"window_size": 32, "fullatt_block_indexes": [1]}
    return Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **MARKER_IDS))


@torch.no_grad()
def _spread(model: Any) -> None:
    """Weights wide enough that pictures, positions, tokens and states all matter."""
    for name, parameter in model.named_parameters():
        if name.endswith("A_log"):  # slow decay: a state that remembers a few dozen tokens
            parameter.copy_(torch.linspace(math.log(0.01), math.log(0.3), len(parameter)))
        elif name.endswith("conv1d.weight"):
            parameter.normal_(0.0, 0.7)
        elif parameter.ndim >= 2:
            parameter.normal_(0.0, 0.8 / parameter.shape[-1] ** 0.5 if parameter.ndim == 2 else 0.1)
    # Where the output head is another tensor, tokens may be louder: small states, normalised by the gated delta rule, would blow up rounding errors.
    model.model.language_model.embed_tokens.weight.normal_(0.0, 0.25 if model.config.tie_word_embeddings else 2.0)


def layer_types(family: str) -> list[str]:
    """Kinds of the text layers."""
    text = json.loads((folder(family) / "config.json").read_text(encoding="utf-8"))["text_config"]
    return list(text.get("layer_types") or ["full_attention"] * int(text["num_hidden_layers"]))
