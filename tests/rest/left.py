"""Jobs of a folder: drivers that answer, and the signs and archives that drivers leave."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from structlog.testing import capture_logs

from tests.rest.served import Served, made
from tests.rest.world import EMPTY, JOB
from tidegate.driver.client.door import DoorSign
from tidegate.model.ids import Epoch
from tidegate.rest.shapes.archive_shapes import archived
from tidegate.storage import paths

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from tidegate.model.control import JobStatus
    from tidegate.model.ids import JobId
    from tidegate.rest.server import RestServer

HERE = socket.gethostname()


def driver(stack: ExitStack, client: Served | None = None, **settings: object) -> RestServer:
    """A driver of the job `JOB` that answers."""
    server = made(**settings)
    with capture_logs():
        server.open(client or Served(), Epoch(1))
    stack.callback(server.shut)
    return server


def put_sign(
    folder: Path,
    rest: str,
    *,
    host: str = HERE,
    pid: int = 0,
    job: str = JOB,
    name: str = "orders",
) -> None:
    sign = DoorSign(host, pid or os.getpid(), "/nowhere", rest, job)
    file = folder / paths.door_file(name, Epoch(1))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(asdict(sign)))


def put_archive(folder: Path, status: JobStatus, job: JobId = JOB) -> None:
    history = folder / paths.history_folder()
    history.mkdir(parents=True, exist_ok=True)
    timestamps_ms = {**EMPTY.timestamps_ms, status: 5_000}
    view = replace(EMPTY, job=job, status=status, timestamps_ms=timestamps_ms)
    (history / job).write_bytes(archived(view, 9_000))
