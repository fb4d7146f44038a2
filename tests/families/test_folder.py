"""From a model's name to its folder, and what a damaged or foreign folder says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from seegrad.errors import BackendError
from seegrad.families.base import Family
from seegrad.families.folder import added_tokens, family_of, marker_ids, model_folder, processor_config
from seegrad.families.qwen3_vl import FAMILY

PLACEHOLDER = {"id": 7, "content": "<|image_pad|>", "special": True}


def write(folder: Path, name: str, value: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(value), encoding="utf-8")


def test_tiny_is_the_bundled_model() -> None:
    folder = model_folder("tiny", weights=False)
    assert family_of(folder) is FAMILY
    assert processor_config(folder)["merge_size"] == 2


def test_an_existing_folder_is_itself(tmp_path: Path) -> None:
    write(tmp_path, "config.json", {"model_type": "qwen3_vl"})
    assert model_folder(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("base", ["tiney", "./nowhere", "/no/such/folder", "~/no-such-model", "a/b/c", ""])
def test_a_name_that_is_neither_folder_nor_hub_id_is_refused_without_asking_the_hub(base: str) -> None:
    with pytest.raises(BackendError, match=r"neither 'tiny' nor an existing folder nor a hub id|no config.json"):
        model_folder(base)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"no config\.json"):
        model_folder(str(tmp_path))


def test_a_hub_model_comes_from_the_cache_when_the_hub_is_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(BackendError, match="some-one/some-model") as caught:
        model_folder("some-one/some-model")
    assert "\n" not in str(caught.value)
    commit = "0123456789abcdef0123456789abcdef01234567"
    cached = tmp_path / "models--some-one--some-model"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text(commit)
    write(cached / "snapshots" / commit, "config.json", {"model_type": "qwen3_vl"})
    assert model_folder("some-one/some-model", weights=False) == cached / "snapshots" / commit


def test_an_unknown_model_type_names_the_known_ones(tmp_path: Path) -> None:
    write(tmp_path, "config.json", {"model_type": "llama"})
    with pytest.raises(BackendError, match=r"'llama' is not supported; supported: .*qwen3_vl"):
        family_of(tmp_path)


@pytest.mark.parametrize(("text", "message"), [("{", "cannot be read as JSON"), ("[]", "expected a JSON object"), (None, "is missing")])
def test_a_damaged_file_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(BackendError, match=message) as caught:
        family_of(tmp_path)
    assert "config.json" in str(caught.value)


def test_processor_settings_come_from_either_file(tmp_path: Path) -> None:
    write(tmp_path, "preprocessor_config.json", {"patch_size": 8})
    assert processor_config(tmp_path) == {"patch_size": 8}
    write(tmp_path, "processor_config.json", {"processor_class": "Qwen3VLProcessor"})
    assert processor_config(tmp_path) == {"patch_size": 8}
    write(tmp_path, "processor_config.json", {"image_processor": {"patch_size": 16}})
    assert processor_config(tmp_path) == {"patch_size": 16}


def test_marker_ids_are_those_of_the_tokenizer(tmp_path: Path) -> None:
    write(tmp_path, "config.json", {"model_type": "qwen3_vl", "image_token_id": 7})
    write(tmp_path, "tokenizer.json", {"added_tokens": [PLACEHOLDER, {"id": 9, "content": "<|vision_end|>", "special": True}]})
    assert marker_ids(tmp_path, FAMILY) == (7, (7, 9))
    write(tmp_path, "config.json", {"model_type": "qwen3_vl", "image_token_id": 8})
    with pytest.raises(BackendError, match=r"image_token_id 8, but .* is 7"):
        marker_ids(tmp_path, FAMILY)
    write(tmp_path, "tokenizer.json", {"added_tokens": []})
    with pytest.raises(BackendError, match=r"has no '<|image_pad|>'"):
        marker_ids(tmp_path, FAMILY)


def test_added_tokens_of_both_files_are_found_once(tmp_path: Path) -> None:
    write(tmp_path, "tokenizer.json", {"added_tokens": [PLACEHOLDER]})
    write(
        tmp_path, "tokenizer_config.json", {"added_tokens_decoder": {"7": {"content": "<|image_pad|>"}, "8": {"content": "<tool>", "special": False}}}
    )
    assert [(token["id"], token["content"]) for token in added_tokens(tmp_path)] == [(7, "<|image_pad|>"), (8, "<tool>")]


def test_a_family_whose_placeholder_may_be_sampled_is_refused() -> None:
    with pytest.raises(ValueError, match="must be one of the banned"):
        Family("new", "<pad>", ("<other>",), "<end>", lambda width, height, config: 1)
