"""The bundled folder is what a hub model's folder would be, and what its card says."""

from __future__ import annotations

import json

import pytest
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer, Qwen3VLForConditionalGeneration

from seegrad.families.folder import model_folder

FOLDER = model_folder("tiny")
MARKERS = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>", "<|endoftext|>")


@pytest.fixture(scope="module")
def tokenizer() -> AutoTokenizer:
    return AutoTokenizer.from_pretrained(FOLDER)


def test_it_loads_as_a_hub_model_would() -> None:
    model = AutoModelForImageTextToText.from_pretrained(FOLDER)
    assert type(model) is Qwen3VLForConditionalGeneration
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert 1e6 < parameters < 5e6
    assert f"{parameters / 1e6:.2f} million" in (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_it_is_small() -> None:
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) <= 10e6
    assert json.loads((FOLDER / "config.json").read_text())["text_config"]["vocab_size"] <= 4096


def test_every_marker_is_one_token_and_other_text_comes_back(tokenizer: AutoTokenizer) -> None:
    assert all(len(tokenizer.encode(marker)) == 1 for marker in MARKERS)
    for text in ("图中有几个三角形？", "How many circles?", "naïve ☃ 漢字 🙂\t\n  x", "\\boxed{3}"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode("图中有几个三角形？")) <= 6, "words of the tasks are whole tokens"


def test_the_chat_template_honours_enable_thinking(tokenizer: AutoTokenizer) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "How many?"}, {"type": "image"}]}]
    off, on = (tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, enable_thinking=value) for value in (False, True))
    assert off == on + "<think>\n\n</think>\n\n"
    assert on.endswith("How many?<|vision_start|><|image_pad|><|vision_end|><|im_end|>\n<|im_start|>assistant\n")


def test_the_image_processor_works_without_torchvision() -> None:
    processor = AutoImageProcessor.from_pretrained(FOLDER, backend="pil")
    batch = processor(images=[Image.new("RGB", (96, 96), "red")], return_tensors="pt")
    assert batch["image_grid_thw"].tolist() == [[1, 12, 12]]
