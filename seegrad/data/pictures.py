"""The pictures of a row, the same way for every data set: a cell → encoded bytes → plain RGB of a size that image processors take."""

from __future__ import annotations

import json
from typing import Any

from seegrad import images
from seegrad.config import DataConfig
from seegrad.data.cells import is_missing
from seegrad.errors import DataError

IMAGE_MARK = "<image>"  # where a picture stands in a question
MAX_ASPECT = 200.0  # no side is more than this many times the other: image processors refuse narrower pictures, so white is added


def listed(value: Any) -> list[Any]:
    """The pictures in one cell: none for an empty one, the items of a list (also as JSON text, as CSV files hold it), else the cell itself."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return [value]
    if isinstance(value, list | tuple):
        return list(value)
    return [] if is_missing(value) else [value]


def prepared(data: bytes, settings: DataConfig) -> bytes:
    """The picture as the model gets it: plain RGB PNG, not over `max_pixels`, not too narrow, white when `blank_images` says so. Raises DataError."""
    clean = images.clean(data, max_pixels=settings.max_pixels, max_aspect=MAX_ASPECT)
    return images.blank(clean) if settings.blank_images else clean


def prepared_size(data: bytes, settings: DataConfig) -> tuple[int, int]:
    """(width, height) of what `prepared` gives, from the header alone. Raises DataError."""
    return images.size(data, max_pixels=settings.max_pixels, max_aspect=MAX_ASPECT)


def check_marks(question: str, num_pictures: int, *, field: str = "the question", holder: str = "") -> int:
    """The number of `<image>` marks; raises DataError unless it is 0 or the number of pictures. `field` and `holder` name columns in the error."""
    num_marks = question.count(IMAGE_MARK)
    if num_marks not in (0, num_pictures):
        counts = f"{field} has {num_marks} {IMAGE_MARK} marks but {f'{holder} holds' if holder else 'there are'} {num_pictures} pictures"
        raise DataError(f"{counts}; write one mark per picture, or none", reason="wrong number of <image> marks")
    return num_marks
