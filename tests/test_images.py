"""Every kind of picture becomes plain RGB: what is seen is what was drawn, and what is no picture is refused in one line."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from seegrad import images
from seegrad.errors import DataError

RED, WHITE, BLACK = (255, 0, 0), (255, 255, 255), (0, 0, 0)


def encode(image: Image.Image, form: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=form, **options)
    return buffer.getvalue()


def pixels(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        assert (image.mode, image.format) == ("RGB", "PNG")
        return np.asarray(image).astype(int)


def raw_png(width: int, depth: int, colour_type: int, row: bytes, transparent: bytes | None = None) -> bytes:
    """A PNG of one row, written by hand: Pillow cannot write every kind that it reads."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, 1, depth, colour_type, 0, 0, 0))
    colour_key = chunk(b"tRNS", transparent) if transparent is not None else b""
    return b"\x89PNG\r\n\x1a\n" + header + colour_key + chunk(b"IDAT", zlib.compress(b"\0" + row)) + chunk(b"IEND", b"")


def drawing_on_transparent(mode: str) -> bytes:
    """A black pixel beside a fully transparent one whose hidden colour is black."""
    if mode == "P":
        image = Image.new("P", (2, 1))
        image.putpalette([*BLACK, 0, 0, 0])
        image.putpixel((1, 0), 1)
        return encode(image, transparency=1)
    layers = Image.new("RGBA", (2, 1), (0, 0, 0, 0))
    layers.putpixel((0, 0), (0, 0, 0, 255))
    return encode(layers.convert(mode))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparency_is_white(mode: str) -> None:
    data = drawing_on_transparent(mode)
    assert pixels(images.clean(data)).tolist() == [[list(BLACK), list(WHITE)]]
    with Image.open(io.BytesIO(data)) as image:  # the naive way gives a black picture, which is what this test is for
        assert np.asarray(image.convert("RGB")).max() == 0


def test_half_transparency_is_mixed_with_white() -> None:
    data = encode(Image.new("RGBA", (1, 1), (0, 0, 0, 128)))
    assert abs(int(pixels(images.clean(data))[0, 0, 0]) - 127) <= 1


@pytest.mark.parametrize(
    ("depth", "row", "key"),
    [(1, b"\x40", 0), (2, b"\x70", 1), (4, b"\x3f", 3), (8, b"\x05\xff", 5), (16, b"\x05\x00\xff\xff", 0x500)],
)
def test_the_transparent_gray_of_every_bit_depth_is_white(depth: int, row: bytes, key: int) -> None:
    assert pixels(images.clean(raw_png(2, depth, 0, row, struct.pack(">H", key))))[0].tolist() == [list(WHITE), list(WHITE)]
    other = struct.pack(">H", key + 1 if depth > 1 else 1)
    assert pixels(images.clean(raw_png(2, depth, 0, row, other)))[0, 0].max() < 100


@pytest.mark.parametrize(("depth", "first"), [(8, b"\x05\x06\x07"), (16, b"\x05\x00\x06\x00\x07\x00")])
def test_the_transparent_colour_is_white(depth: int, first: bytes) -> None:
    key = b"\x00\x05\x00\x06\x00\x07" if depth == 8 else first
    row = first + b"\x90" * len(first)
    assert pixels(images.clean(raw_png(2, depth, 2, row, key)))[0].tolist() == [list(WHITE), [0x90] * 3]


def test_sixteen_bits_keep_their_scale() -> None:
    ramp = np.array([[0, 257 * 10, 257 * 100, 65535]], np.uint16)
    gray = pixels(images.clean(encode(Image.fromarray(ramp))))[0, :, 0]
    assert gray.tolist() == [0, 10, 100, 255]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([[0, 128, 255]], np.int32), [0, 128, 255]),
        (np.array([[0, 25700, 65535]], np.int32), [0, 100, 255]),
        (np.array([[-1000, 0, 1000]], np.int32), [0, 128, 255]),
        (np.array([[0.0, 0.2, 1.0]], np.float32), [0, 51, 255]),
        (np.array([[0.0, 51.0, 255.0]], np.float32), [0, 51, 255]),
        (np.array([[-5.0, 0.0, 5.0]], np.float32), [0, 128, 255]),
        (np.array([[1e6, 1e6, 1e6]], np.float32), [0, 0, 0]),
    ],
)
def test_wide_samples_are_scaled(values: np.ndarray, expected: list[int]) -> None:
    assert pixels(images.clean(encode(Image.fromarray(values), "TIFF")))[0, :, 0].tolist() == expected


