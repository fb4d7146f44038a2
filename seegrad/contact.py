"""A contact sheet: the first rows of a split on one PNG, numbered as in the printed table."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from seegrad.errors import DataError
from seegrad.types import Example

MAX_EXAMPLES = 512  # on one sheet, which is held in memory as a whole
CELL = 128  # pixels, both sides
MARGIN = 4
CAPTION = 14
_FONT = ImageFont.load_default(10)  # Latin only: it comes with Pillow


def contact_sheet(examples: Sequence[Example], columns: int = 8) -> bytes:
    """PNG bytes: each example's first picture in a cell, above it its number, how many more pictures it has, and its answer.

    A row without a picture keeps its cell, so that numbers and places agree. Raises DataError when no example has a picture.
    """
    if not any(example.images for example in examples):
        raise DataError("none of these rows has a picture; there is nothing to put on a contact sheet")
    columns = min(columns, len(examples))
    rows = math.ceil(len(examples) / columns)
    step_x, step_y = CELL + MARGIN, CELL + CAPTION + MARGIN
    sheet = Image.new("RGB", (columns * step_x + MARGIN, rows * step_y + MARGIN), "white")
    draw = ImageDraw.Draw(sheet)
    for number, example in enumerate(examples):
        left, top = MARGIN + number % columns * step_x, MARGIN + number // columns * step_y
        draw.text((left, top), caption(number, example), fill="black", font=_FONT)
        if example.images:
            with Image.open(io.BytesIO(example.images[0])) as picture:
                picture.thumbnail((CELL, CELL))
                sheet.paste(picture.convert("RGB"), (left, top + CAPTION))
        else:
            draw.rectangle((left, top + CAPTION, left + CELL - 1, top + CAPTION + CELL - 1), fill="whitesmoke")
            absent = "text only" if example.question else "bad row"
            draw.text((left + CELL // 2, top + CAPTION + CELL // 2), absent, fill="dimgray", font=_FONT, anchor="mm")
        draw.rectangle((left - 1, top + CAPTION - 1, left + CELL, top + CAPTION + CELL), outline="lightgray")
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    return buffer.getvalue()


def caption(number: int, example: Example) -> str:
    """`#3 +2 145`: the row's number, how many pictures it has beside the one shown, its answer, as much as fits a cell.

    An answer that the font cannot write is left out.
    """
    answer = " ".join(example.answer.split())
    more = f"+{len(example.images) - 1}" if len(example.images) > 1 else ""
    text = " ".join(part for part in (f"#{number}", more, answer if answer.isascii() else "") if part)
    if _FONT.getlength(text) <= CELL:
        return text
    while _FONT.getlength(text + "...") > CELL:
        text = text[:-1]
    return text + "..."
