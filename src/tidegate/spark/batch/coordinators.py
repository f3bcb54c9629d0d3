"""The coordinators of a job in batch: what sources are to read is known before they begin."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, TypeVar, cast

from tidegate.api.results import ResultBuffers
from tidegate.errors import GraphError
from tidegate.model.elements import OperatorEvent
from tidegate.operators.sources.source_coordinator import (
    NoMoreSplits,
    SourceCoordinator,
    SplitsWanted,
)
from tidegate.spark.batch.start import BatchStart

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidegate.api.coordinator import OperatorCoordinator
    from tidegate.errors import TidegateError
    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.ids import CheckpointId, OperatorId, VertexId
    from tidegate.spark.batch.shuffle import Said

T = TypeVar("T")


class Coordinators:
    """Makes and asks them in the driver, one call after another.

    staged: where what an operator's source reads was written. goes_on: another job follows.
    start: what they begin with.
    """

    def __init__(
        self,
        graph: JobGraph,
        staged: Mapping[OperatorId, str],
        *,
        goes_on: bool,
        start: BatchStart | None = None,
    ) -> None:
        self._goes_on = goes_on
        self._start = start or BatchStart()
        self._graph = graph
        self._staged = staged
        self._shared: dict[str, object] = {}
        self._made: dict[OperatorId, OperatorCoordinator] = {}
        self._contexts: dict[OperatorId, _Context] = {}
        self.results: Final = ResultBuffers()

    def start(self) -> None:
        """Make them all. Sources deal out all that there is to read."""
        for vertex in self._graph.topology.vertices:
            for operator in vertex.operators:
                if not operator.has_coordinator:
                    continue
                context = _Context(self, operator.id, vertex.parallelism)
                made = self._graph.coordinated(operator.id).coordinator(context)
                self._contexts[operator.id], self._made[operator.id] = context, made
                made.start(self._start.checkpoint, self._start.coordinators.get(operator.id))
                for subtask in range(vertex.parallelism):
                    made.subtask_ready(subtask)
                if isinstance(made, SourceCoordinator):
                    _deal_out(made, context, operator.name)

    def events(self, vertex: VertexId) -> dict[int, list[tuple[OperatorId, OperatorEvent]]]:
        """Events for the operators of a vertex as they begin, by subtask."""
        found: dict[int, list[tuple[OperatorId, OperatorEvent]]] = {}
        for operator in self._graph.topology.vertex(vertex).operators:
            context = self._contexts.get(operator.id)
            for subtask, events in ({} if context is None else context.sent).items():
                found.setdefault(subtask, []).extend((operator.id, event) for event in events)
        return found

    def snapshot(self, checkpoint: CheckpointId) -> dict[OperatorId, bytes]:
        """The state of each, behind all that it was told."""
        return {operator: made.snapshot(checkpoint) for operator, made in self._made.items()}

    def tell(self, said: Said, operator: OperatorId, event: OperatorEvent) -> None:
        """An operator has said something to its coordinator."""
        made = self._made[operator]
        if not isinstance(made, SourceCoordinator):  # its splits were dealt out before
            made.on_event(said.task.subtask.index, event)

    def close(self) -> None:
        for made in self._made.values():
            # The job is over: nothing of it fails any more.
            with contextlib.suppress(BaseException):
                made.close()

    def staged(self, operator: OperatorId) -> str | None:
        return self._staged.get(operator)

    def goes_on(self, operator: OperatorId) -> bool:
        """Another job reads on behind what the operator's source has read here."""
        return self._goes_on and operator not in self._staged

    def shared(self, name: str, make: Callable[[], T]) -> T:
        if name not in self._shared:
            self._shared[name] = make()
        return cast("T", self._shared[name])


def _deal_out(source: SourceCoordinator, context: _Context, name: str) -> None:
    """Have readers ask in turn until there is nothing left."""
    reading = set(range(context.parallelism))
    while reading:
        told = context.events_sent
        for subtask in sorted(reading):
            source.on_event(subtask, OperatorEvent(SplitsWanted()))
            if any(isinstance(e.payload, NoMoreSplits) for e in context.sent.get(subtask, ())):
                reading.discard(subtask)
        if reading and context.events_sent == told:
            raise GraphError(
                f"The source '{name}' does not say what there is to read",
                where=f"source '{name}'",
                remedy="A bounded source assigns splits, or says that there are no more, as soon "
                "as a reader asks; else run it with execution.batch-shuffle-mode: "
                "ALL_EXCHANGES_PIPELINED.",
            )


class _Context:
    """The ``CoordinatorContext`` of one operator. sent: events by subtask."""

    def __init__(self, all_: Coordinators, operator: OperatorId, parallelism: int) -> None:
        self._all = all_
        self._operator = operator
        self.parallelism = parallelism
        self.sent: dict[int, list[OperatorEvent]] = {}
        self.goes_on = all_.goes_on(operator)
        self.shared = all_.shared
        self.results = all_.results.of

    @property
    def events_sent(self) -> int:
        return sum(map(len, self.sent.values()))

    @property
    def staged(self) -> str | None:
        return self._all.staged(self._operator)

    def send(self, subtask: int, event: OperatorEvent) -> None:
        self.sent.setdefault(subtask, []).append(event)

    def run_blocking(self, call: Callable[[], object], then: Callable[[object], None]) -> None:
        then(call())

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Nothing happens later: a bounded source has all that there is."""

    def report_backlog(self, backlog: bool) -> None:
        """No checkpoint depends on it."""

    def fail(self, error: TidegateError) -> None:
        raise error
