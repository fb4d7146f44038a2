"""What a state folder and a weights folder hold. No pickle: tensors in safetensors, the rest in JSON.

state/    state.safetensors   weights/<parameter>, adam/<moment>/<parameter>, and master/ or grad/ where there are any
          state.json          format, version, settings, sha256 of the tensors
weights/  adapter_config.json, adapter_model.safetensors        LoRA: loads with PEFT
          config.json, model.safetensors, tokenizer …           full: loads with transformers
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from seegrad.errors import RunError
from seegrad.models.base import VLM

TENSORS, FACTS = "state.safetensors", "state.json"
_FORMAT = 1
_WEIGHT_ENDINGS = (".safetensors", ".bin", ".pt", ".pth", ".index.json", ".gguf", ".h5", ".msgpack")


def write_state(folder: Path, tensors: Mapping[str, Tensor], version: int, settings: Mapping[str, Any]) -> None:
    """Write a state folder and flush it to the disk. The caller renames it into place. Raises RunError when the disk refuses."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / TENSORS
    with _written(path):
        save_file({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}, path)
    facts = {"format": _FORMAT, "version": version, "settings": dict(settings), "sha256": _sha256(path)}
    (folder / FACTS).write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    _flush(folder)


def read_state(folder: Path, settings: Mapping[str, Any]) -> tuple[dict[str, Tensor], int]:
    """(tensors on the CPU, version) of a state folder.

    Raises RunError naming the file that is missing or damaged, or the setting that differs from `settings`.
    """
    facts_path, path = folder / FACTS, folder / TENSORS
    for needed in (facts_path, path):
        if not needed.is_file():
            raise RunError(f"{needed} is missing, so {folder} is not a whole state folder; use another checkpoint")
    try:
        facts = json.loads(facts_path.read_text(encoding="utf-8"))
        format_number, version, written, digest = int(facts["format"]), int(facts["version"]), dict(facts["settings"]), str(facts["sha256"])
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{facts_path} is damaged ({type(error).__name__}: {error}); use another checkpoint") from error
    if format_number != _FORMAT:
        raise RunError(f"{facts_path}: format {format_number}, expected {_FORMAT}; read it with the release that wrote it")
    different = [key for key in sorted(written.keys() | settings.keys()) if written.get(key) != settings.get(key)]
    if different:
        said = ", ".join(f"{key}={written.get(key)!r} (now {settings.get(key)!r})" for key in different)
        raise RunError(f"{folder} was written with {said}; continue with the same settings")
    if _sha256(path) != digest:
        raise RunError(f"{path} is damaged (its content does not match {FACTS}); use another checkpoint")
    try:
        return load_file(path), version
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path} is damaged ({error}); use another checkpoint") from error


def write_adapter(folder: Path, adapter: PeftModel) -> None:
    """Write the adapter as a PEFT folder that names its base model."""
    folder.mkdir(parents=True, exist_ok=True)
    with _written(folder):
        adapter.save_pretrained(str(folder), save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)  # PEFT's empty model card
    settings_file = folder / "adapter_config.json"
    settings = json.loads(settings_file.read_text(encoding="utf-8"))
    if isinstance(settings.get("target_modules"), list):
        settings["target_modules"].sort()  # a set in PEFT, written in an order that differs between processes
    settings_file.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    _flush(folder)


def write_model(folder: Path, vlm: VLM) -> None:
    """Write the whole model as a Hugging Face folder, with the tokenizer, template and processor files of the folder it came from."""
    folder.mkdir(parents=True, exist_ok=True)
    with _written(folder):
        vlm.hf.save_pretrained(str(folder))
    for source in sorted(vlm.folder.iterdir()):
        skipped = source.name.startswith(".") or source.name.endswith(_WEIGHT_ENDINGS) or source.name == "README.md"  # the card is the base's
        if source.is_file() and not skipped and not (folder / source.name).exists():
            shutil.copyfile(source, folder / source.name)
    _flush(folder)


def fingerprint(vlm: VLM) -> str:
    """A short hash of the model's names, shapes and some values of every tensor: tells one base model from another."""
    digest = hashlib.sha256()
    for name, tensor in sorted(vlm.hf.state_dict().items()):
        digest.update(f"{name} {list(tensor.shape)} ".encode())
        digest.update(tensor.detach().flatten()[:64].to("cpu", torch.float32).numpy().tobytes())
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def _written(path: Path) -> Iterator[None]:
    """Raises RunError for what safetensors calls every error of the disk."""
    try:
        yield
    except SafetensorError as error:
        raise RunError(f"{path} cannot be written: {error}; free some space, or choose a place that has some") from error


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _flush(folder: Path) -> None:
    """Make every file of the folder, and the folder itself, survive a power cut."""
    for path in [*sorted(folder.iterdir()), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
