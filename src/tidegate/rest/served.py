"""The job that is served, and how requests reach it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from tidegate.errors import UserError
from tidegate.rest.answers import BadRequest, NotFound
from tidegate.rest.rates import Rates

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Future

    from aiohttp.web import Request

    from tidegate.api.job import JobClient
    from tidegate.clock import Clock
    from tidegate.jobmaster.view import JobView, SubtaskView, VertexView
    from tidegate.model.chance import Chance
    from tidegate.model.ids import JobId
    from tidegate.rest.operations import Operations

Object = dict[str, object]

_ID: Final = re.compile("[0-9a-fA-F]{32}")
_NUMBER: Final = re.compile("[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Route:
    """Function that answers a method at a path, with a body or an ``Accepted``."""

    method: str
    path: str
    answer: Callable[[Request], Awaitable[object]]


class ServedJob:
    """One job, as requests see it."""

    def __init__(
        self,
        client: JobClient,
        operations: Operations,
        clock: Clock,
        chance: Chance,
        run_blocking: Callable[[Callable[[], object]], Awaitable[object]],
    ) -> None:
        self.client: Final = client
        self.rates: Final = Rates()
        self._operations = operations
        self._clock = clock
        self._chance = chance
        self._run_blocking = run_blocking

    @property
    def now_ms(self) -> int:
        return self._clock.wall_ms()

    async def view(self) -> JobView:
        seen = cast("JobView", await self._run_blocking(self.client.view))
        self.rates.saw(seen)
        return seen

    async def watch(self) -> None:
        """Reads the job whenever its counters change, to compute rates."""
        every_s = (await self.view()).settings.slot.pulse_ms / 1000
        while True:
            await asyncio.sleep(every_s)
            with contextlib.suppress(TimeoutError):  # the driver is busy; the next look will do
                await self.view()

    def job_id(self, request: Request) -> JobId:
        wanted, job = path_id(request, "jobid"), self.client.get_job_id()
        if wanted != job:
            raise NotFound(f"Could not find Flink job ({wanted})")
        return job

    async def job(self, request: Request) -> JobView:
        self.job_id(request)
        return await self.view()

    async def vertex(self, request: Request) -> tuple[JobView, VertexView]:
        job, wanted = await self.job(request), path_id(request, "vertexid")
        for vertex in job.vertices:
            if vertex.id.hex() == wanted:
                return job, vertex
        raise NotFound(f"Could not find job vertex {wanted} in job {job.job}")

    async def subtask(self, request: Request) -> tuple[JobView, VertexView, SubtaskView]:
        (job, vertex), index = await self.vertex(request), path_number(request, "index")
        for subtask in vertex.subtasks:
            if subtask.index == index:
                return job, vertex, subtask
        raise NotFound(f"Could not find subtask {index} of vertex {vertex.id.hex()}")

    def begin(
        self, kind: str, trigger_id: str | None, begin: Callable[[str], Future[Any]]
    ) -> Object:
        """Begins an operation, unless one of that kind and id exists.

        begin: called with the id. Raises BadRequest for what cannot be asked for.
        """
        id = trigger_id or f"{self._chance.bits64():016x}{self._chance.bits64():016x}"
        try:
            self._operations.begin(kind, id, lambda: begin(id))
        except UserError as error:
            raise BadRequest(str(error)) from error
        return {"request-id": id}

    def outcome(
        self,
        kind: str,
        id: str,
        result: Callable[[Any], Object],
        *,
        whose: str = "",
        failure: str = "failure-cause",
    ) -> Object:
        """Progress of an operation. result: describes its result; failure: describes its error.

        Raises NotFound for an id of which nothing is known.
        """
        asked = self._operations.find(kind, id)
        if asked is None:
            raise NotFound(f"There is no {kind} operation with triggerId={id}{whose}.")
        if not asked.done():
            return {"status": {"id": "IN_PROGRESS"}, "operation": None}
        error = asked.exception()
        done = result(asked.result()) if error is None else {failure: failure_cause(error)}
        return {"status": {"id": "COMPLETED"}, "operation": done}


def failure_cause(error: BaseException) -> Object:
    """Cause of a failed operation, as text; there is no Java here to serialise a throwable."""
    text = f"{type(error).__name__}: {error}"
    return {
        "class": type(error).__name__,
        "stack-trace": text,
        "serialized-throwable": base64.b64encode(text.encode()).decode(),
    }


def path_id(request: Request, name: str) -> str:
    """Parses an id of 32 digits in the path. Raises BadRequest."""
    return _path(request, name, _ID).lower()


def path_number(request: Request, name: str) -> int:
    """Parses a number in the path. Raises BadRequest."""
    return int(_path(request, name, _NUMBER))


def _path(request: Request, name: str, form: re.Pattern[str]) -> str:
    value = request.match_info[name]
    if not form.fullmatch(value):
        raise BadRequest(
            "Bad request, could not parse parameters: Cannot resolve path parameter "
            f'({name}) from value "{value}".'
        )
    return value
