"""A contact sheet shows every row in its place."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from seegrad.contact import CAPTION, CELL, MARGIN, caption, contact_sheet
from seegrad.data.shapes import to_png
from seegrad.errors import DataError
from seegrad.types import Example


def row(*colours: str, answer: str = "3", question: str = "?", size: tuple[int, int] = (200, 200)) -> Example:
    return Example("a", question, answer, tuple(to_png(Image.new("RGB", size, colour)) for colour in colours))


def cells(sheet: bytes, columns: int, count: int) -> list[np.ndarray]:
    with Image.open(io.BytesIO(sheet)) as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    step_x, step_y = CELL + MARGIN, CELL + CAPTION + MARGIN
    corners = [(MARGIN + place // columns * step_y + CAPTION, MARGIN + place % columns * step_x) for place in range(count)]
    return [pixels[top : top + CELL, left : left + CELL] for top, left in corners]


def test_each_row_has_its_cell_and_its_first_picture() -> None:
    examples = [row("red"), row(), row("lime", "red"), row("blue", size=(1, 3000)), row(question="")]
    red, empty, lime, thin, bad = cells(contact_sheet(examples, columns=2), 2, 5)
    assert (red == [255, 0, 0]).all() and (lime == [0, 255, 0]).all()
    assert (thin[:, 0] == [0, 0, 255]).all() and (thin[:, 1:] == 255).all()
    for cell in (empty, bad):
        assert (cell[:40] == 245).all() and cell[40:90].min() < 150, "gray with a word in it"
    assert (empty != bad).any()


def test_more_rows_than_columns_go_on_in_the_next_line() -> None:
    with Image.open(io.BytesIO(contact_sheet([row("red")] * 9))) as image:
        assert image.size == (8 * (CELL + MARGIN) + MARGIN, 2 * (CELL + CAPTION + MARGIN) + MARGIN)
    with Image.open(io.BytesIO(contact_sheet([row("red")]))) as image:
        assert image.width == CELL + 2 * MARGIN


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        (row("red"), "#7 3"),
        (row("red", "red", "red", answer="145 degrees"), "#7 +2 145 degrees"),
        (row(answer=" two\nlines "), "#7 two lines"),
        (row("red", answer="圆"), "#7"),
        (row(answer=""), "#7"),
    ],
    ids=["one picture", "three pictures", "two lines", "not in the font", "no answer"],
)
def test_captions(example: Example, expected: str) -> None:
    assert caption(7, example) == expected


def test_a_long_answer_is_shortened_to_the_cell() -> None:
    text = caption(7, row("red", answer="a" * 500))
    assert text.startswith("#7 aaa") and text.endswith("...") and len(text) < 60


def test_without_any_picture_there_is_no_sheet() -> None:
    with pytest.raises(DataError, match="none of these rows"):
        contact_sheet([row(), row()])
