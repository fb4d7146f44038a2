"""From the name of a base model to its folder on disk, and the torch-free facts that the folder holds."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from seegrad import registry
from seegrad.errors import BackendError
from seegrad.families.base import Family

TEXT_FILES = ("*.json", "*.jinja", "*.txt", "*.model")


def model_folder(base: str, *, weights: bool = True) -> Path:
    """The folder of a base model: `tiny` is the bundled one, an existing folder is itself, anything else is a hub id and is downloaded once.

    With `weights=False` only configuration and tokenizer are fetched. Raises BackendError when there is no such model.
    """
    if base == "tiny":
        folder = Path(str(resources.files("seegrad") / "assets" / "tiny"))
        if not (folder / "config.json").is_file():
            raise BackendError(f"the bundled model is missing from {folder}; reinstall the package")
        return folder
    folder = Path(base).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise BackendError(f"model folder {base!r} has no config.json; expected a Hugging Face model folder")
        return folder
    if base.count("/") != 1 or base.startswith((".", "/", "~")):
        raise BackendError(f"model {base!r} is neither 'tiny' nor an existing folder nor a hub id such as Qwen/Qwen3-VL-2B-Instruct")
    return _download(base, weights)


def family_of(folder: Path) -> Family:
    """The family of a model folder, by `model_type` in its config.json. Raises BackendError for one that is not supported."""
    model_type = str(read_json(folder / "config.json").get("model_type", ""))
    known = registry.names("family")
    if model_type not in known:
        raise BackendError(f"{folder}: model type {model_type!r} is not supported; supported: {', '.join(known)}")
    family: Family = registry.load("family", model_type)
    return family


def processor_config(folder: Path) -> dict[str, Any]:
    """Settings of the folder's image processor: preprocessor_config.json, or the `image_processor` part of processor_config.json."""
    whole = folder / "processor_config.json"
    if whole.is_file():
        inner = read_json(whole).get("image_processor")
        if isinstance(inner, dict):
            return inner
    return read_json(folder / "preprocessor_config.json")


def marker_ids(folder: Path, family: Family) -> tuple[int, tuple[int, ...]]:
    """(placeholder id, banned ids) of the folder's tokenizer; banned markers that the tokenizer does not have are left out."""
    ids = {str(token["content"]): int(token["id"]) for token in added_tokens(folder)}
    if family.placeholder not in ids:
        raise BackendError(f"{folder}: the tokenizer has no {family.placeholder!r}, which family {family.name!r} needs")
    placeholder = ids[family.placeholder]
    configured = read_json(folder / "config.json").get("image_token_id", placeholder)
    if configured != placeholder:
        raise BackendError(f"{folder}: config.json says image_token_id {configured}, but {family.placeholder!r} is {placeholder} in the tokenizer")
    return placeholder, tuple(ids[marker] for marker in family.banned if marker in ids)


def added_tokens(folder: Path) -> list[dict[str, Any]]:
    """Added tokens as {id, content, special, …}: those of tokenizer.json, then those that only tokenizer_config.json knows."""
    tokens: list[dict[str, Any]] = list(read_json(folder / "tokenizer.json").get("added_tokens") or [])
    seen = {token["content"] for token in tokens}
    config = folder / "tokenizer_config.json"
    extra = (read_json(config).get("added_tokens_decoder") or {}) if config.is_file() else {}
    return tokens + [{"id": int(number), **token} for number, token in extra.items() if token["content"] not in seen]


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a model folder. Raises BackendError naming the file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BackendError(f"{path.parent}: {path.name} is missing; expected a whole Hugging Face model folder") from None
    except (OSError, ValueError) as error:
        raise BackendError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(value, dict):
        raise BackendError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def _download(base: str, weights: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    patterns = [*TEXT_FILES, "*.safetensors"] if weights else list(TEXT_FILES)
    try:
        return Path(snapshot_download(base, allow_patterns=patterns))
    except (HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BackendError(f"model {base!r} is not a folder and could not be fetched from the hub: {reason}; give a folder, or 'tiny'") from error
