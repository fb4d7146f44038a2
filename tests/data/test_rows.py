"""A user's data set: every way to get it wrong is one line that names the data set and the row, and nothing is silently accepted."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

from seegrad import images
from seegrad.config import DataConfig
from seegrad.data.rows import load_rows
from seegrad.data.shapes import Shapes
from seegrad.errors import DataError, UsageError
from seegrad.types import Example

HEAD = """\
import io
from PIL import Image
from seegrad.types import Example

def picture(kind="PNG", mode="RGB"):
    buffer = io.BytesIO()
    Image.new(mode, (6, 5)).save(buffer, kind)
    return buffer.getvalue()

def row(**changes):
    return Example(**{"id": "a", "question": "?", "answer": "1", "images": (picture(),), **changes})

"""


def rows(tmp_path: Path, body: str, **data: object) -> Sequence[Example]:
    path = tmp_path / "mine.py"
    tmp_path.mkdir(exist_ok=True)
    path.write_text(f"{HEAD}def rows(split, data):\n    {body}\n")
    return load_rows("train", DataConfig.model_validate({"name": f"{path}:rows", **data}))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return {}['x']", r"raised KeyError: 'x' \(.*mine\.py:14\)"),
        ("raise SystemExit(0)", "raised SystemExit"),
        ("return None", "returned NoneType, expected a list of Example"),
        ("yield row()", "returned generator, expected a list"),
        ("return []", "there are no rows"),
    ],
)
def test_a_function_that_gives_no_rows_is_one_line(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        rows(tmp_path, body)
    assert "mine.py:rows', split 'train'" in str(error.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return [{'id': 'a'}]", "row 0: is dict, expected seegrad.types.Example"),
        ("return [row(id=3)]", "id is int, expected str"),
        ("return [row(answer=3)]", "answer is int"),
        ("return [row(question=None)]", "question is NoneType"),
        ("return [row(images=picture())]", "images is bytes, expected a tuple of bytes"),
        ("return [row(images=(Image.new('RGB', (2, 2)),))]", "images is tuple of Image"),
        ("return [row(images=None)]", "images is NoneType"),
        ("return [row(choices=(1,))]", "choices must be"),
        ("return [row(meta=None)]", "meta is NoneType"),
        ("return [row(images=(picture()[:40],))]", "row 0: .* damaged|row 0: .* not a picture"),
        ("return type('L', (), {'__len__': lambda s: 1, '__getitem__': lambda s, i: open('/nowhere/x')})()", "row 0: raised FileNotFoundError"),
    ],
)
def test_a_bad_row_is_named_when_it_is_read(tmp_path: Path, body: str, message: str) -> None:
    found = rows(tmp_path, body)
    with pytest.raises(DataError, match=message):
        found[0]


def test_a_bad_row_does_not_hide_the_others_in_a_slice(tmp_path: Path) -> None:
    found = rows(tmp_path, "return [row(id='a'), None, row(id='c')]")
    assert len(found) == 3 and len(found[:2]) == 2 and found[1:][1].id == "c" and found[-1].id == "c"
    with pytest.raises(DataError, match="row 1"):
        found[1:][0]
    with pytest.raises(IndexError):
        found[3]


@pytest.mark.parametrize("picture", ["picture()", "picture('JPEG')", "picture('GIF', 'P')", "picture(mode='RGBA')"])
def test_pictures_become_plain_rgb(tmp_path: Path, picture: str) -> None:
    (data,) = rows(tmp_path, f"return [row(images=[{picture}])]")[0].images
    assert data == images.clean(data)
    with Image.open(io.BytesIO(data)) as image:
        assert (image.format, image.mode) == ("PNG", "RGB")


def test_blank_images_holds_for_every_data_set(tmp_path: Path) -> None:
    (data,) = rows(tmp_path, "return [row()]", blank_images=True)[0].images
    assert data == images.blank(data)


def test_the_packages_own_data_sets_are_handed_on_as_they_are() -> None:
    assert isinstance(load_rows("dev", DataConfig(name="count")), Shapes)


@pytest.mark.parametrize(
    ("setting", "value", "nothing"),
    [("path", "x.csv", "data.path=,"), ("max_pixels", 9, "data.max_pixels=0,"), ("image_keys", ["a"], "data.image_keys=[],")],
)
def test_a_setting_that_a_drawn_data_set_does_not_read_is_refused(setting: str, value: object, nothing: str) -> None:
    with pytest.raises(UsageError, match=f"data.{setting}=.* is not read by the drawn data set 'count'; empty it with {re.escape(nothing)}"):
        load_rows("dev", DataConfig.model_validate({"name": "count", setting: value}))


def test_pictures_of_a_function_are_shrunk_and_padded_like_those_of_a_table(tmp_path: Path) -> None:
    found = rows(tmp_path, "return [row(images=(picture(),))]", max_pixels=12)
    assert images.size(found[0].images[0]) == (3, 3)
    thin = "buffer = io.BytesIO(); Image.new('RGB', (1, 900)).save(buffer, 'PNG'); return [row(images=(buffer.getvalue(),))]"
    assert images.size(rows(tmp_path / "b", thin)[0].images[0]) == (5, 900)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return [None]", "not an example"),
        ("return [row(question='<image> <image>')]", "wrong number of <image> marks"),
        ("return [row(images=(b'',))]", "picture empty"),
        ("return type('L', (), {'__len__': lambda s: 1, '__getitem__': lambda s, i: {}['x']})()", "raised KeyError"),
    ],
)
def test_bad_rows_of_a_function_have_a_reason(tmp_path: Path, body: str, reason: str) -> None:
    with pytest.raises(DataError) as error:
        rows(tmp_path, body)[0]
    assert error.value.reason == reason
