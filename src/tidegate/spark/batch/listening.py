"""Where the driver of a batch listens to its tasks."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from tidegate.driver.starting.invitation import invitation
from tidegate.errors import TidegateError
from tidegate.spark.session import driver_address, tell_of_plain_rpc
from tidegate.transport.security import LinkSecurity, is_loopback

if TYPE_CHECKING:
    import structlog
    from pyspark.sql import SparkSession

    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.control import SlotInvitation
    from tidegate.spark.batch.driver_loop import DriverLoop
    from tidegate.spark.batch.watch import TaskWatch

_WHO: Final = "tasks"
_LAST_S: Final = 1.0
"""How long the last words of tasks are waited for, once Spark has no task of the job any more."""


async def listen(
    graph: JobGraph,
    spark: SparkSession,
    loop: DriverLoop,
    watch: TaskWatch,
    log: structlog.typing.FilteringBoundLogger,
) -> SlotInvitation | None:
    """Listen to tasks until the loop is closed. Gives what each task needs to be heard.

    None where that cannot be: the batch runs all the same, and its figures come at its end.
    """
    settings = graph.settings
    try:
        address = driver_address(spark)
        security = LinkSecurity(settings.links, address.bind)
        ports = settings.slot.port_range
        network = security.network(announce=address.announce, ports=ports)
        listener = await network.listen(watch.accept)
    except TidegateError as error:
        log.warning("tasks cannot tell what they do before the batch ends", error=str(error))
        return None
    loop.stack.callback(watch.close)
    loop.stack.push_async_callback(listener.close)
    if not is_loopback(address.bind):
        tell_of_plain_rpc(spark, log)
    return security.invite(invitation(settings.slot, listener.address, security.secret), _WHO)


async def hear_out(watch: TaskWatch) -> None:
    """Wait until tasks that have ended were heard to their last word."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(watch.quiet.wait(), _LAST_S)
