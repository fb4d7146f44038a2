"""Reads back what real trackers wrote, each with its own reader or its own message types: `python -m tests.track_readers TRACKER FOLDER`.

Prints JSON: points [[step, name, value], …], config, number of pictures, text of the samples.
"""

from __future__ import annotations

import json
import sqlite3
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Found = dict[str, Any]


def tensorboard(folder: Path) -> Found:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util

    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0, "tensors": 0})
    reader.Reload()
    tags = reader.Tags()
    texts = {tag: [tensor_util.make_ndarray(event.tensor_proto).item().decode() for event in reader.Tensors(tag)] for tag in tags["tensors"]}
    return {
        "points": [[event.step, tag, event.value] for tag in tags["scalars"] for event in reader.Scalars(tag)],
        "config": json.loads(texts["config"][-1].strip("`\n")),
        "pictures": sum(len(reader.Images(tag)) for tag in tags["images"]),
        "samples": "\n".join(texts["samples"]),
    }


def wandb(folder: Path) -> Found:
    from wandb.proto import wandb_internal_pb2

    found: Found = {"points": [], "config": {}, "pictures": 0, "samples": "", "ids": []}
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for data in leveldb_records(file.read_bytes()):
            record = wandb_internal_pb2.Record.FromString(data)
            kind = record.WhichOneof("record_type")
            if kind == "run":
                found["ids"].append(record.run.run_id)
                found["config"].update({item.key: json.loads(item.value_json) for item in record.run.config.update})
            elif kind == "history":
                values = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
                step = record.history.step.num
                found["points"] += [[step, name, value] for name, value in values.items() if isinstance(value, int | float) and name[0] != "_"]
    for table in folder.glob("wandb/offline-run-*/files/media/table/**/*.json"):
        found["samples"] += table.read_text()
    found["pictures"] = sum(file.read_bytes().startswith(b"\x89PNG") for file in folder.glob("artifacts/staging/*"))  # of tables: sent as artifacts
    return found


def swanlab(folder: Path) -> Found:
    import yaml
    from swanlab.proto.swanlab.record.v1.record_pb2 import Record

    found: Found = {"points": [], "config": {}, "ids": [], "samples": ""}
    for file in sorted(folder.glob("run-*/*.swanlab")):
        for data in leveldb_records(file.read_bytes()):
            record = Record.FromString(data)
            kind = record.WhichOneof("record_type")
            if kind == "start":
                found["ids"].append(record.start.id)
            elif kind == "scalar" and not record.scalar.key.startswith("__"):
                found["points"].append([record.scalar.step, record.scalar.key, record.scalar.value.number])
    for file in sorted(folder.glob("run-*/files/config.yaml")):
        found["config"].update({key: item["value"] for key, item in yaml.safe_load(file.read_text()).items()})
    for file in folder.glob("run-*/media/text/*.txt"):
        found["samples"] += file.read_text()
    found["pictures"] = len(list(folder.glob("run-*/media/image/*.png")))
    return found


def trackio(folder: Path) -> Found:
    (file,) = folder.glob("*.db")
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as database:
        rows = [(step, json.loads(text)) for step, text in database.execute("select step, metrics from metrics order by id")]
        configs = [json.loads(text) for (text,) in database.execute("select config from configs")]
        runs = [name for (name,) in database.execute("select distinct run_name from metrics")]
    points = [[step, name, value] for step, values in rows for name, value in values.items() if isinstance(value, int | float)]
    return {
        "points": points,
        "config": configs[-1],
        "pictures": len(list(folder.glob("media/**/*.png"))),
        "samples": json.dumps([values["samples"] for _, values in rows if "samples" in values], ensure_ascii=False),
        "ids": runs,
    }


def leveldb_records(data: bytes) -> Iterator[bytes]:
    """The records of a log of 32 KiB blocks (checksum, length, type before each piece) with a file header of 7 bytes: wandb's and SwanLab's form."""
    position, pieces = 7, []
    while position + 7 <= len(data):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        length, kind = struct.unpack_from("<HB", data, position + 4)
        if kind == 0:
            return
        pieces.append(data[position + 7 : position + 7 + length])
        position += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield b"".join(pieces)
            pieces = []


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](Path(sys.argv[2]))))
