"""Weights & Biases. Offline runs are sent later with `wandb sync`."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seegrad.track.base import COLUMNS, Sample, Start

if TYPE_CHECKING:
    from seegrad.rundir import State


class WeightsAndBiases:
    """A run with this run's name; it keeps its id, so that a continued run is the same one there."""

    rewinds = False

    def start(self, start: Start) -> str:
        os.environ.update({"WANDB_SILENT": "true"})
        if start.offline:
            places = dict.fromkeys(("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"), str(start.folder))
            os.environ.update({"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false", **places})
        import wandb

        self._wandb: Any = wandb
        # The process that trains is measured, not this one; its output stays where it is.
        settings = wandb.Settings(console="off", silent=True, x_stats_pid=start.process)
        self._run = wandb.init(
            project=start.project,
            name=start.name,
            id=start.id,
            config=dict(start.config),
            dir=str(start.folder),
            mode="offline" if start.offline else "online",
            resume=None if start.offline else "allow",
            settings=settings,
        )
        return f"wandb sync {self._run.dir.removesuffix('/files')}" if start.offline else str(self._run.url)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def samples(self, step: int, rows: Sequence[Sample]) -> None:
        table = self._wandb.Table(columns=["pictures", *COLUMNS])
        for row in rows:
            pictures = [self._wandb.Image(open_image(data), caption=row.id) for data in row.images]
            table.add_data(pictures[0] if len(pictures) == 1 else pictures, *(getattr(row, column) for column in COLUMNS))
        self._run.log({"samples": table}, step=step)

    def finish(self, state: State, message: str) -> None:
        if message:
            self._run.summary["stopped"] = message
        self._run.finish(exit_code=0 if state == "finished" else 1)


def open_image(data: bytes) -> Any:
    """A PNG as a PIL image."""
    from PIL import Image

    return Image.open(io.BytesIO(data)).convert("RGB")
