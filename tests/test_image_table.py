"""Every row of the tables in docs/images.md: what each kind of picture becomes, and which cannot be used for which reason."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from seegrad import images, picture_file
from seegrad.data.pictures import MAX_ASPECT
from seegrad.errors import DataError
from seegrad.families.qwen3_vl import FAMILY, MAX_ASPECT_RATIO
from tests import pictures
from tests.pictures import Case, Refused

DOCUMENT = Path(__file__).parents[1] / "docs" / "images.md"
CASES, REFUSED = tuple(pictures.cases()), tuple(pictures.refused())
PROCESSOR = {"patch_size": 16, "merge_size": 2, "size": {"shortest_edge": 65536, "longest_edge": 16777216}}


def pixels(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        assert (image.mode, image.format) == ("RGB", "PNG")
        image.load()
        assert not image.info
        return np.asarray(image).astype(int)


@pytest.mark.parametrize("case", CASES, ids=[case.given for case in CASES])
def test_a_picture_becomes_what_the_document_says(case: Case) -> None:
    data = case.data()
    clean = images.clean(data)
    seen = pixels(clean)
    assert case.right(seen)
    assert images.clean(clean) == clean == images.clean(case.data()), "the same bytes every time, and nothing changes when it is cleaned again"
    assert images.size(data) == images.size(clean) == (seen.shape[1], seen.shape[0])
    assert images.size(images.blank(data)) == images.size(clean)


@pytest.mark.parametrize(
    "given",
    [
        "PNG, gray of 16 bit, level 32896",
        "TIFF, 32 bits, level 32896",
        "TIFF, float 0 to 1, little-endian",
        "PNG, RGB with alpha: black drawing on transparent",
        "PNG, palette with one transparent entry",
        "PNG, gray with alpha",
        "PNG, gray of 2 bit with a transparent level",
        "GIF whose first frame leaves part of the canvas open",
        "JPEG with EXIF orientation 6",
        "TIFF, 16 bits where 0 is white",
    ],
)
def test_the_check_notices_what_a_plain_conversion_gets_wrong(given: str) -> None:
    case = next(case for case in CASES if case.given == given)
    with Image.open(io.BytesIO(case.data())) as image:
        assert not case.right(np.asarray(image.convert("RGB")).astype(int))


@pytest.mark.parametrize("case", REFUSED, ids=[case.given for case in REFUSED])
def test_what_cannot_be_used_has_the_reason_that_the_document_says(case: Refused) -> None:
    with pytest.raises(DataError) as caught:
        images.clean(case.data())
    assert caught.value.reason == case.reason and caught.value.reason in images.REASONS
    assert "\n" not in str(caught.value) and 20 < len(str(caught.value)) < 400


@pytest.mark.parametrize(("width", "height", "new_width", "new_height"), pictures.THIN)
def test_a_thin_picture_is_padded_until_the_model_takes_it(width: int, height: int, new_width: int, new_height: int) -> None:
    assert MAX_ASPECT == MAX_ASPECT_RATIO
    data = pictures.encode(Image.new("RGB", (width, height), pictures.RED))
    padded = images.clean(data, max_aspect=MAX_ASPECT)
    seen = pixels(padded)
    assert seen.shape == (new_height, new_width, 3)
    assert images.size(data, max_aspect=MAX_ASPECT) == (new_width, new_height)
    assert FAMILY.num_image_tokens(new_width, new_height, PROCESSOR) >= 1
    red = (seen == np.array(pictures.RED)).all(-1)
    assert red.sum() == width * height and (seen[~red] == 255).all()
    rows, columns = np.flatnonzero(red.any(1)), np.flatnonzero(red.any(0))
    assert (rows[0], columns[0]) == ((new_height - height) // 2, (new_width - width) // 2), "in the middle"
    assert images.clean(padded, max_aspect=MAX_ASPECT) == padded
    if (width, height) != (new_width, new_height):
        with pytest.raises(DataError, match="200 times") as caught:
            FAMILY.num_image_tokens(width, height, PROCESSOR)
        assert caught.value.reason in images.REASONS


def test_the_document_has_these_tables_and_every_reason() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert pictures.markdown() in text, "run: python -m tests.pictures"
    assert [reason for reason in images.REASONS if f"`{reason}`" not in text] == []
    assert f"{picture_file.MAX_PIXELS:,}" in text and f"{picture_file.MAX_SIDE:,}" in text and f"{picture_file.MAX_BYTES >> 20} MB" in text
