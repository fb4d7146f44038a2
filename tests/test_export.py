"""The exported folder is the trained model: same logprobs as base and adapter, loadable by transformers alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from seegrad.backends.local.export import export_model
from seegrad.backends.local.lora import load_adapter
from seegrad.config import ModelConfig
from seegrad.errors import UsageError
from seegrad.families.folder import family_of
from seegrad.models.base import VLM, load_model
from tests.tinymodel import image_prompt, picture, text_tokens, tiny_folder

PROMPT = image_prompt("how many?", picture(1))
ANSWER = text_tokens("two and one")


def adapter(folder: Path, scale: float = 0.05) -> Path:
    """A PEFT folder whose weights are not zero, as after training."""
    vlm = load(tiny_folder())
    peft = get_peft_model(vlm.hf, LoraConfig(r=4, lora_alpha=4, target_modules=["q_proj", "v_proj", "down_proj"]))
    torch.manual_seed(3)
    with torch.no_grad():
        for name, parameter in peft.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, scale)
    peft.save_pretrained(str(folder), save_embedding_layers=False)
    return folder


def load(folder: Path) -> VLM:
    return load_model(folder, family_of(folder), torch.float32, "cpu")


def logprobs(vlm: VLM) -> np.ndarray:
    with torch.no_grad():
        prefix = vlm.prefill([PROMPT + ANSWER])
        return vlm.log_probs(prefix.hidden_PTH[0, -len(ANSWER) - 1 : -1], torch.tensor(ANSWER), 1.0)[0].numpy()


def test_exported_model_scores_as_base_and_adapter(tmp_path: Path) -> None:
    weights = adapter(tmp_path / "weights")
    base = load(tiny_folder())
    untrained = logprobs(base)
    load_adapter(base, weights)
    expected = logprobs(base)
    export_model(ModelConfig(base=str(tiny_folder())), weights, tmp_path / "merged")
    np.testing.assert_allclose(logprobs(load(tmp_path / "merged")), expected, atol=1e-5)
    assert np.abs(untrained - expected).max() > 1e-3, "the adapter must matter, or the comparison above proves nothing"


def test_a_damaged_export_is_noticed(tmp_path: Path) -> None:
    weights = adapter(tmp_path / "weights")
    export_model(ModelConfig(base=str(tiny_folder())), weights, tmp_path / "merged")
    good = logprobs(load(tmp_path / "merged"))
    path = tmp_path / "merged" / "model.safetensors"
    tensors = load_file(path)
    name = next(key for key in tensors if key.endswith("layers.1.self_attn.v_proj.weight") and "visual" not in key)
    save_file({**tensors, name: tensors[name] * 1.01}, path, metadata={"format": "pt"})
    assert np.abs(logprobs(load(tmp_path / "merged")) - good).max() > 1e-5


def test_transformers_loads_the_folder_alone(tmp_path: Path) -> None:
    from transformers import AutoModelForImageTextToText, AutoTokenizer

    export_model(ModelConfig(base=str(tiny_folder())), adapter(tmp_path / "weights"), tmp_path / "merged", dtype="bfloat16")
    model = AutoModelForImageTextToText.from_pretrained(tmp_path / "merged")
    assert model.dtype == torch.bfloat16
    assert not any("lora" in name for name, _ in model.named_parameters())
    assert AutoTokenizer.from_pretrained(tmp_path / "merged").chat_template
    names = {path.name for path in (tmp_path / "merged").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "preprocessor_config.json", "chat_template.jinja"} <= names


def test_a_whole_model_folder_is_copied(tmp_path: Path) -> None:
    export_model(ModelConfig(base="tiny"), tiny_folder(), tmp_path / "copy")
    np.testing.assert_array_equal(logprobs(load(tmp_path / "copy")), logprobs(load(tiny_folder())))


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="not an empty folder"):
        export_model(ModelConfig(), tiny_folder(), tmp_path / "out")
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
