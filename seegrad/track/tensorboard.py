"""TensorBoard: event files, always local. Written with the `tensorboard` package's own record writer, so that no torch is needed."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seegrad.track.base import COLUMNS, Sample, Start

if TYPE_CHECKING:
    from seegrad.rundir import State


class TensorBoard:
    """One event file per start of the run. A continued run marks where it starts, and the reader forgets what lay after that."""

    rewinds = True

    def start(self, start: Start) -> str:
        from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
        from tensorboard.plugins.text.metadata import create_summary_metadata
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._events, self._summaries = event_pb2, summary_pb2
        self._tensors, self._shapes, self._types, self._text_metadata = tensor_pb2, tensor_shape_pb2, types_pb2, create_summary_metadata
        # The reader takes files in the order of their names.
        self._writer = RecordWriter((start.folder / f"events.out.tfevents.{time.time_ns():020d}.{os.getpid()}").open("xb"))
        self._write(file_version="brain.Event:2")
        if start.resumed:
            self._write(step=start.done + 1, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START))
        self._summary(start.done, [self._text("config", f"```\n{json.dumps(start.config, indent=1, ensure_ascii=False)}\n```")])
        return f"tensorboard --logdir {start.folder}"

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._summary(step, [self._summaries.Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()])

    def samples(self, step: int, rows: Sequence[Sample]) -> None:
        values = []
        for number, row in enumerate(rows, 1):
            values += [self._image(f"samples/{number}/picture-{place}", data) for place, data in enumerate(row.images, 1)]
        table = [list(COLUMNS), ["---"] * len(COLUMNS), *([str(getattr(row, column)) for column in COLUMNS] for row in rows)]
        values.append(self._text("samples", "\n".join("| " + " | ".join(map(_cell, cells)) + " |" for cells in table)))
        self._summary(step, values)

    def finish(self, state: State, message: str) -> None:
        self._writer.close()

    def _image(self, tag: str, data: bytes) -> Any:
        from PIL import Image

        width, height = Image.open(io.BytesIO(data)).size
        return self._summaries.Summary.Value(
            tag=tag, image=self._summaries.Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=data)
        )

    def _text(self, tag: str, text: str) -> Any:
        shape = self._shapes.TensorShapeProto(dim=[self._shapes.TensorShapeProto.Dim(size=1)])
        tensor = self._tensors.TensorProto(dtype=self._types.DT_STRING, tensor_shape=shape, string_val=[text.encode("utf-8", "backslashreplace")])
        return self._summaries.Summary.Value(tag=tag, tensor=tensor, metadata=self._text_metadata(display_name=tag, description=""))

    def _summary(self, step: int, values: Sequence[Any]) -> None:
        self._write(step=step, summary=self._summaries.Summary(value=values))

    def _write(self, **fields: Any) -> None:
        self._writer.write(self._events.Event(wall_time=time.time(), **fields).SerializeToString())
        self._writer.flush()


def _cell(text: str) -> str:
    """One cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", "<br>")
