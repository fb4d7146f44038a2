"""Pictures of every kind, what becomes of each, and the tables of docs/images.md that say so: `python -m tests.pictures` prints them.

Most show the same drawing, 32×16 pixels: the left half black, the right half white, with whatever a file can hold that makes this go wrong.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageCms

RED, WHITE, BLACK = (255, 0, 0), (255, 255, 255), (0, 0, 0)
ROTATIONS = ("top left", "top right", "bottom right", "bottom left", "top left", "top right", "bottom right", "bottom left")  # of EXIF 1 to 8


@dataclass(frozen=True, slots=True)
class Case:
    """`given` and `becomes` are a row of the documents; `right` says whether the pixels (height × width × 3) are what `becomes` promises."""

    given: str
    becomes: str
    data: Callable[[], bytes]
    right: Callable[[np.ndarray], bool]


@dataclass(frozen=True, slots=True)
class Refused:
    """A picture that cannot be used, and the kind of reason that is counted."""

    given: str
    reason: str
    data: Callable[[], bytes]


def encode(image: Image.Image, form: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=form, **options)
    return buffer.getvalue()


def drawing(mode: str = "RGB") -> Image.Image:
    image = Image.new("RGB", (32, 16), WHITE)
    image.paste(BLACK, (0, 0, 16, 16))
    return image.convert(mode)


def noise(side: int = 64) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8))


def see_through(mode: str = "RGBA") -> Image.Image:
    """The drawing with black ink on nothing: the hidden colour of the transparent half is black too."""
    image = Image.new("RGBA", (32, 16), (0, 0, 0, 0))
    image.paste((0, 0, 0, 255), (0, 0, 16, 16))
    if mode in ("LA", "RGBA"):
        return image.convert(mode)
    palette = Image.new("P", (32, 16), 1)
    palette.putpalette([*BLACK, *BLACK])
    palette.paste(0, (0, 0, 16, 16))
    return palette


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, depth: int, colour_type: int, rows: bytes, *extra: bytes, after: bytes = b"") -> bytes:
    """A PNG written by hand (Pillow cannot write every kind that it reads): `rows` with their filter bytes, chunks before and after the samples."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(extra) + chunk(b"IDAT", zlib.compress(rows)) + after + chunk(b"IEND", b"")


def raw_png(width: int, depth: int, colour_type: int, row: bytes, transparent: bytes | None = None) -> bytes:
    """A PNG of one row."""
    key = [chunk(b"tRNS", transparent)] if transparent is not None else []
    return png(width, 1, depth, colour_type, b"\0" + row, *key)


