"""Where the driver of a batch listens to its tasks."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from tidegate.driver.starting.invitation import invitation
from tidegate.errors import TidegateError
from tidegate.transport.security import LinkSecurity

if TYPE_CHECKING:
    import structlog

    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.control import SlotInvitation
    from tidegate.spark.batch.driver_loop import DriverLoop
    from tidegate.spark.batch.watch import TaskWatch

_WHO: Final = "tasks"
_LAST_S: Final = 1.0
"""How long the last words of tasks are waited for, once Spark has no task of the job any more."""

ENDS_S: Final = 5.0
"""How long tasks that Spark has cancelled are waited for: it kills their workers after 2 s."""


@frozen
class DriverPlace:
    """Where executors find this process. bind: address to listen at. announce: how they dial it.

    ports: first and last one to listen on; None for those of the settings. page: URL of Spark's own
    page; None where it has none.
    """

    bind: str
    announce: str
    ports: tuple[int, int] | None = None
    page: str | None = None


async def listen(
    graph: JobGraph,
    place: DriverPlace,
    loop: DriverLoop,
    watch: TaskWatch,
    log: structlog.typing.FilteringBoundLogger,
) -> SlotInvitation | None:
    """Listen to tasks until the loop is closed. Gives what each task needs to be heard.

    None where that cannot be: the batch runs all the same, and its figures come at its end.
    """
    settings = graph.settings
    try:
        security = LinkSecurity(settings.links, place.bind, announce=place.announce)
        ports = place.ports or settings.slot.port_range
        network = security.network(ports=ports)
        listener = await network.listen(watch.accept)
    except TidegateError as error:
        log.warning("tasks cannot tell what they do before the batch ends", error=str(error))
        return None
    loop.stack.callback(watch.close)
    loop.stack.push_async_callback(listener.close)
    return security.invite(invitation(settings.slot, listener.address, security.secret), _WHO)


async def hear_out(watch: TaskWatch, limit_s: float = _LAST_S) -> None:
    """Wait until tasks that have ended were heard to their last word, as long as that may take."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(watch.quiet.wait(), limit_s)
