"""What a driver takes from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import structlog

    from tidegate.clock import Clock
    from tidegate.graph.job_graph import JobGraph
    from tidegate.ha.chain import HaStore
    from tidegate.ha.filesystem import RunBlocking
    from tidegate.model.chance import Chance
    from tidegate.model.control import FailedStep, Logged
    from tidegate.model.ids import JobId
    from tidegate.storage.checkpoints import CheckpointStorage
    from tidegate.transport.wire import Network


@frozen
class DriverWorld:
    """The doors of a driver, so that a simulation can own every source of surprise.

    call_user: runs calls of the user's, who may never return, beside those of run_blocking.
    chain: opens the record chain of the job. storage: opens the job's checkpoint storage.
    secret: what slots prove themselves with. heard: keeps what was logged in a slot,
    and what is to be kept of a step that failed.
    """

    network: Network
    clock: Clock
    chance: Chance
    run_blocking: RunBlocking
    call_user: RunBlocking
    chain: Callable[[JobGraph], Awaitable[HaStore]]
    storage: Callable[[JobGraph, JobId], CheckpointStorage]
    log: structlog.typing.FilteringBoundLogger
    secret: bytes
    heard: Callable[[Logged | FailedStep], None]
