"""Every picture becomes plain RGB here, once; the sampler and the trainer then see the same bytes.

    a cell of a table ──decode──▶ encoded bytes ──clean──▶ plain RGB PNG ──▶ Example.images ──▶ sampler, trainer, run directory, rewards

What becomes of every kind of input is listed in docs/images.md. All that can go wrong is a DataError whose `reason` is one of `REASONS`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import math
import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args
from urllib.parse import unquote, unquote_to_bytes, urlsplit

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from seegrad.errors import DataError
from seegrad.picture_file import MAX_BYTES, MAX_PIXELS, Reason, check_size, fault, guarded, opened, starts_like_a_picture
from seegrad.pixels import WHITE, to_level, to_rgb, upright_size

Folders = tuple[Path, ...]  # where relative paths may start; empty: the working directory
REASONS: tuple[str, ...] = get_args(Reason)


def clean(data: bytes, *, max_pixels: int = 0, max_aspect: float = 0) -> bytes:
    """Any encoded picture as plain RGB PNG bytes without metadata.

    The EXIF orientation is applied, transparency is composited on white, 16-bit, 32-bit and float samples are scaled to 8 bits, and of an
    animation the first frame is taken. With `max_pixels` a larger picture is shrunk to at most so many, aspect kept as far as whole pixels allow.
    With `max_aspect` (≥ 1) it is padded with white, centred, until no side is more than that many times the other. The same input always gives the
    same bytes, and cleaning twice changes nothing. Raises DataError in one line for bytes that are no whole picture and for one that is too large.
    """
    picture = _decoded(data)
    inner, canvas = _fitted(*picture.size, max_pixels, max_aspect)
    if inner != picture.size:
        picture = picture.resize(inner, Image.Resampling.LANCZOS)
    if canvas != inner:
        padded = Image.new("RGB", canvas, WHITE)
        padded.paste(picture, ((canvas[0] - inner[0]) // 2, (canvas[1] - inner[1]) // 2))
        picture = padded
    return _png(picture)


def size(data: bytes, *, max_pixels: int = 0, max_aspect: float = 0) -> tuple[int, int]:
    """(width, height) in pixels that `clean` with the same settings gives, from the header alone. Raises DataError."""
    with opened(data) as image:
        upright = upright_size(image, metadata_follows=any(name in data for name in (b"eXIf", b"adobe.xmp", b"Raw profile")))
    return _fitted(*upright, max_pixels, max_aspect)[1]


def content_hash(data: bytes) -> str:
    """SHA-256 of the bytes as 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def blank(data: bytes) -> bytes:
    """An all-white picture of the same size (PNG), for baselines that must not see."""
    return _png(Image.new("RGB", size(data), WHITE))


def decode(value: Any, *, folder: Path | Sequence[Path] | None = None) -> bytes:
    """The encoded picture in one cell of a table; `clean` then says whether it is one.

    A cell is encoded bytes, `{"bytes": …, "path": …}` (bytes win), a path (a relative one starts at `folder`, the first of several that has it), a
    file:// or data: URL, base64 text, a PIL picture, or an array of shape [height, width] or [height, width, channels]. Raises DataError for anything
    else, for a missing value, and for a path that leads to no file. Lists are the caller's.
    """
    folders = (folder,) if isinstance(folder, Path) else tuple(folder or ())
    if _is_missing(value):
        raise fault("picture missing", "there is no picture (the value is missing)")
    if isinstance(value, bytes | bytearray | memoryview):
        return _from_bytes(bytes(value))
    if isinstance(value, str):
        return _from_text(value, folders)
    if isinstance(value, os.PathLike):
        return _read(Path(value), folders)
    if isinstance(value, Mapping):
        return _from_mapping(value, folders)
    if isinstance(value, Image.Image):
        return _from_pil(value)
    if isinstance(value, np.ndarray):
        return _from_array(value, folders)
    raise _not_understood(f"a value of type {type(value).__name__}")


def _decoded(data: bytes) -> Image.Image:
    """The whole picture as upright RGB; the decoder's memory is free before the picture is turned, and before it is encoded again."""
    with opened(data) as image:
        plain, turn = to_rgb(image)
    del image
    return plain if turn is None else plain.transpose(turn)


