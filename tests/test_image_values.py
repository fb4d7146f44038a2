"""A cell of a table in every form in which pictures come, and what is said of the forms in which they do not: the rows of docs/images.md."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from seegrad import images
from seegrad.errors import DataError
from seegrad.picture_file import MAX_BYTES
from tests.pictures import WHITE, animated, drawing, encode, exact_drawing, see_through, seen_drawing, turned

DOCUMENT = Path(__file__).parents[1] / "docs" / "images.md"
PNG = encode(drawing())
TEXT = base64.b64encode(PNG).decode()
ARRAY = np.asarray(drawing())
GRAY = np.asarray(drawing("L"))


def closed(image: Image.Image) -> Image.Image:
    image.close()
    return image


def lazy(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


class NAType:
    """As pandas has it: neither equal nor unequal to anything."""

    def __ne__(self, other: object) -> bool:
        raise TypeError("boolean value of NA is ambiguous")


# what a cell holds, and the value (made in a folder with the files of `files`)
ACCEPTED: dict[str, Callable[[Path], Any]] = {
    "encoded bytes": lambda folder: PNG,
    "bytearray or memoryview": lambda folder: memoryview(bytearray(PNG)),
    "array of bytes": lambda folder: np.frombuffer(PNG, np.uint8),
    "`{bytes, path}` with both: the bytes win": lambda folder: {"bytes": PNG, "path": "no such file.png"},
    "`{bytes: null, path}`": lambda folder: {"bytes": None, "path": "a.png"},
    "`{bytes: b'', path}`": lambda folder: {"bytes": b"", "path": "a.png"},
    "`{bytes}` as base64 text": lambda folder: {"bytes": TEXT},
    "path text, relative": lambda folder: "a.png",
    "path text, absolute": lambda folder: str(folder / "a.png"),
    "path text with blanks around it": lambda folder: " inner/图 1.png\n",
    "path text with the separators of Windows": lambda folder: "inner\\图 1.png",
    "`pathlib.Path`": lambda folder: Path("inner/图 1.png"),
    "file URL": lambda folder: (folder / "inner" / "图 1.png").as_uri(),
    "path of a file that is named like base64": lambda folder: "iVBORw0KGgo",
    "base64 text": lambda folder: TEXT,
    "base64 text in lines": lambda folder: base64.encodebytes(PNG).decode(),
    "base64 text, URL alphabet, without padding": lambda folder: base64.urlsafe_b64encode(PNG).decode().rstrip("="),
    "base64 as bytes": lambda folder: TEXT.encode(),
    "data URL": lambda folder: f"data:image/png;base64,{TEXT}",
    "data URL with the wrong type, in capitals": lambda folder: f"DATA:image/jpeg;BASE64,{TEXT}",
    "data URL, percent-encoded": lambda folder: "data:image/png;base64," + TEXT.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D"),
    "data URL without base64": lambda folder: "data:image/png," + "".join(f"%{byte:02x}" for byte in PNG),
    "PIL picture, RGB": lambda folder: drawing(),
    "PIL picture, opened and not yet read": lambda folder: lazy(PNG),
    "PIL picture, 1 bit": lambda folder: drawing("1"),
    "PIL picture, palette with alpha (PA)": lambda folder: see_through("RGBA").convert("PA"),
    "PIL picture, gray with alpha (LA)": lambda folder: see_through("LA"),
    "PIL picture, gray with premultiplied alpha (La)": lambda folder: see_through("LA").convert("La"),
    "PIL picture, premultiplied alpha (RGBa)": lambda folder: see_through().convert("RGBa"),
    "PIL picture, RGBX": lambda folder: drawing("RGBX"),
    "PIL picture, CMYK": lambda folder: drawing("CMYK"),
    "PIL picture, HSV": lambda folder: drawing("HSV"),
    "PIL picture, YCbCr": lambda folder: drawing("YCbCr"),
    "PIL picture, L\\*a\\*b\\*": lambda folder: drawing("LAB"),
    "PIL picture, 16 bits": lambda folder: Image.fromarray(GRAY.astype(np.uint16) * 257),
    "PIL picture, 32 bits": lambda folder: Image.fromarray(GRAY.astype(np.int32)),
    "PIL picture, float": lambda folder: Image.fromarray(GRAY.astype(np.float32) / 255),
    "PIL picture, animated: the frame it stands at": lambda folder: lazy(animated("GIF", drawing())),
    "array [height, width]": lambda folder: GRAY,
    "array [height, width, 1]": lambda folder: GRAY[..., None],
    "array [height, width, 2]: gray and alpha": lambda folder: np.asarray(see_through("LA")),
    "array [height, width, 3]": lambda folder: ARRAY,
    "array [height, width, 4]: RGB and alpha": lambda folder: np.asarray(see_through()),
    "array of truth values": lambda folder: GRAY > 0,
    "array of 16-bit integers": lambda folder: ARRAY.astype(np.uint16) * 257,
    "array of floats from 0 to 1": lambda folder: ARRAY / 255,
    "array of floats from 0 to 255": lambda folder: ARRAY.astype(np.float32),
    "array of integers from 0 to 255": lambda folder: ARRAY.astype(np.int64),
    "array in another memory order": lambda folder: np.asfortranarray(ARRAY),
    "array of one object": lambda folder: np.array(PNG, dtype=object),
}
REFUSED: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "null": ("picture missing", lambda folder: None),
    "NaN": ("picture missing", lambda folder: float("nan")),
    "NaN of numpy": ("picture missing", lambda folder: np.float32("nan")),
    "NA of pandas": ("picture missing", lambda folder: NAType()),
    "empty text": ("picture missing", lambda folder: " \n"),
    "`{bytes: null, path: null}`": ("picture missing", lambda folder: {"bytes": None, "path": None}),
    "path of a file that does not exist": ("picture missing", lambda folder: "no such file.png"),
    "path without suffix of a file that does not exist": ("picture missing", lambda folder: "images/000123"),
    "path of a folder": ("picture missing", lambda folder: "inner"),
    "path of a pipe or device": ("picture missing", lambda folder: "pipe"),
    "path with a zero byte": ("picture missing", lambda folder: "a\0.png"),
    "path of an unknown home": ("picture missing", lambda folder: "~nobody-of-this-name/a.png"),
    "path longer than paths may be": ("picture missing", lambda folder: "图.png/" * 2000),
    "path of an empty file": ("picture empty", lambda folder: "empty.png"),
    "no bytes": ("picture empty", lambda folder: b""),
    "`{bytes: b'', path: null}`": ("picture empty", lambda folder: {"bytes": b"", "path": None}),
    "data URL without content": ("picture empty", lambda folder: "data:image/png;base64,"),
    "PIL picture of 0×5": ("picture empty", lambda folder: Image.new("RGB", (0, 5))),
    "array without elements": ("picture empty", lambda folder: np.zeros((0, 5, 3), np.uint8)),
    "http or https URL": ("picture on the web", lambda folder: "https://example.com/a.png"),
    "URL of object storage": ("picture on the web", lambda folder: "s3://bucket/a.png"),
    "JSON text": ("not a picture", lambda folder: '{"bytes": "…"}'),
    "SVG text": ("not a picture", lambda folder: "<svg></svg>"),
    "base64 text of something else": ("not a picture", lambda folder: base64.b64encode(b"no picture " * 40).decode()),
    "data URL that is no base64": ("picture damaged", lambda folder: "data:image/png;base64,!!!"),
    "data URL without comma": ("picture damaged", lambda folder: "data:image/png;base64"),
    "PIL picture that was closed": ("picture damaged", lambda folder: closed(lazy(PNG))),
    "PIL picture that cannot be read to its end": ("picture damaged", lambda folder: lazy(PNG[:-30])),
    "array of floats that are no numbers": ("picture damaged", lambda folder: np.full((4, 4), np.nan)),
    "array of 8,000×8,000": ("picture too large", lambda folder: np.broadcast_to(np.uint8(0), (8000, 8000))),
    "a number": ("picture value not understood", lambda folder: 7),
    "a list (give one column, or one cell, per picture)": ("picture value not understood", lambda folder: [PNG]),
    "a mapping with other keys": ("picture value not understood", lambda folder: {"url": "a.png"}),
    "a mapping whose path is a number": ("picture value not understood", lambda folder: {"path": 7}),
    "array [3, height, width]": ("picture value not understood", lambda folder: ARRAY.transpose(2, 0, 1)),
    "array of four axes": ("picture value not understood", lambda folder: ARRAY[None]),
    "array of texts": ("picture value not understood", lambda folder: np.array([["a"]])),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    (folder / "inner").mkdir()
    for name in ("a.png", "inner/图 1.png", "iVBORw0KGgo"):
        (folder / name).write_bytes(PNG)
    (folder / "empty.png").touch()
    os.mkfifo(folder / "pipe")
    return folder


def right(data: bytes) -> bool:
    with Image.open(io.BytesIO(data)) as image:
        return seen_drawing(np.asarray(image).astype(int))


@pytest.mark.parametrize("given", ACCEPTED)
def test_a_picture_in_a_cell_is_found(given: str, files: Path) -> None:
    first = images.decode(ACCEPTED[given](files), folder=files)
    assert isinstance(first, bytes) and right(images.clean(first))
    assert images.decode(ACCEPTED[given](files), folder=files) == first
    assert images.size(first) == (32, 16)


def test_the_check_notices_another_picture() -> None:
    assert not right(images.clean(encode(drawing().transpose(Image.Transpose.FLIP_LEFT_RIGHT))))
    assert not right(images.clean(encode(Image.new("RGB", (32, 16), WHITE))))


@pytest.mark.parametrize("given", REFUSED)
def test_what_is_no_picture_has_a_reason(given: str, files: Path) -> None:
    reason, make = REFUSED[given]
    with pytest.raises(DataError) as caught:
        images.clean(images.decode(make(files), folder=files))
    assert caught.value.reason == reason and reason in images.REASONS
    assert "\n" not in str(caught.value) and 20 < len(str(caught.value)) < 500


def test_a_picture_value_is_not_changed_by_reading_it() -> None:
    palette = see_through("P")
    palette.info["transparency"] = 1
    gray = Image.new("L", (2, 1), 3)
    gray.info["transparency"] = 3
    for image in (palette, gray):
        before = (image.mode, dict(image.info), image.tobytes())
        images.decode(image)
        assert (image.mode, dict(image.info), image.tobytes()) == before
    array = ARRAY.copy()
    images.decode(array)
    assert (array == ARRAY).all()


def test_a_picture_value_is_turned_upright_once() -> None:
    for orientation in range(1, 9):
        data = turned("PNG", orientation)
        assert images.clean(images.decode(lazy(data))) == images.clean(data)
    assert images.clean(images.decode(lazy(turned("TIFF", 6)))) == images.clean(turned("PNG", 6))


def test_a_relative_path_starts_at_the_first_folder_that_has_it(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    (two / "a.png").write_bytes(PNG)
    assert images.decode("a.png", folder=[one, two]) == PNG
    (one / "a.png").write_bytes(encode(drawing("L")))
    assert images.decode("a.png", folder=[one, two]) == encode(drawing("L"))
    with pytest.raises(DataError, match=f"b\\.png.*{one}, {two}"):
        images.decode("b.png", folder=[one, two])


def test_a_relative_path_without_folder_starts_where_the_command_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    monkeypatch.chdir(tmp_path)
    assert images.decode("a.png") == PNG
    monkeypatch.setenv("HOME", str(tmp_path))
    assert images.decode("~/a.png", folder=Path("/")) == PNG


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.png"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)  # takes no space on the disk
    with pytest.raises(DataError, match="268,435,457 bytes") as caught:
        images.decode(path)
    assert caught.value.reason == "picture too large"


def test_what_a_lossless_form_holds_comes_back_exactly(files: Path) -> None:
    for given in ("encoded bytes", "data URL", "PIL picture, RGB", "array [height, width, 3]", "array of floats from 0 to 1"):
        with Image.open(io.BytesIO(images.clean(images.decode(ACCEPTED[given](files), folder=files)))) as image:
            assert exact_drawing(np.asarray(image).astype(int)), given


def markdown() -> str:
    """The tables of cells as they stand in docs/images.md."""
    lines = ["| a cell holds |", "|---|", *(f"| {given} |" for given in ACCEPTED), "", "| a cell holds | reason |", "|---|---|"]
    return "\n".join([*lines, *(f"| {given} | {reason} |" for given, (reason, _) in REFUSED.items())])


def test_the_document_lists_these_cells() -> None:
    assert markdown() in DOCUMENT.read_text(encoding="utf-8"), "print tests.test_image_values.markdown()"