def test_samples_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(DataError, match="not finite"):
        images.clean(encode(Image.fromarray(np.array([[np.nan, 1.0]], np.float32)), "TIFF"))


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "CMYK", "YCbCr", "LAB", "RGBX", "LA", "RGBA"])
def test_every_mode_keeps_a_black_and_white_drawing(mode: str) -> None:
    drawing = Image.new("RGB", (32, 16), WHITE)
    drawing.paste(BLACK, (0, 0, 16, 16))
    form = "JPEG" if mode == "YCbCr" else "TIFF"  # Pillow before 13 writes a YCbCr TIFF that it cannot read
    seen = pixels(images.clean(encode(drawing.convert(mode), form)))
    assert seen.shape == (16, 32, 3)
    assert seen[:, :16].max() < 40 and seen[:, 16:].min() > 215


def test_a_cmyk_jpeg_keeps_its_colour() -> None:
    red = images.clean(encode(Image.new("RGB", (16, 16), RED).convert("CMYK"), "JPEG", quality=95))
    assert np.abs(pixels(red)[8, 8] - np.array(RED)).max() < 12


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(orientation: int) -> None:
    stored = Image.new("RGB", (40, 20), WHITE)
    stored.paste(RED, (0, 0, 10, 5))  # the top left corner as stored
    exif = Image.Exif()
    exif[0x0112] = orientation
    seen = pixels(images.clean(encode(stored, exif=exif)))
    corner = {1: (0, 0), 2: (0, -1), 3: (-1, -1), 4: (-1, 0), 5: (0, 0), 6: (0, -1), 7: (-1, -1), 8: (-1, 0)}[orientation]
    assert seen.shape[:2] == ((20, 40) if orientation < 5 else (40, 20))
    assert seen[corner].tolist() == list(RED)
    assert (np.abs(seen - np.array(RED)).sum(-1) == 0).sum() == 50


def test_an_animation_is_its_first_frame() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, BLACK)]
    for form in ("GIF", "PNG", "WEBP"):
        data = encode(frames[0], form, save_all=True, append_images=frames[1:], **({"lossless": True} if form == "WEBP" else {}))
        assert pixels(images.clean(data))[0, 0].tolist() == list(RED), form


def test_cleaning_twice_changes_nothing_and_metadata_is_gone() -> None:
    exif = Image.Exif()
    exif[0x010E] = "a description"
    once = images.clean(encode(Image.new("RGB", (5, 7), RED), exif=exif, icc_profile=b"profile"))
    assert images.clean(once) == once
    with Image.open(io.BytesIO(once)) as image:
        image.load()
        assert not image.info


def test_size_needs_the_header_only() -> None:
    data = encode(Image.new("RGB", (123, 45), RED))
    assert images.size(data) == (123, 45)
    assert images.size(data[:60]) == (123, 45)
    with pytest.raises(DataError):
        images.clean(data[:60])


def test_blank_has_the_size_and_nothing_else() -> None:
    white = pixels(images.blank(encode(Image.new("RGB", (9, 4), RED))))
    assert white.shape == (4, 9, 3) and white.min() == 255


def test_content_hash_is_sha256() -> None:
    assert images.content_hash(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def noise(form: str) -> bytes:
    return encode(Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)), form)


@pytest.mark.parametrize(
    "data",
    [b"", b"\0", b"no picture at all", noise("JPEG")[:900], noise("PNG")[:900], noise("GIF")[:300], noise("PNG")[:40], b"<svg></svg>"],
    ids=["empty", "zero", "text", "cut JPEG", "cut PNG", "cut GIF", "cut header", "SVG"],
)
def test_what_is_no_whole_picture_is_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(DataError) as caught:
        images.clean(data)
    assert "\n" not in str(caught.value) and len(str(caught.value)) > 20


@pytest.mark.parametrize("reader", [images.clean, images.size, images.blank])
@pytest.mark.parametrize("side", [7_142, 9_500, 60_000])
def test_a_picture_too_large_is_refused_before_it_is_decoded(reader: Callable[[bytes], object], side: int) -> None:
    """60,000² pixels would take 10 GB; 7,142² and 9,500² lie below and above the size at which Pillow itself warns."""
    data = bytearray(raw_png(1, 8, 2, b"\0\0\0"))
    data[16:24] = struct.pack(">II", side, side)
    data[29:33] = struct.pack(">I", zlib.crc32(bytes(data[12:29])))
    with pytest.raises(DataError, match="51,000,000"):
        reader(bytes(data))
