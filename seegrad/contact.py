"""A contact sheet: the first pictures of a split on one PNG, numbered as in the printed table."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

from PIL import Image, ImageDraw

from seegrad.errors import DataError
from seegrad.types import Example

CELL = 128  # pixels, both sides
MARGIN = 4
CAPTION = 14


def contact_sheet(examples: Sequence[Example], columns: int = 8) -> bytes:
    """PNG bytes: each example's first picture in a cell, with its number above. Raises DataError when no example has a picture."""
    pictures = [(number, example.images[0]) for number, example in enumerate(examples) if example.images]
    if not pictures:
        raise DataError("none of these rows has a picture; there is nothing to put on a contact sheet")
    columns = min(columns, len(pictures))
    rows = math.ceil(len(pictures) / columns)
    step_x, step_y = CELL + MARGIN, CELL + CAPTION + MARGIN
    sheet = Image.new("RGB", (columns * step_x + MARGIN, rows * step_y + MARGIN), "white")
    draw = ImageDraw.Draw(sheet)
    for place, (number, data) in enumerate(pictures):
        left, top = MARGIN + place % columns * step_x, MARGIN + place // columns * step_y
        draw.text((left, top), f"#{number}", fill="black")
        with Image.open(io.BytesIO(data)) as picture:
            picture.thumbnail((CELL, CELL))
            sheet.paste(picture.convert("RGB"), (left, top + CAPTION))
        draw.rectangle((left - 1, top + CAPTION - 1, left + CELL, top + CAPTION + CELL), outline="lightgray")
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    return buffer.getvalue()
