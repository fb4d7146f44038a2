"""An encoded picture → an open Pillow picture, within limits; and the fixed kinds of what can be wrong with one."""

from __future__ import annotations

import contextlib
import io
import re
import threading
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Literal

from PIL import Image, UnidentifiedImageError

from seegrad.errors import DataError

MAX_PIXELS = 51_000_000  # larger pictures are refused before they are decoded; the worst format takes 16 bytes a pixel meanwhile
MAX_SIDE = 100_000  # pixels; so that padding to 1 : 200 stays below MAX_PIXELS
MAX_BYTES = 256 << 20  # of an encoded picture
MAX_SCANS = 200  # of a JPEG; each goes over the whole picture, and real ones have under twenty
_SCAN = re.compile(rb"\xff\xda\0[\x06\x08\x0a\x0c]")  # 1 to 4 components
# None of these runs another program (as EPS does) or lacks a signature (as TGA does, so that any bytes may pass for one).
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "AVIF", "JPEG2000", "PPM", "ICO", "QOI")
_START = re.compile(
    rb"\x89PNG|\xff\xd8\xff|GIF8|RIFF....WEBP|BM.{13}\x00{3}|II[*+]\x00|MM\x00[*+]|....ftypavi|qoif|P[1-7]\s"
    rb"|\x00\x00\x01\x00|\x00\x00\x00\x0cjP|\xff\x4f\xff\x51",  # ICO, JPEG 2000 in its box and bare
    re.S,
)
_OTHER_FILES = (
    (re.compile(rb"%PDF"), "a PDF document; export its pages as pictures"),
    (re.compile(rb"version https://git-lfs"), "a Git LFS pointer; fetch the file with: git lfs pull"),
    (re.compile(rb"....ftyp(hei|hev|mif|msf)", re.S), "a HEIC picture; save it as JPEG or PNG"),
    (re.compile(rb"....ftyp(?!avi)", re.S), "a video; extract a frame as PNG or JPEG"),
    (re.compile(rb"PK\x03\x04|\x1f\x8b"), "an archive; unpack it"),
    (re.compile(rb"\s*<(!doctype html|html|head|body)", re.I), "a web page, probably an error page that was saved as a picture; download it again"),
)

Reason = Literal[
    "picture missing",
    "picture on the web",
    "picture value not understood",
    "picture empty",
    "not a picture",
    "picture damaged",
    "picture too large",
    "picture too long and thin",
]


def fault(reason: Reason, message: str) -> DataError:
    """The error of a picture that cannot be used; there are no other reasons than these."""
    return DataError(message, reason=reason)


@contextlib.contextmanager
def opened(data: bytes) -> Iterator[Image.Image]:
    """The picture behind `data`; whatever goes wrong inside the block is the picture's fault and becomes a DataError."""
    if not data:
        raise fault("picture empty", "picture is empty (0 bytes); expected an encoded picture such as PNG or JPEG")
    if len(data) > MAX_BYTES:
        raise fault("picture too large", f"picture has {len(data):,} bytes, more than {MAX_BYTES:,}; shrink it first")
    with guarded(f"picture of {len(data)} bytes"):
        try:
            opened = Image.open(io.BytesIO(data), formats=_formats())
        except UnidentifiedImageError:
            if starts_like_a_picture(data):
                message = f"picture of {len(data)} bytes cannot be read: it is damaged or cut, or of a rare kind; save it as PNG or JPEG"
                raise fault("picture damaged", message) from None
            raise fault("not a picture", _what_it_is(data)) from None
        with opened as image:
            check_size(*image.size, MAX_PIXELS // 2 if image.format == "JPEG2000" else MAX_PIXELS)  # its decoder holds 4 bytes for every sample
            if image.format in ("JPEG", "MPO") and len(_SCAN.findall(data)) > MAX_SCANS:
                raise fault("picture damaged", f"picture of {len(data)} bytes is damaged: a JPEG with more than {MAX_SCANS} scans")
            yield image


@contextlib.contextmanager
def guarded(what: str) -> Iterator[None]:
    try:
        with _QUIET:
            yield
    except DataError:
        raise
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise fault("picture too large", f"picture has more than {MAX_PIXELS:,} pixels; shrink it first") from None
    except MemoryError:
        raise fault("picture too large", f"{what} does not fit in memory; shrink it first") from None
    except Exception as error:  # decoders raise many kinds on damaged data
        text = " ".join(str(error).split()) or type(error).__name__
        if "MAX_TEXT" in text:
            raise fault(
                "picture too large", f"{what} has a text or colour profile that unpacks to over a megabyte; save it without metadata"
            ) from None
        raise fault("picture damaged", f"{what} is damaged: {text[:200]}") from error


def check_size(width: int, height: int, max_pixels: int = MAX_PIXELS) -> None:
    """Raises DataError for a picture without pixels, or with so many that it is not read."""
    if width < 1 or height < 1:
        raise fault("picture empty", f"picture has {width}×{height} pixels; expected at least 1×1")
    if width * height > max_pixels or max(width, height) > MAX_SIDE:
        limit = f"{max_pixels:,} pixels or with a side over {MAX_SIDE:,}"
        raise fault("picture too large", f"picture has {width}×{height} pixels; one with more than {limit} is not read; shrink it first")


def _what_it_is(data: bytes) -> str:
    for start, name in _OTHER_FILES:
        if start.match(data[:2000]):
            return f"{len(data)} bytes are not a picture but {name}"
    if data.lstrip()[:1] == b"<" and b"<svg" in data[:2000].lower():
        return f"{len(data)} bytes are not a picture but an SVG drawing; render it as PNG"
    return f"{len(data)} bytes starting with {data[:8]!r} are not a picture; expected PNG, JPEG, GIF, WebP, BMP, TIFF, AVIF or JPEG 2000"


@cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


class _Quiet:
    """Pillow's warnings off, its warning of a decompression bomb an error. The filters of `warnings` belong to the whole process: they are set when
    the first thread comes in and restored when the last one leaves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._filters = warnings.catch_warnings()

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._filters = warnings.catch_warnings()
                self._filters.__enter__()
                warnings.simplefilter("ignore")
                warnings.simplefilter("error", Image.DecompressionBombWarning)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._filters.__exit__(None, None, None)


_QUIET = _Quiet()


def starts_like_a_picture(data: bytes) -> bool:
    """Whether the first bytes are the signature of a format that is read."""
    return _START.match(data) is not None
