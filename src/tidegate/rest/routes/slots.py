"""Slots, as task managers with one slot each. Source: dashboard §3.5 to §3.7."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tidegate.errors import TidegateError
from tidegate.model.control import ThreadStack
from tidegate.rest.refusals import TimedOut
from tidegate.rest.served import NO_FILE, Route, lacking
from tidegate.rest.shapes import cluster_shapes as shapes
from tidegate.rest.shapes.job_shapes import slots_of

if TYPE_CHECKING:
    from aiohttp.web import Request

    from tidegate.rest.served import ServedJob

_ONE: Final = "/taskmanagers/{taskmanagerid}"
THREADS_WITHIN_S: Final = 5.0
_LACKING: Final = ("profiler", "profiler/{file}")


def routes(served: ServedJob) -> list[Route]:
    async def all_slots(request: Request) -> object:
        return shapes.slots(await served.view(), served.now_ms)

    async def one_slot(request: Request) -> object:
        return shapes.slot_details(*await served.slot(request), served.now_ms)

    async def threads(request: Request) -> object:
        _, slot = await served.slot(request)
        told = asyncio.wrap_future(served.client.thread_dump(slot.id))
        try:
            return shapes.threads(await asyncio.wait_for(told, THREADS_WITHIN_S))
        except (TimeoutError, TidegateError) as error:
            if slot.long_call is None:
                raise TimedOut(
                    f"The slot has not told its threads within {THREADS_WITHIN_S:g} s: {error}. "
                    "It is in a call that does not return; the guard tells of it after 10 s."
                ) from error
            # The guard reads it without the interpreter, which the call holds.
            outer_first = reversed(slot.long_call.stack.splitlines())
            return shapes.threads([ThreadStack(slot.calling, "\n".join(outer_first))])

    return [
        Route("GET", "/taskmanagers", all_slots),
        Route("GET", _ONE, one_slot),
        Route("GET", f"{_ONE}/thread-dump", threads),
        *(lacking(f"{_ONE}/{path}", NO_FILE) for path in _LACKING),
        served.shows_vertex("/taskmanagers", lambda job, v: slots_of(job, v, served.now_ms)),
    ]
