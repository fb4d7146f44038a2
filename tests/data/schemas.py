"""Small files of exactly the published schemas: the columns, types and `datasets` metadata of the hub's parquet files, pictures as they are there."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageDraw

PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
IMAGE = {"_type": "Image"}
TEXT = {"dtype": "string", "_type": "Value"}

# Golds of geometry questions in the forms that the published sets have.
LATEX = ("48", r"2 \sqrt { 221 }", r"\frac { 20 } { 3 }", r"5 \sqrt { 3 }", "7.5", r"\frac { 9 \sqrt { 3 } } { 2 }", "270", r"16 \pi")
VALUES = ("145°", "8cm", "√{3}", r"\frac{√{3}}{2}", "240πcm^{2}", "20√{2}海里", r"\frac{10√{3}}{3}m", r"\frac{1}{2}cm²", "(√{3}+1)小时", "6")


def drawing(number: int = 0, *, mode: str = "RGB", size: tuple[int, int] = (40, 30)) -> bytes:
    """A PNG with black lines; of RGBA the ground is transparent."""
    picture = Image.new(mode, size, (0, 0, 0, 0) if mode == "RGBA" else "white")
    draw = ImageDraw.Draw(picture)
    draw.polygon([(4, 26), (36, 26), (8 + number % 24, 4)], outline=(0, 0, 0, 255) if mode == "RGBA" else "black")
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def geoqa_row(number: int, split: str, **changes: Any) -> dict[str, Any]:
    """A row of hz2475/geoQA."""
    label = number % 4
    return {
        "id": number,
        "subject": f"如图，第{number}个三角形中，∠A等于({' '})",
        "choices": [f"{10 * (number + option)}°" for option in range(4)],
        "label": label,
        "formal_point": ["三角形内角和"],
        "answer": f"解释：因为内角和是180°，所以选{'ABCD'[label]}。",
        "comment": "",
        "original_split": split,
        "image": {"bytes": drawing(number, mode="RGBA"), "path": None},
        **changes,
    }


def write_geoqa(path: Path, counts: Mapping[str, int], **changes: Any) -> list[dict[str, Any]]:
    """A file of hz2475/geoQA with so many rows of each original split, mixed as they are there; its rows."""
    left = {split: count for split, count in counts.items() if count}
    rows: list[dict[str, Any]] = []
    while left:
        for split in list(left):
            rows.append(geoqa_row(len(rows), split, **changes))
            left[split] -= 1
            if not left[split]:
                del left[split]
    schema = [("id", pa.int64()), ("subject", pa.string()), ("choices", pa.list_(pa.string())), ("label", pa.int64())]
    schema += [("formal_point", pa.list_(pa.string())), ("answer", pa.string()), ("comment", pa.string()), ("original_split", pa.string())]
    texts = dict.fromkeys(("subject", "answer", "comment", "original_split"), TEXT)
    number, texts_list = {"dtype": "int64", "_type": "Value"}, {"feature": TEXT, "_type": "List"}
    features = {"id": number, "label": number, "choices": texts_list, "formal_point": texts_list, **texts, "image": IMAGE}
    write(path, rows, [*schema, ("image", PICTURE)], features)
    return rows


def write_geometry3k(path: Path, num_rows: int = 4) -> None:
    """A file of hiyouga/geometry3k."""
    rows = [
        {
            "images": [{"bytes": drawing(number), "path": f"{number}.png"}],
            "problem": f"<image>Find the length of side {number}. Round to the nearest tenth.",
            "answer": LATEX[number % len(LATEX)],
            "id": str(number),
            "choices": ["1", "2", LATEX[number % len(LATEX)], "4"],
            "ground_truth": "C",
        }
        for number in range(num_rows)
    ]
    schema = [("images", pa.list_(PICTURE)), ("problem", pa.string()), ("answer", pa.string()), ("id", pa.string())]
    texts = dict.fromkeys(("problem", "answer", "id", "ground_truth"), TEXT)
    features = {"images": {"feature": IMAGE, "_type": "List"}, **texts, "choices": {"feature": TEXT, "_type": "List"}}
    write(path, rows, [*schema, ("choices", pa.list_(pa.string())), ("ground_truth", pa.string())], features)


def write_geo3k_bytes(path: Path, num_rows: int = 4) -> None:
    """A file of CAIR-HKISI/geo3k: pictures as an array of bytes, the answer in a box."""
    rows = [
        {"problem": f"<image>\nFind x{number}.", "images": [drawing(number)], "answer": f"\\boxed{{{LATEX[number % len(LATEX)]}}}"}
        for number in range(num_rows)
    ]
    write(path, rows, [("problem", pa.string()), ("images", pa.list_(pa.binary())), ("answer", pa.string())])


def write_geo3k_imgurl(path: Path, num_rows: int = 3) -> None:
    """A file of chenhegu/geo3k_imgurl: pictures as data URL, as base64, and as the path of a file beside it, in turn."""
    rows = []
    for number in range(num_rows):
        text = base64.b64encode(drawing(number)).decode()
        beside = path.parent / "pictures" / f"{number}.png"
        if number % 3 == 2:
            beside.parent.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(drawing(number))
        cell = (f"data:image/png;base64,{text}", text, f"pictures/{number}.png")[number % 3]
        rows.append({"problem": f"Find x{number}.", "answer": str(270 + number), "images": [cell]})
    write(path, rows, [("problem", pa.string()), ("answer", pa.string()), ("images", pa.list_(pa.string()))])


def write_r1v(path: Path, golds: Sequence[str], *, question: str = "As shown in figure {number}, what is the value?") -> None:
    """A file of leonardPKU/GEOQA_R1V_Train_8K or of clevr_cogen_a_train; every second solution stands on lines of its own."""
    rows = [
        {
            "image": {"bytes": drawing(number), "path": None},
            "problem": question.format(number=number),
            "solution": f"<answer> {gold} </answer>" if number % 2 == 0 else f"<answer>\n{gold}\n</answer>",
        }
        for number, gold in enumerate(golds)
    ]
    features = {"image": IMAGE, "problem": TEXT, "solution": TEXT}
    write(path, rows, [("image", PICTURE), ("problem", pa.string()), ("solution", pa.string())], features)


def write_r1v_list(path: Path, golds: Sequence[Any]) -> None:
    """A test list of R1-V: JSON lines with the paths of pictures beside it."""
    lines = []
    for number, gold in enumerate(golds):
        beside = path.parent / "pictures" / f"{number}.png"
        beside.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(drawing(number))
        lines.append(json.dumps({"image_path": f"./pictures/{number}.png", "question": f"Figure {number}: what is it?", "ground_truth": gold}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def gsm8k_row(number: int) -> dict[str, str]:
    """A row of openai/gsm8k."""
    total = 18 if number == 0 else 1080 * number
    return {
        "question": f"A shelf holds {number + 2} boxes of the same kind. How many things are there in all?",
        "answer": f"There are {number + 2} boxes, each with some of the things <<1*{total}={total}>>{total}.\n#### {total:,}",
    }


def write_gsm8k(folder: Path, num_rows: int = 4) -> None:
    """openai/gsm8k with both of its configurations."""
    for configuration in ("main", "socratic"):
        for split in ("train", "test"):
            rows = [gsm8k_row(number) for number in range(num_rows if configuration == "main" else num_rows + 3)]
            path = folder / configuration / f"{split}-00000-of-00001.parquet"
            write(path, rows, [("question", pa.string()), ("answer", pa.string())], {"question": TEXT, "answer": TEXT})


def write(path: Path, rows: Sequence[Mapping[str, Any]], fields: Sequence[tuple[str, Any]], features: Mapping[str, Any] | None = None) -> None:
    """A parquet file, with what the `datasets` library writes into its header when `features` are given."""
    schema = pa.schema(list(fields))
    if features is not None:
        schema = schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows), schema), path, row_group_size=100)
