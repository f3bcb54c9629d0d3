"""The job that is served: its views, and operations on it.

An operation is begun by one request, and others ask about it by an id, which the client may choose.
The same id again means the same operation, even if that failed. Source: REST §1.1.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from flinkformat.frozen import frozen
from tidegate.errors import UserError
from tidegate.rest.refusals import BadRequest, NotFound, unresolved
from tidegate.rest.shapes.job_shapes import throwable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Future

    from aiohttp.web import Request

    from tidegate.api.job import JobClient
    from tidegate.clock import Clock
    from tidegate.ha.filesystem import RunBlocking
    from tidegate.jobmaster.view import JobView, SlotView, SubtaskView, VertexView
    from tidegate.model.chance import Chance
    from tidegate.model.ids import JobId

T = TypeVar("T")
Object = dict[str, object]

_ID: Final = re.compile("[0-9a-fA-F]{32}")
_NUMBER: Final = re.compile("[0-9]{1,18}")

OPERATIONS_MAX: Final = 1_000
"""Operations that are remembered; of those that have ended the oldest are forgotten first."""

LAST_READ_MS: Final = 10_000
"""Whoever has not read a result so long after the end of the operation is not waiting for it."""


@frozen
class Route:
    """Function that answers a method at a path, with a body or an ``Accepted``."""

    method: str
    path: str
    answer: Callable[[Request], Awaitable[object]]


NO_FILE: Final = "File not found."
NO_RESOURCE: Final = "Resource not found."
"""Texts at which Flink's dashboard stays quiet; its releases up to 2.3 at the first alone."""


def lacking(path: str, text: str) -> Route:
    """Route of something that there is in Flink and not here."""

    async def answer(request: Request) -> object:
        raise NotFound(text)

    return Route("GET", path, answer)


class ServedJob:
    """One job, as requests see it.

    flame_graphs: whether slots may be asked where their time goes.
    """

    def __init__(
        self,
        client: JobClient,
        operations: Operations,
        clock: Clock,
        chance: Chance,
        run_blocking: RunBlocking,
        *,
        flame_graphs: bool = True,
    ) -> None:
        self.client: Final = client
        self.flame_graphs: Final = flame_graphs
        self._operations = operations
        self._clock = clock
        self._chance = chance
        self._run_blocking = run_blocking

    @property
    def now_ms(self) -> int:
        return self._clock.wall_ms()

    async def view(self) -> JobView:
        return await self._run_blocking(self.client.view)

    async def apart(self, call: Callable[[], T]) -> T:
        """Result of a call that reads files, which no other request waits for."""
        return await self._run_blocking(call)

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

    async def slot(self, request: Request) -> tuple[JobView, SlotView]:
        job, wanted = await self.view(), request.match_info["taskmanagerid"]
        for slot in job.slots:
            if slot.id == wanted:
                return job, slot
        raise NotFound(f"TaskExecutor with ID {wanted} could not be found.")

    def shows(self, path: str, shape: Callable[[JobView], object]) -> Route:
        """Route that shows the job in a shape."""

        async def answer(request: Request) -> object:
            return shape(await self.job(request))

        return Route("GET", f"/jobs/{{jobid}}{path}", answer)

    def shows_vertex(self, path: str, shape: Callable[[JobView, VertexView], object]) -> Route:
        """Route that shows a vertex in a shape."""

        async def answer(request: Request) -> object:
            return shape(*await self.vertex(request))

        return Route("GET", f"/jobs/{{jobid}}/vertices/{{vertexid}}{path}", answer)

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
    """Cause of a failed operation."""
    kind = type(error).__name__
    return throwable(kind, f"{kind}: {error}")


def path_id(request: Request, name: str) -> str:
    """Parses an id of 32 digits in the path. Raises BadRequest."""
    return _path(request, name, _ID).lower()


def path_number(request: Request, name: str) -> int:
    """Parses a number in the path. Raises BadRequest."""
    return int(_path(request, name, _NUMBER))


def _path(request: Request, name: str, form: re.Pattern[str]) -> str:
    value = request.match_info[name]
    if not form.fullmatch(value):
        raise unresolved("path", name, value)
    return value


@dataclass(slots=True)
class _Operation:
    future: Future[Any]
    ended_ms: int | None = None
    read: bool = False


class Operations:
    """The operations of one job; safe to use from any thread.

    store_ms: how long the result of one can be read once it has ended.
    """

    def __init__(self, clock: Clock, store_ms: int) -> None:
        self._clock = clock
        self._store_ms = store_ms
        self._lock = threading.Lock()
        self._all_read = threading.Condition(self._lock)
        self._known: dict[tuple[str, str], _Operation] = {}

    def begin(self, kind: str, id: str, begin: Callable[[], Future[Any]]) -> None:
        """Begins an operation, unless one of this kind and id exists. Raises what ``begin`` raises.

        Raises OverflowError if too many are under way.
        """
        with self._lock:
            self._forget()
            if (kind, id) in self._known:
                return
            if len(self._known) >= OPERATIONS_MAX:
                raise OverflowError(f"{OPERATIONS_MAX} operations are under way")
            operation = self._known[kind, id] = _Operation(begin())
        operation.future.add_done_callback(lambda _: self._ended(operation))

    def find(self, kind: str, id: str) -> Future[Any] | None:
        """The operation of that kind and id; None if it is unknown or ended too long ago."""
        with self._lock:
            self._forget()
            operation = self._known.get((kind, id))
            if operation is None:
                return None
            if operation.future.done():
                operation.read = True
                self._all_read.notify_all()
            return operation.future

    @property
    def awaited(self) -> bool:
        """True if a client has probably still to read an operation's result."""
        with self._lock:
            return self._awaited()

    def wait_until_read(self) -> None:
        """Waits until no result is awaited; at most `LAST_READ_MS`."""
        with self._lock:
            self._all_read.wait_for(lambda: not self._awaited(), LAST_READ_MS / 1000)

    def _awaited(self) -> bool:
        since_ms = self._clock.monotonic_ms() - LAST_READ_MS
        return any(
            not one.read and (one.ended_ms is None or one.ended_ms > since_ms)
            for one in self._known.values()
        )

    def _ended(self, operation: _Operation) -> None:
        operation.ended_ms = self._clock.monotonic_ms()

    def _forget(self) -> None:
        """Drops operations that ended too long ago, and the oldest ended ones beyond the limit."""
        until_ms = self._clock.monotonic_ms() - self._store_ms
        ended = {key: one.ended_ms for key, one in self._known.items() if one.ended_ms is not None}
        spare = len(self._known) - OPERATIONS_MAX + 1
        for number, (key, ended_ms) in enumerate(ended.items()):
            if ended_ms < until_ms or number < spare:
                del self._known[key]
