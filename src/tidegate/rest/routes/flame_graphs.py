"""Where the time of a vertex goes: flame graphs, and its hottest keys. Source: dashboard §3.8."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tidegate.errors import TidegateError
from tidegate.rest.refusals import NotFound, TimedOut, unresolved
from tidegate.rest.served import Route
from tidegate.rest.shapes.flame_shapes import ENDED, NOT_YET, OFF, hottest_keys, tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp.web import Request

    from tidegate.jobmaster.view import JobView, SubtaskView
    from tidegate.model.control import Samples
    from tidegate.model.ids import SlotId, VertexId
    from tidegate.rest.served import ServedJob

SAMPLES_WITHIN_S: Final = 5.0
_KINDS: Final = {"on_cpu": (True,), "off_cpu": (False,), "full": (True, False)}


def routes(served: ServedJob) -> list[Route]:
    async def graph(request: Request) -> object:
        job, vertex = await served.vertex(request)
        kinds = _KINDS.get(request.query.get("type", "full").lower())
        if kinds is None:
            raise unresolved("query", "type", request.query.get("type"))
        subtasks = _chosen(request, vertex.subtasks)
        if not served.flame_graphs:
            return OFF
        left = _left(job, subtasks)
        if not left:
            return ENDED
        wanted = {each.index for each in left}
        counts = [
            each
            for told in await _told(served, job, vertex.id, left)
            for each in told.counts
            if each.on_cpu in kinds and each.subtask in wanted
        ]
        return {"endTimestamp": served.now_ms, "data": tree(counts)} if counts else NOT_YET

    async def keys(request: Request) -> object:
        job, vertex = await served.vertex(request)
        left = _left(job, vertex.subtasks) if served.flame_graphs else []
        return hottest_keys(await _told(served, job, vertex.id, left))

    return [
        Route("GET", "/jobs/{jobid}/vertices/{vertexid}/flamegraph", graph),
        Route("GET", "/jobs/{jobid}/vertices/{vertexid}/hot-keys", keys),
    ]


def _left(job: JobView, subtasks: Sequence[SubtaskView]) -> list[SubtaskView]:
    """Subtasks that have not ended."""
    if job.status.is_terminal:
        return []
    return [each for each in subtasks if not each.state.is_terminal]


def _chosen(request: Request, subtasks: Sequence[SubtaskView]) -> Sequence[SubtaskView]:
    """The subtasks that a request is about. Raises BadRequest, and NotFound for a wrong index."""
    asked = request.query.get("subtaskindex")
    if asked is None:
        return subtasks
    if not (asked.isascii() and asked.isdecimal()):
        raise unresolved("query", "subtaskindex", asked)
    found = [each for each in subtasks if str(each.index) == asked]
    if not found:
        raise NotFound(f"There is no subtask {asked} of this vertex.")
    return found


async def _told(
    served: ServedJob, job: JobView, vertex: VertexId, subtasks: Sequence[SubtaskView]
) -> list[Samples]:
    """Samples of the slots that tell them in time. Raises TimedOut if none does."""
    slots = list(dict.fromkeys(each.slot for each in subtasks if each.slot is not None))

    async def of(slot: SlotId) -> Samples:
        told = asyncio.wrap_future(served.client.call_samples(slot, vertex))
        return await asyncio.wait_for(told, SAMPLES_WITHIN_S)

    answers = await asyncio.gather(*(of(slot) for slot in slots), return_exceptions=True)
    told: list[Samples] = []
    missing: list[str] = []
    for slot, answer in zip(slots, answers, strict=True):
        if isinstance(answer, TimeoutError | TidegateError):
            missing.append(_why(job, slot))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            told.append(answer)
    if slots and len(missing) == len(slots):
        raise TimedOut(
            f"No slot has told its samples within {SAMPLES_WITHIN_S:g} s: {'; '.join(missing)}. "
            "A slot answers between two calls of functions; its thread dump says where it is."
        )
    return told


def _why(job: JobView, slot: SlotId) -> str:
    """Names the call that keeps a slot from answering."""
    seen = next((each for each in job.slots if each.id == slot), None)
    if seen is None or not seen.calling:
        return f"slot {slot} is gone, or too busy"
    function = "a call" if seen.long_call is None else f"a call of {seen.long_call.function}"
    return f"slot {slot} has been in {function} of {seen.calling} for {seen.batch_age_ms} ms"
