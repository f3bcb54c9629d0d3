"""A job that commands reach by its records in a folder, and by its door."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from tests.rest.world import JOB
from tidegate.driver.client.door import Door
from tidegate.ha.chain import JobRecord, claim_path, encode, place_path
from tidegate.model.control import JobStatus
from tidegate.model.ids import CheckpointId, Epoch
from tidegate.storage import paths
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tests.datastream.fakes import Client

NAME = "orders"


@contextmanager
def reached(
    folder: Path, client: Client, *, status: JobStatus = JobStatus.RUNNING
) -> Generator[None]:
    """Within the block the job, whose record has this status, takes requests."""
    store, chain = Stores().open(str(folder)), paths.chain_folder(NAME)
    led = JobRecord(JOB, Epoch(1), "t", (), CheckpointId(1), status)
    store.create(paths.join(chain, claim_path(1)), b"t")
    store.create(paths.join(chain, place_path(1, 1)), encode(led))
    door = Door(NAME, str(folder), structlog.get_logger())
    door.open(client, Epoch(1))
    try:
        yield
    finally:
        door.shut()
        door.close()
