"""The world of a slot: every source of surprise, so that a simulation can own it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import structlog

    from tidegate.clock import Clock
    from tidegate.model.chance import Chance
    from tidegate.model.ids import JobId
    from tidegate.model.settings import CheckpointSettings
    from tidegate.storage.checkpoints import CheckpointStorage
    from tidegate.transport.wire import Network


@frozen(kw_only=True)
class World:
    """Everything that a slot takes from outside.

    run_blocking: runs a call on the slot's pool. pause: lets the loop do other things; time passes
    in it. storage: opens the job's checkpoint storage. owns_process: whether the slot may decide
    when the process collects garbage.
    """

    network: Network
    clock: Clock
    chance: Chance
    run_blocking: Callable[[Callable[[], object]], Awaitable[object]]
    storage: Callable[[JobId, CheckpointSettings], CheckpointStorage]
    log: structlog.typing.FilteringBoundLogger
    pause: Callable[[], Awaitable[None]]
    owns_process: bool
