"""Opens operators only to learn their states.

Each is opened as a slot opens it, by the same context, over a backend that notes what it asks for.
Only the world is not there: nothing is read, sent or started, and sources and sinks declare their
state without being opened (``Operator.declare``). The functions of users are opened, since nobody
else knows their states.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from tidegate.errors import SerializerIncompatible, TidegateError, UserCodeFailed
from tidegate.model.deployment import Deployment
from tidegate.model.descriptors import as_ours
from tidegate.slot.loop.beside import DaemonThreads
from tidegate.slot.subtask.context import context_of
from tidegate.storage.reading import InlineReader
from tidegate.upgrade.recording import RecordingStates

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from tidegate.api.operator import Operator, Threads
    from tidegate.clock import Clock
    from tidegate.model.elements import OperatorEvent
    from tidegate.model.ids import CheckpointId, OperatorId
    from tidegate.model.settings import JobSettings
    from tidegate.model.topology import OperatorInfo, Vertex
    from tidegate.slot.subtask.context import Waiting
    from tidegate.typeinfo.types import TypeInformation
    from tidegate.upgrade.recording import Asked
    from tidegate.upgrade.sample import OperatorSample


@frozen
class Opened:
    """Result of opening an operator. asked: the states.

    key_error: why its keys are refused. errors: why its state is, as a whole. failure: why it could
    not be opened.
    """

    asked: Sequence[Asked]
    key_error: TidegateError | None
    errors: Sequence[TidegateError]
    failure: TidegateError | None


def ended_within(limit_s: float, name: str, call: Callable[[], object]) -> bool:
    """True if a call, on a thread of its own, ends in time; a late one is left running.

    call: raises nothing. name: of the thread.
    """
    thread = threading.Thread(target=call, name=name, daemon=True)
    thread.start()
    thread.join(limit_s)
    return not thread.is_alive()


class DryOpening:
    """Opens operators over samples. checkpoint: the one that was sampled.

    limit_s: how long one may take.
    """

    def __init__(
        self,
        settings: JobSettings,
        clock: Clock,
        checkpoint: CheckpointId,
        *,
        limit_s: float,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._checkpoint = checkpoint
        self._limit_s = limit_s

    def open(
        self, operator: Operator, info: OperatorInfo, vertex: Vertex, sample: OperatorSample
    ) -> Opened:
        """States that an operator asks for; runs on a thread and a loop of its own."""
        states, key_error, errors = self._restored(info, vertex, operator.key_type, sample)
        failures: list[TidegateError] = []

        def run() -> None:
            try:
                asyncio.run(self._declare(operator, info, vertex, states))
            except Exception as error:
                where = f"operator '{info.name}', in its open"
                failures.append(as_ours(error, where=where))

        if not ended_within(self._limit_s, f"check {info.name}", run):
            failures.append(
                UserCodeFailed(
                    f"The operator was not open after {self._limit_s:g} s",
                    where=f"operator '{info.name}'",
                    remedy="Find out what its open waits for; a dry run calls it too.",
                )
            )
        failure = failures[0] if failures else None
        return Opened(tuple(states.asked.values()), key_error, errors, failure)

    def _restored(
        self,
        info: OperatorInfo,
        vertex: Vertex,
        key_type: TypeInformation | None,
        sample: OperatorSample,
    ) -> tuple[RecordingStates, TidegateError | None, list[TidegateError]]:
        """States with the sample; why its keys are refused, and why parts of it are."""
        states = RecordingStates(info, vertex.max_parallelism, self._clock, key_type, sample)
        errors: list[TidegateError] = []
        for part in sample.parts:
            try:
                states.backend.restore(part, InlineReader("a sample"))
            except SerializerIncompatible as error:
                # Keep the old key type, so that the other states can be judged too.
                under_old, _, others = self._restored(info, vertex, None, sample)
                return under_old, error, others
            except TidegateError as error:
                errors.append(error)
        return states, None, errors

    async def _declare(
        self, operator: Operator, info: OperatorInfo, vertex: Vertex, states: RecordingStates
    ) -> None:
        deployment = Deployment.without_job(vertex, self._settings, restored=self._checkpoint)
        context = context_of(info, deployment, _Nowhere(self._clock, operator), states)
        try:
            operator.declare(context)
        finally:
            operator.close()


class _Nowhere:
    """A place where nothing ever happens; the `OperatorHost` of an operator that is not run."""

    def __init__(self, clock: Clock, operator: Operator) -> None:
        self.clock = clock
        self._operator = operator

    @property
    def takes_input(self) -> bool:
        return self._operator.takes_input

    async def run_blocking(
        self, call: Callable[[], object], *, on: Threads | None = None
    ) -> object:
        return await asyncio.get_running_loop().create_future()

    def threads(self, limit: int) -> DaemonThreads:
        return DaemonThreads(limit)

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        coroutine.close()

    def wait(self, awaited: Awaitable[object], waiting: Waiting) -> None: ...

    def wake(self) -> None: ...

    def poll_soon(self) -> None: ...

    def wake_at(self, at_ms: int) -> None: ...

    def skipped(self, rows: int) -> None: ...

    def to_coordinator(self, operator: OperatorId, event: OperatorEvent) -> None: ...
