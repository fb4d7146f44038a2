"""A random Qwen3-VL folder of well under a million parameters, for tests that need a model but not a good one.

Pictures of 96 by 96 pixels are 36 visual tokens; every byte is a token, and the marker strings are Qwen's.
"""

from __future__ import annotations

import atexit
import io
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.utils.logging import disable_progress_bar

from seegrad.types import ImageChunk, ModelInput, TextChunk

MARKERS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
ENDOFTEXT, IM_START, IM_END, VISION_START, VISION_END, IMAGE_PAD, VIDEO_PAD = range(256, 263)
VOCABULARY = 264

CHAT_TEMPLATE = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content -%}
{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}
{%- endfor %}{% endif %}<|im_end|>
{% endfor -%}
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@cache
def tiny_folder(seed: int = 0) -> Path:
    """A folder that lives as long as the test process; the same seed gives the same weights. Do not write into it."""
    folder = Path(tempfile.mkdtemp(prefix="seegrad-tinymodel-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return make_tiny(folder, seed)


def make_tiny(folder: Path, seed: int = 0) -> Path:
    """Write the folder: weights, tokenizer, chat template, image processor and generation config."""
    folder.mkdir(parents=True, exist_ok=True)
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": VOCABULARY,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "max_position_embeddings": 2048,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2], "mrope_interleaved": True},
            "tie_word_embeddings": True,
            "eos_token_id": IM_END,
            "pad_token_id": ENDOFTEXT,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "out_hidden_size": 64,
            "patch_size": 8,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "num_position_embeddings": 144,
            "deepstack_visual_indexes": [0],
        },
        image_token_id=IMAGE_PAD,
        video_token_id=VIDEO_PAD,
        vision_start_token_id=VISION_START,
        vision_end_token_id=VISION_END,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3VLForConditionalGeneration(config)
        with torch.no_grad():
            for parameter in model.parameters():  # wide enough that pictures, positions and tokens all matter
                if parameter.ndim >= 2:
                    parameter.normal_(0.0, 0.8 / parameter.shape[-1] ** 0.5 if parameter.ndim == 2 else 0.1)
            model.model.language_model.embed_tokens.weight.normal_(0.0, 0.25)
    model.generation_config.eos_token_id = [IM_END, ENDOFTEXT]
    model.generation_config.pad_token_id = ENDOFTEXT
    disable_progress_bar()
    model.save_pretrained(folder)
    _write_tokenizer(folder)
    processor = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": 8,
        "merge_size": 2,
        "temporal_patch_size": 2,
        "size": {"shortest_edge": 1024, "longest_edge": 65536},
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor, indent=1), encoding="utf-8")
    return folder


def picture(seed: int, width: int = 96, height: int = 96) -> bytes:
    """A PNG of coarse random colours."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(coarse).resize((width, height), Image.Resampling.NEAREST).save(stream, format="PNG")
    return stream.getvalue()


def text_tokens(text: str) -> tuple[int, ...]:
    """Token ids of plain text (markers are not recognised)."""
    return tuple(text.encode("utf-8"))


def image_prompt(text: str, *pictures: bytes, num_tokens: int | None = None) -> ModelInput:
    """A user turn with the text first and then the pictures, ready for an answer. `num_tokens` overrides the right count."""
    chunks: list[TextChunk | ImageChunk] = []
    tokens: tuple[int, ...] = (IM_START, *text_tokens("user\n" + text))
    for data in pictures:
        width, height = Image.open(io.BytesIO(data)).size
        chunks += [TextChunk((*tokens, VISION_START)), ImageChunk(data, "png", num_tokens or (width // 16) * (height // 16))]
        tokens = (VISION_END,)
    chunks.append(TextChunk((*tokens, IM_END, *text_tokens("\n"), IM_START, *text_tokens("assistant\n"))))
    return ModelInput(tuple(chunks))


def _write_tokenizer(folder: Path) -> None:
    # Byte-level: the printable stand-ins of the 256 bytes, in byte order, so that a token id is the byte itself.
    stand_ins = _byte_stand_ins()
    tokenizer = Tokenizer(models.BPE(vocab={stand_ins[byte]: byte for byte in range(256)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(marker, normalized=False, special=True) for marker in MARKERS])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "Qwen2TokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 2048,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")


def _byte_stand_ins() -> list[str]:
    """The character that byte-level tokenizers write for each byte: printable Latin-1 as itself, the others from U+0100 on."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(0x100 + others.index(byte)) for byte in range(256)]