def _fitted(width: int, height: int, max_pixels: int, max_aspect: float) -> tuple[tuple[int, int], tuple[int, int]]:
    """(size of the shrunk picture, size of the padded one around it) for a picture of `width` × `height`."""
    if max_pixels < 0 or (max_aspect and not max_aspect >= 1):
        raise ValueError(f"max_pixels must be 0 or more and max_aspect 0 or at least 1, got {max_pixels} and {max_aspect}")
    inner, canvas = (width, height), _padded(width, height, max_aspect)
    if max_pixels and math.prod(canvas) > max_pixels:
        scale = math.sqrt(max_pixels / math.prod(canvas))
        inner = max(1, int(width * scale)), max(1, int(height * scale))
        while math.prod(canvas := _padded(*inner, max_aspect)) > max_pixels:  # only where one side is a pixel or two
            longer = min(max(inner) - 1, max_pixels // min(canvas))
            inner = (longer, inner[1]) if inner[0] >= inner[1] else (inner[0], longer)
    if math.prod(canvas) > MAX_PIXELS:
        raise fault(
            "picture too long and thin",
            f"picture of {width}×{height} pixels would be {canvas[0]}×{canvas[1]} when padded to 1 : {max_aspect:g}; crop it or set data.max_pixels",
        )
    return inner, canvas


def _padded(width: int, height: int, max_aspect: float) -> tuple[int, int]:
    if not max_aspect:
        return width, height
    return max(width, _shortest(height, max_aspect)), max(height, _shortest(width, max_aspect))


def _shortest(longer: int, max_aspect: float) -> int:
    """The smallest side beside `longer` whose ratio is allowed, as the check `longer / side > max_aspect` will see it."""
    side = math.ceil(longer / max_aspect)
    return side + 1 if longer / side > max_aspect else side


def _is_missing(value: Any) -> bool:
    """None, and what tables write for it: NaN, NaT, NA, a blank text."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, str):
        return not value.strip()
    return isinstance(value, float | np.floating) and bool(value != value)


def _not_understood(given: str) -> DataError:
    expected = "encoded bytes, {bytes, path}, a path, base64 text, a data URL, a PIL picture or an array [height, width, channels]"
    return fault("picture value not understood", f"{given} is not a picture; expected {expected}")


def _from_bytes(data: bytes) -> bytes:
    if not data:
        raise fault("picture empty", "picture is empty (0 bytes); expected an encoded picture such as PNG or JPEG")
    if starts_like_a_picture(data) or len(data) > MAX_BYTES:
        return data
    return _base64(data) or data


def _from_mapping(value: Mapping[Any, Any], folders: Folders) -> bytes:
    if "bytes" not in value and "path" not in value:
        raise _not_understood(f"a mapping with the keys {', '.join(map(str, value)) or '(none)'}")
    data, path = value.get("bytes"), value.get("path")
    if not (_is_missing(data) or (isinstance(data, bytes | bytearray) and not data and not _is_missing(path))):
        return decode(data, folder=folders)
    if _is_missing(path):
        raise fault("picture missing", "there is no picture (both bytes and path are missing)")
    if not isinstance(path, str | os.PathLike):
        raise _not_understood(f"a path of type {type(path).__name__}")
    return decode(path, folder=folders)


def _from_text(value: str, folders: Folders) -> bytes:
    text = value.strip()
    if text[:5].lower() == "data:":
        return _from_data_url(text)
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+)://", text)
    if scheme and scheme[1].lower() == "file":
        return _read(Path(unquote(urlsplit(text).path)), folders)
    if scheme:
        raise fault(
            "picture on the web",
            f"{_shown(text)} is not on this machine; pictures are not fetched while training: download them and give their paths",
        )
    if len(text) < 4096 and _find(Path(text), folders) is not None:
        return _read(Path(text), folders)
    encoded = text.encode("utf-8", "replace")
    found = _base64(encoded)
    if found is not None:
        return found
    if re.match(rb"\s*[<{\[]", encoded):
        raise fault("not a picture", f"the text {_shown(text)} is neither a path nor base64; expected a picture")
    if len(encoded) > 200 and re.fullmatch(rb"[A-Za-z0-9+/=_\s-]+", encoded):
        raise fault("not a picture", f"the base64 text {_shown(text)} holds no picture, or is cut; expected PNG, JPEG or another common format")
    return _read(Path(text), folders)


def _from_data_url(text: str) -> bytes:
    header, comma, body = text.partition(",")
    if not comma:
        raise fault("picture damaged", f"the data URL {_shown(text)} has no comma; expected data:image/png;base64,…")
    raw = unquote_to_bytes(body)
    if not header.lower().endswith(";base64"):
        return _from_bytes(raw)
    data = _unpacked(raw)
    if data is None:
        raise fault("picture damaged", f"the data URL {_shown(text)} is not valid base64")
    return _from_bytes(data)


def _base64(text: bytes) -> bytes | None:
    """The picture that base64 (or a data URL) holds, or None when it holds none."""
    if text[:5].lower() == b"data:":
        return _from_data_url(text.decode("utf-8", "replace"))
    data = _unpacked(text)
    return data if data is not None and starts_like_a_picture(data) else None


def _unpacked(text: bytes) -> bytes | None:
    """Base64 in either alphabet, with white space in it, with or without its padding; None for anything else."""
    compact = b"".join(text.split()).rstrip(b"=").translate(bytes.maketrans(b"-_", b"+/"))
    try:
        return base64.b64decode(compact + b"=" * (-len(compact) % 4), validate=True)
    except binascii.Error:
        return None


def _find(path: Path, folders: Folders) -> Path | None:
    """The path as it exists, from the first folder that has it; with the separators of Windows too. None when there is nothing."""
    for spelled in dict.fromkeys((str(path), str(path).replace("\\", "/"))):
        for folder in folders or (Path(),):
            try:
                place = folder / Path(spelled).expanduser()
                place.stat()
            except (OSError, ValueError, RuntimeError):  # no such file; no possible name; no such home
                continue
            return place
    return None


def _read(path: Path, folders: Folders) -> bytes:
    place = _find(path, folders)
    if place is None:
        where = f" in {', '.join(map(str, folders))}" if folders and not path.is_absolute() else ""
        raise fault("picture missing", f"there is no file {_shown(str(path))}{where}; expected the path of a picture")
    try:
        status = place.stat()
        if not stat.S_ISREG(status.st_mode):
            raise fault("picture missing", f"{_shown(str(place))} is not a file; expected the path of a picture")
        if status.st_size > MAX_BYTES:
            raise fault("picture too large", f"{_shown(str(place))} has {status.st_size:,} bytes, more than {MAX_BYTES:,}; shrink it first")
        data = place.read_bytes()
    except OSError as error:
        raise fault("picture missing", f"{_shown(str(place))} cannot be read: {error.strerror or error}") from None
    if not data:
        raise fault("picture empty", f"{_shown(str(place))} is empty (0 bytes); expected an encoded picture")
    return data


def _shown(text: str) -> str:
    return repr(text if len(text) <= 120 else f"{text[:60]}…{text[-20:]}")


def _from_pil(image: Image.Image) -> bytes:
    check_size(*image.size)
    with guarded(f"PIL picture of mode {image.mode}"):
        plain, turn = to_rgb(image)
        return _png(plain if turn is None else plain.transpose(turn), compress_level=1)


def _from_array(value: np.ndarray[Any, Any], folders: Folders) -> bytes:
    if value.ndim == 0:
        return decode(value.item(), folder=folders)
    if value.ndim == 1 and value.dtype == np.uint8:
        return _from_bytes(value.tobytes())
    channels = value.shape[2] if value.ndim == 3 else 1
    if value.ndim not in (2, 3) or channels not in (1, 2, 3, 4) or value.dtype.kind not in "buif":
        raise _not_understood(f"an array of shape {list(value.shape)} and type {value.dtype}")
    check_size(value.shape[1], value.shape[0])
    with guarded(f"array of shape {list(value.shape)} and type {value.dtype}"):
        samples = _eight_bits(value.squeeze(2) if value.ndim == 3 and channels == 1 else value)
        return _png(to_rgb(Image.fromarray(samples))[0], compress_level=1)  # L, LA, RGB or RGBA by the number of channels


def _eight_bits(samples: np.ndarray[Any, Any]) -> NDArray[np.uint8]:
    """The samples on the scale 0..255, a band of rows at a time."""
    if samples.dtype == np.uint8:
        return np.ascontiguousarray(samples)
    if samples.dtype == np.bool_:
        return np.ascontiguousarray(samples).view(np.uint8) * np.uint8(255)
    low, high = float(samples.min()), float(samples.max())
    levels = np.empty(samples.shape, np.uint8)
    step = max(1, 2**20 // samples[0].size)
    for top in range(0, len(samples), step):
        levels[top : top + step] = np.rint(to_level(samples[top : top + step], low, high)).clip(0, 255)
    return levels


def _png(image: Image.Image, compress_level: int = 6) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", compress_level=compress_level)
    return buffer.getvalue()
