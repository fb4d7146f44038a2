"""Whatever is in the bytes, only DataError comes out; settings of size hold for every picture; threads share the warnings of the process."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from seegrad import images
from seegrad.data.pictures import MAX_ASPECT
from seegrad.errors import DataError
from seegrad.families.qwen3_vl import FAMILY
from seegrad.picture_file import MAX_PIXELS, fault, guarded
from tests import pictures
from tests.pictures import encode, noise

FORMS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "JPEG2000", "AVIF", "PPM", "ICO", "QOI")
SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"GIF89a", b"RIFF", b"BM", b"II*\0", b"MM\0*", b"\0\0\1\0", b"P5 9 9 255\n", b"qoif")


@cache
def whole_files() -> tuple[bytes, ...]:
    cut = noise(16)
    return (*(encode(cut, form) for form in FORMS), *(case.data() for case in pictures.cases()))


def only_data_errors(data: bytes) -> None:
    for attempt in (images.size, images.blank, images.clean, lambda data: images.clean(data, max_pixels=500, max_aspect=200)):
        try:
            attempt(data)
        except DataError as error:
            assert error.reason in images.REASONS and "\n" not in str(error)


@settings(max_examples=150, deadline=None)
@given(file=st.integers(0, 10**6), flips=st.lists(st.integers(0, 10**6), min_size=1, max_size=8), head=st.booleans())
def test_flipped_bits_give_a_picture_or_a_data_error(file: int, flips: list[int], head: bool) -> None:
    whole = whole_files()[file % len(whole_files())]
    data = bytearray(whole)
    for flip in flips:
        data[flip // 8 % (min(len(data), 80) if head else len(data))] ^= 1 << flip % 8
    only_data_errors(bytes(data))


@settings(max_examples=60, deadline=None)
@given(file=st.integers(0, 10**6), cut=st.integers(0, 10**6), extra=st.binary(max_size=20))
def test_cut_files_give_a_picture_or_a_data_error(file: int, cut: int, extra: bytes) -> None:
    whole = whole_files()[file % len(whole_files())]
    only_data_errors(whole[: cut % len(whole)] + extra)


@settings(max_examples=100, deadline=None)
@given(start=st.sampled_from([b"", *SIGNATURES]), rest=st.binary(max_size=300))
def test_random_bytes_give_a_picture_or_a_data_error(start: bytes, rest: bytes) -> None:
    only_data_errors(start + rest)


def test_a_cut_file_never_gives_other_pixels() -> None:
    for form in FORMS:
        whole = encode(noise(32), form)
        right = images.clean(whole)
        for cut in (1, 2, 3, 8, 16, 50, len(whole) // 2):
            try:
                assert images.clean(whole[:-cut]) == right, (form, cut)
            except DataError as error:
                assert error.reason == "picture damaged", (form, cut)


CELLS: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.binary(max_size=40),
        st.text(max_size=40),
        st.sampled_from(["data:", "data:;base64,", "file:///", "http://", "~", "~x", ".", "/", "..", "\\\\", "iVBORw0KGgo=", "\0"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["bytes", "path", "url"]), inner, max_size=3),
        st.builds(lambda value: np.array(value, dtype=object), inner),
    ),
    max_leaves=4,
)


@settings(max_examples=150, deadline=None)
@given(value=CELLS, prefix=st.sampled_from(["", "data:image/png;base64,", "data:,", "file://"]))
def test_a_cell_with_anything_in_it_gives_bytes_or_a_data_error(value: Any, prefix: str) -> None:
    try:
        assert isinstance(images.decode(prefix + value if isinstance(value, str) else value), bytes)
    except DataError as error:
        assert error.reason in images.REASONS and "\n" not in str(error)


@settings(max_examples=300, deadline=None)
@given(
    width=st.integers(1, 400),
    height=st.integers(1, 400),
    max_pixels=st.one_of(st.just(0), st.integers(1, 2000)),
    max_aspect=st.one_of(st.just(0.0), st.floats(1, 250)),
)
def test_size_settings_hold(width: int, height: int, max_pixels: int, max_aspect: float) -> None:
    data = blank_of(width, height)
    clean = images.clean(data, max_pixels=max_pixels, max_aspect=max_aspect)
    new_width, new_height = images.size(clean)
    assert images.size(data, max_pixels=max_pixels, max_aspect=max_aspect) == (new_width, new_height)
    assert not max_pixels or new_width * new_height <= max_pixels
    assert not max_aspect or max(new_width / new_height, new_height / new_width) <= max_aspect
    assert images.clean(clean, max_pixels=max_pixels, max_aspect=max_aspect) == clean
    if not max_aspect:
        assert new_width <= width and new_height <= height
        if max_pixels and min(new_width, new_height) > 8:
            assert abs(new_width / new_height - width / height) <= 0.15 * width / height, "the aspect is kept"
            assert new_width * new_height > 0.75 * min(max_pixels, width * height), "not shrunk further than asked"


@cache
def blank_of(width: int, height: int) -> bytes:
    return encode(Image.new("1", (width, height)))


@settings(max_examples=300, deadline=None)
@given(long=st.integers(1, 100_000), short=st.integers(1, 500), upright=st.booleans())
def test_padding_is_never_too_little_for_the_model(long: int, short: int, upright: bool) -> None:
    """From the header alone, so that the largest sizes cost nothing."""
    width, height = (short, long) if upright else (long, short)
    new_width, new_height = images.size(pictures.declared(width, height), max_aspect=MAX_ASPECT)
    assert (new_width == width or new_width * 200 - height < 200) and (new_height == height or new_height * 200 - width < 200), "no more than needed"
    assert FAMILY.num_image_tokens(new_width, new_height, {"patch_size": 16, "merge_size": 2}) >= 1
    with pytest.raises(DataError):
        FAMILY.num_image_tokens(201, 1, {})


def test_shrinking_keeps_what_is_seen() -> None:
    small = images.clean(encode(pictures.drawing().resize((640, 320), Image.Resampling.NEAREST)), max_pixels=512)
    with Image.open(io.BytesIO(small)) as image:
        assert pictures.seen_drawing(np.asarray(image).astype(int))


def test_a_picture_that_padding_would_make_too_large_is_named() -> None:
    data = pictures.declared(90_000, 2)
    with pytest.raises(DataError, match=r"90000×2 pixels would be 90000×9000 .* data\.max_pixels") as caught:
        images.size(data, max_aspect=10)
    assert caught.value.reason == "picture too long and thin"
    width, height = images.size(data, max_aspect=10, max_pixels=MAX_PIXELS)
    assert width * height <= MAX_PIXELS and width / height <= 10


@pytest.mark.parametrize("wrong", [{"max_pixels": -1}, {"max_aspect": 0.5}, {"max_aspect": float("nan")}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        images.size(blank_of(2, 2), **wrong)


# A transparent WebP of 7,141×7,141 pixels with EXIF orientation 6: of all formats its decoder takes the most memory.
LARGEST = "UklGRk4AAABXRUJQVlA4WAoAAAAYAAAA5BsA5BsAVlA4TA0AAAAv5Bv5FgcQERGIiP4HAEVYSUYaAAAATU0AKgAAAAgAAQESAAMAAAABAAYAAAAAAAA="


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the memory of a process from /proc")
def test_the_largest_pictures_take_less_than_a_gigabyte() -> None:
    script = (
        "import base64, pathlib, sys\n"
        "from seegrad import images\n"
        "assert images.size(images.clean(base64.b64decode(sys.argv[1]))) == (7141, 7141)\n"
        "print(pathlib.Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", script, LARGEST], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 400_000 < int(done.stdout) < 1_000_000, "kilobytes"


def test_memory_that_does_not_suffice_is_the_pictures_fault() -> None:
    with pytest.raises(DataError, match="does not fit in memory") as caught, guarded("picture"):
        raise MemoryError
    assert caught.value.reason == "picture too large"
    with pytest.raises(DataError, match="mine"), guarded("picture"):
        raise fault("picture empty", "mine")


def test_threads_leave_the_warnings_of_the_process_as_they_were() -> None:
    before = list(warnings.filters)
    data = [encode(noise(16), form) for form in ("PNG", "JPEG", "GIF")]
    expected = [images.clean(one) for one in data]
    wrong: list[int] = []

    def work() -> None:
        for turn in range(30):
            if images.clean(data[turn % 3]) != expected[turn % 3]:
                wrong.append(turn)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and list(warnings.filters) == before