def gray_png(depth: int, *, key: bool = False) -> bytes:
    """The drawing in gray of 1 to 16 bits; with `key` the left half is level 1 and the right half level 0, declared transparent."""
    top = (1 << depth) - 1
    levels = [1] * 16 + [0] * 16 if key else [0] * 16 + [top] * 16
    row = int("".join(f"{level:0{depth}b}" for level in levels), 2).to_bytes(32 * depth // 8, "big")
    return png(32, 16, depth, 0, (b"\0" + row) * 16, *([chunk(b"tRNS", struct.pack(">H", 0))] if key else []))


def tiff(samples: np.ndarray, *, bits: int, photometric: int = 1, kind: int = 1, big_endian: bool = False) -> bytes:
    """An uncompressed TIFF of one strip; `samples` [height, width] or [height, width, channels] of the file's own type."""
    order = ">" if big_endian else "<"
    height, width = samples.shape[:2]
    channels = samples.shape[2] if samples.ndim == 3 else 1
    body = samples.astype(samples.dtype.newbyteorder(order)).tobytes() if bits != 12 else packed_12(samples)
    place = 8 + 2 + 12 * 11 + 4
    wide = [(258, place, bits), (339, place + 2 * channels, kind)]
    tags = [(256, 3, 1, width), (257, 3, 1, height), (259, 3, 1, 1), (262, 3, 1, photometric), (273, 4, 1, place + 4 * channels)]
    tags += [(277, 3, 1, channels), (278, 3, 1, height), (279, 4, 1, len(body)), (284, 3, 1, 1)]
    tags += [(tag, 3, channels, value if channels == 1 else offset) for tag, offset, value in wide]
    out = (b"MM\0*" if big_endian else b"II*\0") + struct.pack(order + "IH", 8, len(tags))
    for tag, form, count, value in sorted(tags):
        inline = form == 3 and count == 1
        out += struct.pack(order + "HHI", tag, form, count) + (struct.pack(order + "HH", value, 0) if inline else struct.pack(order + "I", value))
    return out + struct.pack(order + f"I{2 * channels}H", 0, *[bits] * channels, *[kind] * channels) + body


def packed_12(samples: np.ndarray) -> bytes:
    text = "".join(f"{int(value):012b}" for value in samples.flatten())
    return int(text, 2).to_bytes(len(text) // 8, "big")


def levels(white: float, kind: str) -> np.ndarray:
    return ((np.asarray(drawing("L")) > 127) * white).astype(kind)


def turned(form: str, orientation: int, **options: object) -> bytes:
    """40×20, white, with a red corner at the top left as stored."""
    stored = Image.new("RGB", (40, 20), WHITE)
    stored.paste(RED, (0, 0, 10, 5))
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encode(stored, form, exif=exif, **options)


def late_exif() -> bytes:
    """A PNG whose EXIF chunk stands behind the samples."""
    exif = Image.Exif()
    exif[0x0112] = 6
    rows = b"".join(b"\0" + (bytes(RED) * 10 if y < 5 else bytes(WHITE) * 10) + bytes(WHITE) * 30 for y in range(20))
    return png(40, 20, 8, 2, rows, after=chunk(b"eXIf", exif.tobytes().removeprefix(b"Exif\0\0")))


def partial_gif() -> bytes:
    """A GIF whose first frame covers the left half of its canvas and is black."""
    data = bytearray(encode(Image.new("L", (16, 16), 0).convert("P"), "GIF"))
    data[6:10] = struct.pack("<HH", 32, 16)
    return bytes(data)


def animated(form: str, first: Image.Image, **options: object) -> bytes:
    return encode(first, form, save_all=True, append_images=[Image.new(first.mode, first.size, 1 if first.mode == "P" else RED)], **options)


def declared(width: int, height: int) -> bytes:
    """A small PNG file that says it is `width` × `height`."""
    return png(width, height, 8, 2, b"\0\0\0\0")


def seen_drawing(seen: np.ndarray) -> bool:
    return seen.shape == (16, 32, 3) and seen[:, :15].max() < 40 and seen[:, 17:].min() > 215


def exact_drawing(seen: np.ndarray) -> bool:
    return seen.shape == (16, 32, 3) and seen[:, :16].max() == 0 and seen[:, 16:].min() == 255


def corner(orientation: int) -> Callable[[np.ndarray], bool]:
    """Whether the red corner is where it belongs once the picture is upright."""
    vertical, horizontal = ROTATIONS[orientation - 1].split()
    size = (20, 40, 3) if orientation < 5 else (40, 20, 3)
    place = (0 if vertical == "top" else -1, 0 if horizontal == "left" else -1)

    def right(seen: np.ndarray) -> bool:
        red = np.abs(seen - np.array(RED)).max(-1) < 40
        return seen.shape == size and bool(red[place]) and 40 <= int(red.sum()) <= 60

    return right


def sized(width: int, height: int) -> Callable[[np.ndarray], bool]:
    return lambda seen: seen.shape == (height, width, 3)


def near(colour: tuple[int, int, int]) -> Callable[[np.ndarray], bool]:
    return lambda seen: bool(np.abs(seen[8, 8] - np.array(colour)).max() < 16)


def cases() -> Iterator[Case]:
    for depth in (1, 2, 4, 8, 16):
        yield Case(f"PNG, gray of {depth} bit", "the same grays on 8 bits", lambda depth=depth: gray_png(depth), exact_drawing)
        yield Case(
            f"PNG, gray of {depth} bit with a transparent level", "that level is white", lambda depth=depth: gray_png(depth, key=True), keyed(depth)
        )
    yield Case("PNG, gray of 16 bit, level 32896", "mid gray", lambda: encode(Image.new("I;16", (16, 16), 32896)), near((128, 128, 128)))
    yield Case("PNG, palette", "its colours", lambda: encode(drawing("P")), exact_drawing)
    yield Case("PNG, palette with one transparent entry", "transparent is white", lambda: encode(see_through("P"), transparency=1), exact_drawing)
    yield Case("PNG, palette with an alpha table", "blended with white", lambda: encode(see_through("P"), transparency=b"\xff\0"), exact_drawing)
    yield Case("PNG, gray with alpha", "blended with white", lambda: encode(see_through("LA")), exact_drawing)
    yield Case("PNG, RGB with alpha: black drawing on transparent", "black on white", lambda: encode(see_through()), exact_drawing)
    yield Case("PNG, RGB with half-transparent black", "mid gray", lambda: encode(Image.new("RGBA", (16, 16), (0, 0, 0, 128))), near((127, 127, 127)))
    yield Case("PNG, RGB of 16 bits", "8 bits", lambda: png(32, 16, 16, 2, (b"\0" + b"\0" * 96 + b"\xff" * 96) * 16), exact_drawing)
    for bits, black in ((8, b"\0\1\0\2\0\3"), (16, b"\1\7\2\7\3\7")):
        sample = black[1::2] if bits == 8 else black
        rows = (b"\0" + b"\0" * (16 * len(sample)) + sample * 16) * 16
        key = chunk(b"tRNS", black)
        yield Case(
            f"PNG, RGB of {bits} bits with a transparent colour",
            "that colour is white",
            lambda bits=bits, rows=rows, key=key: png(32, 16, bits, 2, rows, key),
            exact_drawing,
        )
    yield Case("PNG with a colour profile", "samples as they are, profile dropped", lambda: encode(drawing(), icc_profile=srgb()), exact_drawing)
    yield Case("PNG with a damaged colour profile", "the picture without it", lambda: encode(drawing(), icc_profile=b"no profile"), exact_drawing)
    yield Case("PNG with damaged EXIF data", "the picture as stored", lambda: encode(drawing(), exif=b"Exif\0\0II*\0\xff\xff\xff\xff"), exact_drawing)
    yield Case("PNG cut by one byte, behind its samples", "the whole picture", lambda: encode(noise())[:-1], sized(64, 64))
    yield Case("JPEG", "its colours", lambda: encode(drawing(), "JPEG", quality=95), seen_drawing)
    yield Case("JPEG, gray", "gray", lambda: encode(drawing("L"), "JPEG", quality=95), seen_drawing)
    yield Case("JPEG, progressive", "its colours", lambda: encode(drawing(), "JPEG", quality=95, progressive=True), seen_drawing)
    yield Case("JPEG, CMYK (Adobe's inverted inks)", "its colours", lambda: encode(solid(RED, "CMYK"), "JPEG", quality=95), near(RED))
    yield Case("JPEG of several pictures (MPO)", "the first", lambda: animated("MPO", drawing(), quality=95), seen_drawing)
    for orientation in range(1, 9):
        where = ROTATIONS[orientation - 1]
        yield Case(
            f"JPEG with EXIF orientation {orientation}",
            f"upright: the stored top left corner is at the {where}",
            lambda orientation=orientation: turned("JPEG", orientation, quality=95, subsampling=0),
            corner(orientation),
        )
    yield Case("PNG with EXIF orientation 6", "upright", lambda: turned("PNG", 6), corner(6))
    yield Case("PNG with EXIF orientation behind its samples", "upright", late_exif, corner(6))
    yield Case("WebP with EXIF orientation 6", "upright", lambda: turned("WEBP", 6, lossless=True), corner(6))
    yield Case("TIFF with orientation 6", "upright", lambda: turned("TIFF", 6), corner(6))
    yield Case("GIF", "its colours", lambda: encode(drawing(), "GIF"), exact_drawing)
    yield Case("GIF with transparency", "transparent is white", lambda: encode(see_through("P"), "GIF", transparency=1), exact_drawing)
    yield Case("GIF, animated", "the first frame", lambda: animated("GIF", drawing()), exact_drawing)
    yield Case("GIF whose first frame leaves part of the canvas open", "that part is white", partial_gif, exact_drawing)
    yield Case("PNG, animated", "the first frame", lambda: animated("PNG", drawing()), exact_drawing)
    yield Case("PNG, animated, with transparency", "the first frame on white", lambda: animated("PNG", see_through()), exact_drawing)
    yield Case("WebP", "its colours", lambda: encode(drawing(), "WEBP", lossless=True), exact_drawing)
    yield Case("WebP with transparency", "blended with white", lambda: encode(see_through(), "WEBP", lossless=True, exact=True), exact_drawing)
    yield Case("WebP, animated", "the first frame", lambda: animated("WEBP", drawing(), lossless=True), exact_drawing)
    yield Case("AVIF", "its colours", lambda: encode(drawing(), "AVIF", quality=90), seen_drawing)
    yield Case("JPEG 2000", "its colours", lambda: encode(drawing(), "JPEG2000"), seen_drawing)
    yield Case("BMP", "its colours", lambda: encode(drawing(), "BMP"), exact_drawing)
    yield Case("ICO", "the largest picture in it", lambda: encode(Image.new("RGBA", (48, 48), (0, 0, 0, 0)), "ICO"), lambda s: s.shape[0] == 48)
    yield Case("PPM", "its colours", lambda: encode(drawing(), "PPM"), exact_drawing)
    yield Case("PGM of 16 bits", "scaled to 8 bits", lambda: b"P5 32 16 65535\n" + levels(65535, ">u2").tobytes(), exact_drawing)
    yield Case("PGM of 12 bits", "scaled to 8 bits", lambda: b"P5 32 16 4095\n" + levels(4095, ">u2").tobytes(), exact_drawing)
    for mode, name in (("1", "1 bit"), ("L", "gray"), ("P", "palette"), ("RGB", "RGB"), ("CMYK", "CMYK"), ("LAB", "L*a*b*")):
        yield Case(f"TIFF, {name}", "its colours", lambda mode=mode: encode(drawing(mode), "TIFF"), seen_drawing)
    yield Case("TIFF, RGB with alpha", "blended with white", lambda: encode(see_through(), "TIFF"), exact_drawing)
    yield Case("TIFF of several pages", "the first page", lambda: animated("TIFF", drawing()), exact_drawing)
    yield Case("TIFF, 12 bits", "scaled to 8 bits", lambda: tiff(levels(4095, "u2"), bits=12), exact_drawing)
    for big in (False, True):
        name = "big-endian" if big else "little-endian"
        yield Case(f"TIFF, 16 bits, {name}", "scaled", lambda big=big: tiff(levels(65535, "u2"), bits=16, big_endian=big), exact_drawing)
        yield Case(f"TIFF, float 0 to 1, {name}", "scaled", lambda big=big: tiff(levels(1, "f4"), bits=32, kind=3, big_endian=big), exact_drawing)
    yield Case("TIFF, 16 bits where 0 is white", "not inverted", lambda: tiff(65535 - levels(65535, "u2"), bits=16, photometric=0), exact_drawing)
    yield Case("TIFF, 32 bits without sign", "stretched", lambda: tiff(levels(2**32 - 1, "u4"), bits=32), exact_drawing)
    yield Case("TIFF, 32 bits, all within 0 to 255", "as they are", lambda: encode(Image.fromarray(levels(255, "i4")), "TIFF"), exact_drawing)
    yield Case("TIFF, 32 bits, all within 0 to 65535", "scaled", lambda: encode(Image.fromarray(levels(65535, "i4")), "TIFF"), exact_drawing)
    yield Case("TIFF, 32 bits, level 32896", "mid gray", lambda: encode(Image.new("I", (16, 16), 32896), "TIFF"), near((128, 128, 128)))
    yield Case("TIFF, 32 bits with negative values", "stretched", lambda: encode(Image.fromarray(levels(9, "i4") - 3), "TIFF"), exact_drawing)
    yield Case("TIFF, float 0 to 255", "as they are", lambda: encode(Image.fromarray(levels(255, "f4")), "TIFF"), exact_drawing)
    yield Case("TIFF, float of any range", "stretched", lambda: encode(Image.fromarray(levels(1e9, "f4") - 5e8), "TIFF"), exact_drawing)
    yield Case("TIFF, float where all samples are one large value", "black", lambda: encode(solid_float(1e9), "TIFF"), near(BLACK))


def keyed(depth: int) -> Callable[[np.ndarray], bool]:
    """Whether the transparent half is white and the other keeps its level, 1 of 2 ** depth."""
    return lambda seen: bool(seen[:, 16:].min() == 255 and (seen[:, :16] == round(255 / (2**depth - 1))).all())


def solid(colour: tuple[int, int, int], mode: str = "RGB") -> Image.Image:
    return Image.new("RGB", (16, 16), colour).convert(mode)


def solid_float(value: float) -> Image.Image:
    return Image.fromarray(np.full((16, 16), value, np.float32))


def srgb() -> bytes:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def refused() -> Iterator[Refused]:
    yield Refused("no bytes at all", "picture empty", lambda: b"")
    yield Refused("a text", "not a picture", lambda: b"no picture at all")
    yield Refused("a web page (an error page saved as a picture)", "not a picture", lambda: b"<!DOCTYPE html><html><body>404</body></html>")
    yield Refused("an SVG drawing", "not a picture", lambda: b"<?xml version='1.0'?>\n<!-- a --><svg xmlns='http://www.w3.org/2000/svg'/>")
    yield Refused("a PDF document", "not a picture", lambda: b"%PDF-1.7\n1 0 obj")
    yield Refused("a PostScript file", "not a picture", lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    yield Refused("a HEIC picture", "not a picture", lambda: b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    yield Refused("a video", "not a picture", lambda: b"\0\0\0\x18ftypisom\0\0\0\0isomiso2")
    yield Refused("a ZIP archive", "not a picture", lambda: b"PK\x03\x04\x14\0\0\0\x08\0")
    yield Refused("a Git LFS pointer", "not a picture", lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    yield Refused("zeros", "not a picture", lambda: bytes(1000))
    for form in ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "JPEG2000", "AVIF", "PPM"):
        yield Refused(f"half of a {form} file", "picture damaged", lambda form=form: half(encode(noise(), form)))
    yield Refused("a JPEG cut by one byte", "picture damaged", lambda: encode(noise(), "JPEG")[:-1])
    yield Refused("a progressive JPEG cut by one byte", "picture damaged", lambda: encode(noise(), "JPEG", progressive=True)[:-1])
    yield Refused("a JPEG of thousands of scans, each a pass over the whole picture", "picture damaged", scan_bomb)
    yield Refused("a PNG header alone", "picture damaged", lambda: encode(noise())[:40])
    yield Refused("a PNG whose samples are overwritten", "picture damaged", lambda: overwritten(encode(noise())))
    yield Refused("a PNG of 0×5 pixels", "picture damaged", lambda: declared(0, 5))
    yield Refused("a GIF of 0×0 pixels", "picture damaged", lambda: b"GIF89a\0\0\0\0\0\0\0;")
    yield Refused("a float TIFF with samples that are no numbers", "picture damaged", lambda: encode(solid_float(float("nan")), "TIFF"))
    yield Refused("a TIFF of 64-bit floats", "picture damaged", lambda: tiff(levels(1, "f8"), bits=64, kind=3))
    yield Refused("a small file that declares 7,142² pixels", "picture too large", lambda: declared(7_142, 7_142))
    yield Refused("a small file that declares 60,000² pixels", "picture too large", lambda: declared(60_000, 60_000))
    yield Refused("a PNG of 100,001×1 pixels", "picture too large", lambda: declared(100_001, 1))
    yield Refused("a PNG whose text unpacks to 10 MB", "picture too large", lambda: bomb(b"zTXt", b"Comment\0\0"))
    yield Refused("a PNG whose colour profile unpacks to 10 MB", "picture too large", lambda: bomb(b"iCCP", b"profile\0\0"))


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def overwritten(data: bytes) -> bytes:
    return data[:1000] + b"\xff" * 500 + data[1500:]


def scan_bomb() -> bytes:
    data = encode(drawing("L"), "JPEG", progressive=True)
    return data[:-2] + data[data.rindex(b"\xff\xda") : -2] * 5000 + data[-2:]


def bomb(kind: bytes, start: bytes) -> bytes:
    return png(1, 1, 8, 2, b"\0\0\0\0", chunk(kind, start + zlib.compress(bytes(10_000_000), 9)))


THIN = (  # width, height, and what the 1 : 200 of the Qwen families makes of it
    (1, 1, 1, 1),
    (1, 200, 1, 200),
    (28, 5600, 28, 5600),
    (1, 201, 2, 201),
    (201, 1, 201, 2),
    (3, 700, 4, 700),
    (5000, 20, 5000, 25),
    (1, 10_000, 50, 10_000),
    (10_000, 1, 10_000, 50),
)


def markdown() -> str:
    """The tables as they stand in docs/images.md."""
    lines = ["| a picture | becomes |", "|---|---|"]
    lines += [f"| {case.given} | {case.becomes} |" for case in cases()]
    lines += ["", "| a thin picture | becomes |", "|---|---|"]
    lines += [f"| {w}×{h} | {'as it is' if (w, h) == (new_w, new_h) else f'{new_w}×{new_h}'} |" for w, h, new_w, new_h in THIN]
    lines += ["", "| not used | reason |", "|---|---|"]
    lines += [f"| {case.given} | {case.reason} |" for case in refused()]
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())
