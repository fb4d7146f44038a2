"""Every picture becomes plain RGB here, once; the sampler and the trainer then see the same bytes."""

from __future__ import annotations

import hashlib
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from seegrad.errors import DataError

MAX_PIXELS = 80_000_000  # larger pictures are refused before they are decoded
WHITE = (255, 255, 255)


def clean(data: bytes) -> bytes:
    """Any encoded picture as plain RGB PNG bytes without metadata.

    The EXIF orientation is applied, transparency is composited on white, 16-bit, 32-bit and float samples are scaled to 8 bits, and of an
    animation the first frame is taken. The same input always gives the same bytes, and `clean(clean(data)) == clean(data)`. Raises DataError
    in one line for bytes that are no whole picture and for more than `MAX_PIXELS` pixels.
    """
    with _opened(data) as image:
        image.load()
        upright = ImageOps.exif_transpose(image)
        plain = Image.new("RGB", upright.size, WHITE)
        plain.paste(_to_rgb(upright, _bit_depth(data)))
    return _png(plain)


def size(data: bytes) -> tuple[int, int]:
    """(width, height) in pixels, from the header alone. Raises DataError."""
    with _opened(data) as image:
        return image.size


def content_hash(data: bytes) -> str:
    """SHA-256 of the bytes as 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def blank(data: bytes) -> bytes:
    """An all-white picture of the same size (PNG), for baselines that must not see."""
    return _png(Image.new("RGB", size(data), WHITE))


@contextmanager
def _opened(data: bytes) -> Iterator[Image.Image]:
    """The picture behind `data`; whatever goes wrong inside the block is the picture's fault and becomes a DataError."""
    if not data:
        raise DataError("picture is empty (0 bytes); expected an encoded picture such as PNG or JPEG")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data)) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise DataError(f"picture has {image.width}×{image.height} pixels, more than {MAX_PIXELS:,}; shrink it first")
                yield image
    except DataError:
        raise
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise DataError(f"picture has more than {MAX_PIXELS:,} pixels; shrink it first") from None
    except UnidentifiedImageError:
        raise DataError(f"{len(data)} bytes starting with {data[:8]!r} are not a picture; expected PNG, JPEG or another common format") from None
    except Exception as error:  # decoders raise many kinds on damaged data
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"picture of {len(data)} bytes is damaged: {reason}") from error


def _to_rgb(image: Image.Image, bit_depth: int) -> Image.Image:
    """8-bit RGB of an upright picture in any Pillow mode."""
    if image.mode.startswith("I") or image.mode == "F":
        return _scaled(image)
    if image.mode == "La":
        image = image.convert("LA")
    if not image.has_transparency_data:
        return image.convert("RGB")
    if image.mode in ("1", "L", "RGB"):
        image.info["transparency"] = _transparent_level(image.info["transparency"], bit_depth)
    layer = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, (*WHITE, 255)), layer).convert("RGB")


def _scaled(image: Image.Image) -> Image.Image:
    """Integer and float samples to 8 bits.

    16-bit samples keep their fixed scale. Wider ones have no agreed range: values within 0..1 (floats), 0..255 or 0..65535 are read on that
    scale, anything else is stretched from its smallest to its largest value.
    """
    values = np.asarray(image)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError("it has samples that are not finite numbers")
    level = values / 257 if image.mode.startswith("I;16") else _level(values.astype(np.float64), unit_range=image.mode == "F")
    gray = np.rint(level).clip(0, 255).astype(np.uint8)
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        gray[values == transparent] = 255
    return Image.fromarray(gray).convert("RGB")


def _level(values: NDArray[np.float64], *, unit_range: bool) -> NDArray[np.float64]:
    low, high = float(values.min()), float(values.max())
    if low >= 0 and high <= 65535:
        return values * 255 if unit_range and high <= 1 else values if high <= 255 else values / 257
    return (values - low) * (255 / (high - low)) if high > low else np.zeros_like(values)


def _bit_depth(data: bytes) -> int:
    """Bits per sample that a PNG header declares; 8 for every other format."""
    return data[24] if data.startswith(b"\x89PNG\r\n\x1a\n") and len(data) > 24 else 8


def _transparent_level(value: int | tuple[int, ...], bit_depth: int) -> int | tuple[int, ...]:
    """A PNG stores its transparent colour at the file's bit depth, but gray samples of 2 or 4 bits and colours of 16 bits are decoded to 8."""
    if isinstance(value, int) and bit_depth in (2, 4):
        return value * (255 // ((1 << bit_depth) - 1))
    if isinstance(value, tuple):
        return tuple(part >> 8 for part in value) if bit_depth == 16 else value
    return value


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()
