"""SwanLab. Offline runs are sent later with `swanlab sync`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seegrad.track.base import Sample, Start
from seegrad.track.wandb import open_image

if TYPE_CHECKING:
    from seegrad.rundir import State

_STATES: Mapping[State, str] = {"finished": "success", "interrupted": "aborted", "failed": "crashed", "running": "aborted"}


class SwanLab:
    """An experiment with this run's name; it keeps its id, so that a continued run is the same one there."""

    rewinds = False

    def start(self, start: Start) -> str:
        os.environ["SWANLAB_INTERACTIVE"] = "false"
        import swanlab

        self._swanlab: Any = swanlab
        self._run = swanlab.init(
            project=start.project,
            name=start.name,
            id=start.id,
            resume="allow",
            config=dict(start.config),
            log_dir=str(start.folder),
            mode="offline" if start.offline else "online",
            settings=swanlab.Settings.model_validate({"terminal": {"proxy_type": "none"}, "interactive": False}),
        )
        return f"swanlab sync {self._run.dir}" if start.offline else str(self._run.url)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def samples(self, step: int, rows: Sequence[Sample]) -> None:
        pictures = [self._swanlab.Image(open_image(data), caption=row.caption) for row in rows for data in row.images]
        texts = [self._swanlab.Text(row.caption, caption=row.scores) for row in rows]
        self._run.log({"samples/answers": texts, **({"samples/pictures": pictures} if pictures else {})}, step=step)

    def finish(self, state: State, message: str) -> None:
        self._run.finish(state=_STATES[state], error=message or ("stopped" if state != "finished" else None))
