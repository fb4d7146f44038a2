"""trackio: a SQLite file that `trackio show` displays, a server of one's own, or a Space."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seegrad.track.base import COLUMNS, Sample, Start
from seegrad.track.wandb import open_image

if TYPE_CHECKING:
    from seegrad.rundir import State


class Trackio:
    """A run with this run's name, which is also how it is found again. Offline, its files lie in the run directory; else where trackio keeps them."""

    rewinds = False

    def start(self, start: Start) -> str:
        if start.offline:
            for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "TRACKIO_BUCKET_ID", "TRACKIO_WEBHOOK_URL"):
                os.environ.pop(name, None)
            os.environ.update({"TRACKIO_DIR": str(start.folder), "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"})
        import trackio

        self._trackio: Any = trackio
        self._run = trackio.init(
            project=start.project, name=start.name, config=dict(start.config), resume="allow" if start.resumed else "never", embed=False
        )
        elsewhere = os.environ.get("TRACKIO_SPACE_ID") or os.environ.get("TRACKIO_SERVER_URL")
        show = f"trackio show --project {start.project}"
        return elsewhere.partition("?")[0] if elsewhere else f"TRACKIO_DIR={start.folder} {show}" if start.offline else show

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def samples(self, step: int, rows: Sequence[Sample]) -> None:
        table = []
        for row in rows:
            pictures = [self._trackio.Image(open_image(data), caption=row.id) for data in row.images]
            table.append([pictures, *(getattr(row, column) for column in COLUMNS)])
        self._run.log({"samples": self._trackio.Table(columns=["pictures", *COLUMNS], data=table)}, step=step)

    def finish(self, state: State, message: str) -> None:
        if message:
            self._trackio.alert(title=state, text=message)
        self._run.finish()
