"""A decoded picture in any Pillow mode → 8-bit RGB on white, upright. Works tile by tile, so that a large picture is held twice, not five times."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

WHITE = (255, 255, 255)
TILE = 1024  # pixels, both sides
ORIENTATION = 0x0112  # the EXIF tag
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


Turn = Image.Transpose


def to_rgb(image: Image.Image) -> tuple[Image.Image, Turn | None]:
    """A new RGB picture without metadata, transparency on white, wide samples scaled to 8 bits; and the turn that makes it upright, as its EXIF
    orientation says. The turn is left to the caller, who can let go of `image` first.

    Raises what Pillow's decoders raise, and ValueError for samples that are not finite.
    """
    stored = _Stored.of(image)
    image.load()
    turn = None if image.format == "TIFF" else _TURNS.get(_orientation(image))  # a TIFF is turned while it is loaded
    if stored.covered is None:
        return _plain(image, stored), turn
    canvas = Image.new("RGB", image.size, WHITE)
    canvas.paste(_plain(image.crop(stored.covered), stored), stored.covered[:2])
    return canvas, turn


def upright_size(image: Image.Image, *, metadata_follows: bool) -> tuple[int, int]:
    """(width, height) that the turned picture will have, from the header alone; a PNG is decoded only when `metadata_follows` its samples."""
    if image.format == "TIFF":
        return image.size
    whole_file = metadata_follows or image.format != "PNG"
    return (image.height, image.width) if _orientation(image, whole_file=whole_file) >= 5 else image.size


def _orientation(image: Image.Image, *, whole_file: bool = True) -> int:
    """The EXIF (or XMP) orientation, 1 to 8; 1 for one that is absent or cannot be read: metadata does not spoil a picture."""
    try:
        exif = image.getexif() if whole_file else Image.Image.getexif(image)  # the second does not load a PNG to look behind its samples
        value = exif.get(ORIENTATION, 1)
    except Exception:
        return 1
    return value if value in _TURNS else 1


@dataclass(frozen=True, slots=True)
class _Stored:
    """How the file holds its samples, as far as it matters after decoding.

    `bit_depth` is that of a PNG's colour key; `inverted` means that the smallest wide sample is white; `unsigned` that 32-bit integers have no sign;
    `white` is the largest 16-bit sample; `covered` is the box of a GIF's first frame when it leaves part of the canvas open (None: nothing open).
    """

    bit_depth: int = 8
    inverted: bool = False
    unsigned: bool = False
    white: int = 65535
    covered: tuple[int, int, int, int] | None = None

    @classmethod
    def of(cls, image: Image.Image) -> _Stored:
        """Read before the picture is loaded; afterwards nothing of this is known and the defaults hold."""
        tiles = getattr(image, "tile", None)
        if not tiles:
            return cls()
        _, box, _, arguments = tiles[0]
        raw_mode = arguments if isinstance(arguments, str) else next((part for part in arguments or () if isinstance(part, str)), "")
        if image.format == "PNG":
            depth = re.search(r";(\d+)", raw_mode)
            return cls(bit_depth=int(depth[1]) if depth else 8)
        if image.format == "GIF":
            return cls(covered=tuple(box) if tuple(box) != (0, 0, *image.size) else None)
        if image.format == "TIFF":
            return cls(inverted=getattr(image, "tag_v2", {}).get(262) == 0, unsigned=raw_mode == "I;32N", white=4095 if raw_mode == "I;12" else 65535)
        return cls()


def _plain(image: Image.Image, stored: _Stored) -> Image.Image:
    plain = Image.new("RGB", image.size, WHITE)
    wide = image.mode in ("I", "F") or image.mode.startswith("I;")
    low, high = _range(image, stored) if wide else (0.0, 0.0)
    for box in _tiles(*image.size):
        tile = image.crop(box)
        plain.paste(_scaled(tile, low, high, stored) if wide else _opaque(tile, stored.bit_depth), box[:2])
    return plain


def _tiles(width: int, height: int) -> Iterator[tuple[int, int, int, int]]:
    for top in range(0, height, TILE):
        for left in range(0, width, TILE):
            yield left, top, min(left + TILE, width), min(top + TILE, height)


def _opaque(tile: Image.Image, bit_depth: int) -> Image.Image:
    """8-bit RGB of a tile in any 8-bit mode. The tile's own `info` may change."""
    if tile.mode in ("La", "RGBa"):
        tile = tile.convert("LA" if tile.mode == "La" else "RGBA")
    if not tile.has_transparency_data:
        return tile.convert("RGB")
    if tile.mode in ("1", "L", "RGB"):
        tile.info["transparency"] = _transparent_level(tile.info["transparency"], bit_depth)
    layer = tile.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, (*WHITE, 255)), layer).convert("RGB")


def _transparent_level(value: int | tuple[int, ...], bit_depth: int) -> int | tuple[int, ...]:
    """A PNG stores its transparent colour at the file's bit depth, but gray samples of 2 or 4 bits and colours of 16 bits are decoded to 8."""
    if isinstance(value, int) and bit_depth in (2, 4):
        return value * (255 // ((1 << bit_depth) - 1))
    if isinstance(value, tuple):
        return tuple(part >> 8 for part in value) if bit_depth == 16 else value
    return value


def _range(image: Image.Image, stored: _Stored) -> tuple[float, float]:
    """The smallest and largest sample of a picture whose samples have no fixed scale."""
    if image.mode.startswith("I;"):
        return 0.0, float(stored.white)
    if stored.unsigned:
        ends = [(float(tile.min()), float(tile.max())) for tile in (_samples(image.crop(box), stored) for box in _tiles(*image.size))]
        return min(low for low, _ in ends), max(high for _, high in ends)
    return cast(tuple[float, float], image.getextrema())


def _samples(tile: Image.Image, stored: _Stored) -> NDArray[np.generic]:
    values = np.asarray(tile)
    return values.view(np.uint32) if stored.unsigned and values.dtype == np.int32 else values


def _scaled(tile: Image.Image, low: float, high: float, stored: _Stored) -> Image.Image:
    values = _samples(tile, stored)
    level = values.astype(np.float32) * np.float32(255 / stored.white) if tile.mode.startswith("I;") else to_level(values, low, high)
    gray = np.rint(level).clip(0, 255).astype(np.uint8)
    if stored.inverted:
        gray = 255 - gray
    transparent = tile.info.get("transparency")
    if isinstance(transparent, int):
        gray[values == transparent] = 255
    return Image.fromarray(gray).convert("RGB")


def to_level(values: NDArray[np.generic], low: float, high: float) -> NDArray[np.float64]:
    """Integer or float samples on the scale 0..255; `low` and `high` are the smallest and largest of the whole picture.

    Such samples have no agreed range: those within 0..1 (floats), 0..255 or 0..65535 are read on that scale, anything else is stretched from its
    smallest to its largest value. Raises ValueError for samples that are not finite.
    """
    unit_range = values.dtype.kind == "f"
    wide = values.astype(np.float64)
    if unit_range and not np.isfinite(wide).all():
        raise ValueError("it has samples that are not finite numbers")
    if low >= 0 and high <= 65535:
        return wide * 255 if unit_range and high <= 1 else wide if high <= 255 else wide / 257
    return (wide - low) * (255 / (high - low)) if high > low else np.zeros_like(wide)
