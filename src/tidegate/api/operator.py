"""Operators, and the services of their slot.

An operator is a plain picklable value until it is opened: the driver builds it and ships it, the
slot opens it. It is called on the slot's loop only, with whole batches, and never waits: what must
wait goes through ``run_blocking`` or ``start``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from flinkformat.frozen import frozen
from tidegate.api.pieces import TURN_S

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from tidegate.api.state.descriptors import (
        MapStateDescriptor,
        OperatorStateDescriptor,
        StateDescriptor,
    )
    from tidegate.api.state.states import (
        BroadcastState,
        ColumnState,
        ColumnStateDescriptor,
        KeyedColumns,
        KeyedPanes,
        OperatorListState,
        State,
    )
    from tidegate.clock import Clock
    from tidegate.loops.cells import KeyCell
    from tidegate.metrics import MetricGroup
    from tidegate.model.control import Remark
    from tidegate.model.elements import Batch, OperatorEvent, Watermark, WatermarkStatus
    from tidegate.model.ids import CheckpointId, JobId, OperatorId
    from tidegate.model.settings import SlotSettings
    from tidegate.model.topology import Delivery
    from tidegate.typeinfo.types import TypeInformation


P = ParamSpec("P")
T = TypeVar("T")


class Pause(Enum):
    """Yielded by a step between two pieces of work, where a snapshot may be taken."""

    HERE = "HERE"


Steps = Iterator["Awaitable[object] | Pause | None"]
"""Work in pieces; see ``Operator``."""


class Output(Protocol):
    """Destination of an operator's results: the next operators of the chain, or channels."""

    def emit(self, batch: Batch) -> None:
        """Emits a batch, which must not be changed afterwards."""
        ...

    def emit_side(self, tag: str, batch: Batch) -> None:
        """Emits a batch to the side output of that name."""
        ...

    def emit_watermark(self, watermark: Watermark | WatermarkStatus) -> None:
        """Emits a watermark, in milliseconds."""
        ...

    @property
    def has_room(self) -> bool:
        """False while output piles up; an operator's iterator then pauses."""
        ...

    @property
    def rows_max(self) -> int:
        """Rows to emit at once: few if the next step is slow, or a row takes long."""
        ...

    @property
    def piece_rows(self) -> int:
        """Rows that a source should emit at once, also Arrow rows; more would take too long."""
        ...


class TimerQueue(Protocol):
    """Timers of the current key in one time domain; one for each time and namespace."""

    @property
    def next_ms(self) -> int | None:
        """No timer is due before this time; None if there are no timers."""
        ...

    def register(self, ms: int, namespace: object = None) -> None:
        """Sets a timer. Raises UserError without a current key, or for an invalid time."""
        ...

    def delete(self, ms: int, namespace: object = None) -> None:
        """Deletes a timer; without effect if there is none."""
        ...

    def due(self, until_ms: int) -> Iterator[tuple[int, object]]:
        """Removes and returns the timers up to a time, ordered by time and namespace.

        With each the current key becomes the timer's. Drawn one by one: what is set or deleted
        meanwhile counts.
        """
        ...


class Timers(Protocol):
    """Timers of an operator; part of its keyed state.

    For ``processing`` ones it is woken (``on_ready``), and has to draw ``due`` then, whether or not
    anything is due: that asks for the next call.
    """

    @property
    def event(self) -> TimerQueue: ...

    @property
    def processing(self) -> TimerQueue:
        """Timers of processing time, which is ``OperatorClock.processing_time``."""
        ...


class Threads(Protocol):
    """Threads of one operator, for calls that may never return; nothing waits for them at exit."""

    def run(self, call: Callable[[], object]) -> asyncio.Future[object]:
        """Runs a call on a thread. A future that is cancelled before its call starts skips it.

        The future may be cancelled, or forgotten, while its call goes on.
        """
        ...

    def close(self) -> None:
        """Starts no more calls; threads end as their calls return."""
        ...


class OperatorStates(Protocol):
    """State of one operator in one subtask; keyed state is that of the key in the cell."""

    cell: KeyCell
    """Cell that keyed state reads its key from."""

    pair_cell: KeyCell
    """Cell that state with a namespace reads from: its key is ``(key, namespace)``."""

    def keyed_state(
        self, descriptor: StateDescriptor, namespace: TypeInformation | None = None
    ) -> State:
        """Keyed state of that name, new or restored. Raises SerializerIncompatible.

        namespace: its type, for state that stands on ``pair_cell``.
        """
        ...

    def scan(self, state: str) -> Iterator[tuple[int, object, object]]:
        """Key group, key and entry of all that a keyed state holds here; no writes meanwhile.

        The key of a state with a namespace is ``(key, namespace)``. The state was asked for before.
        """
        ...

    def timers(
        self, name: str, namespace: TypeInformation | None, alarm: Callable[[int], None]
    ) -> Timers:
        """Timers of that name, new or restored.

        namespace: type of what they have beside key and time. alarm: told when the next one of
        processing time is due.
        """
        ...

    def keyed_columns(self, key_type: TypeInformation | None) -> KeyedColumns:
        """Dense index of this operator's keys, for columnar state."""
        ...

    def column_state(self, descriptor: ColumnStateDescriptor) -> ColumnState:
        """Columnar keyed state of that name."""
        ...

    def keyed_panes(self, key_type: TypeInformation | None) -> KeyedPanes:
        """Columnar keyed state by number; an operator has these or ``keyed_columns``."""
        ...

    def operator_state(self, descriptor: OperatorStateDescriptor) -> OperatorListState[Any]:
        """List state of the operator, split or union, by name."""
        ...

    def broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """Broadcast state of the operator, by name."""
        ...


@frozen
class SubtaskInfo:
    """Facts about one subtask of an operator, which never change while it runs.

    name: of the operator, for messages. task: name of its vertex; numbered_task: with the subtask,
    as in ``name (2/4)``. attempt: number of earlier deployments. restored: checkpoint that the
    state comes from; None on a fresh start. checkpointing: True if checkpoints are taken
    periodically, so that a final one follows ``finish``.
    """

    operator: OperatorId
    name: str
    keyed: bool
    job: JobId
    task: str
    numbered_task: str
    subtask: int
    parallelism: int
    max_parallelism: int
    epoch: int
    attempt: int
    restored: CheckpointId | None
    checkpointing: bool
    settings: SlotSettings
    parameters: Mapping[str, str]

    @property
    def attempt_name(self) -> str:
        """``<8 digits for the operator>-<epoch>-<attempt>-<subtask>``, unique within the job.

        The digits are hexadecimal, the rest decimal; it may be part of a file's name.
        """
        return f"{self.operator.hex()[:8]}-{self.epoch}-{self.attempt}-{self.subtask}"


class OperatorClock:
    """Time as an operator sees it, and its alarms.

    processing_time: wall clock, milliseconds since 1970. monotonic_ms: milliseconds that never go
    back.
    """

    def __init__(self, clock: Clock, wake_at: Callable[[int], None]) -> None:
        self.processing_time = clock.wall_ms
        self.monotonic_ms = clock.monotonic_ms
        self._wake_at = wake_at
        self._alarm_ms = -1

    def wake_at(self, monotonic_ms: int) -> None:
        """Asks for ``on_ready`` at a time of ``monotonic_ms``."""
        self._wake_at(monotonic_ms)

    def wake_at_wall(self, wall_ms: int) -> None:
        """Asks for ``on_ready`` at about a time of ``processing_time``.

        There is one such alarm for each operator, the earliest that was asked for. An operator that
        is woken and finds nothing due, or has more to wait for, asks again.
        """
        now_ms = self.monotonic_ms()
        at_ms = now_ms + max(0, wall_ms - self.processing_time())
        under_way = self._alarm_ms > now_ms + 1
        if not under_way or at_ms < self._alarm_ms:
            self._alarm_ms = at_ms
            self._wake_at(at_ms)


class OperatorTasks(Protocol):
    """Work of an operator beside its batches, and its reports.

    metrics: of this operator. remarks: warnings that the driver logs, once a job.
    """

    metrics: MetricGroup
    remarks: list[Remark]

    def run_blocking(
        self, call: Callable[[], object], *, on: Threads | None = None
    ) -> Awaitable[object]:
        """Runs a blocking call on the slot's pool, or on threads of the operator's own.

        Either way the operator is closed only once the call has returned.
        """
        ...

    def threads(self, limit: int) -> Threads:
        """A pool of at most this many threads for this operator alone, which must close it."""
        ...

    def named(self, call: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Calls a function; tasks that it makes log in the name of this operator."""
        ...

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        """Runs a coroutine on the slot's loop; its failure is the subtask's.

        A subtask does not end before what it started has ended; on cancel it is cancelled.
        """
        ...

    def wake(self) -> None:
        """Asks for ``on_ready`` (of a source: ``poll``) soon; may be called from coroutines."""
        ...

    def poll_soon(self) -> None:
        """Asks for ``poll`` of a source soon; operators behind it have nothing to be told."""
        ...

    def takes_input(self) -> bool:
        """True if the subtask reads its input; False while an operator holds it back."""
        ...

    def skipped(self, rows: int) -> None:
        """Counts input rows that were skipped."""
        ...

    def to_coordinator(self, event: OperatorEvent) -> None:
        """Sends an event to the operator's coordinator."""
        ...


@frozen
class OperatorContext:
    """Everything that an open operator sees of the place where it runs."""

    info: SubtaskInfo
    state: OperatorStates
    time: OperatorClock
    tasks: OperatorTasks


@frozen
class SnapshotContext:
    """Facts about the checkpoint under way. triggered_ms: wall clock."""

    checkpoint: CheckpointId
    triggered_ms: int


class Operator:
    """Base of all operators; a method that is not overridden does nothing.

    ``process``, ``on_watermark``, ``on_ready`` and ``finish`` may return an iterator when they may
    emit without bound or have to wait: the slot advances it while the output has room. It yields
    None to ask for room, an awaitable to be advanced again once that is done (a failure of it is
    the subtask's), ``Pause.HERE`` where its state and what it has emitted agree, so that a snapshot
    may be taken there. No batch or watermark reaches the operator before its iterator is exhausted,
    nor a barrier but for such a pause; events and notifications of checkpoints do.
    """

    key_type: TypeInformation | None = None
    """Declared type of the keys of a keyed operator; None if they say it themselves."""

    result_type: TypeInformation | None = None
    """Declared type of the results, to which the output brings them; None for any."""

    keeps_type: bool = False
    """Whether the results are of that type already, since they are values of the input."""

    writes: bool = False
    """Whether its input leaves the job, as that of a sink does."""

    side_types: Mapping[str, TypeInformation] = MappingProxyType({})
    """Declared types of side outputs, by tag."""

    takes_input: bool = True
    """Whether the subtask is to read, or poll, more. False holds the input back as long as it
    takes, unlike an iterator without holding up snapshots; what other operators of the chain are
    emitting comes all the same. It is set in a call of the slot's, such as ``on_ready``."""

    piece_s: float = TURN_S
    """How long a batch is to take that the operator is given, seconds; it is given fewer rows where
    these take longer. Functions of whole batches get more time, so that they are called less."""

    counts_on_clock: bool = False
    """Whether its results depend on the wall clock, so that there are none of bounded input."""

    asks_later: bool = False
    """Whether it asks for keyed state while it works, and not only in ``open``."""

    @property
    def drained(self) -> bool:
        """False if the end of the input must wait before ``finish`` is called.

        Snapshots are taken meanwhile, and ``wake`` brings the next look at it.
        """
        return True

    @property
    def by_row(self) -> Mapping[str, str]:
        """Functions that may be evaluated over columns, by what they are given to, such as ``map``.

        With each stands why it is called for each row; empty if it is not.
        """
        return MappingProxyType({})

    @property
    def delivery(self) -> Delivery | None:
        """Promise of a sink; None of other operators."""
        return None

    @property
    def by_window(self) -> Mapping[str, str]:
        """Functions that may be evaluated for all keys of a window at once, as in ``by_row``.

        With each stands why it is called for each window of a key; empty if it is not.
        """
        return MappingProxyType({})

    @property
    def reads_columns(self) -> bool:
        """True if rows that come as columns are evaluated as columns."""
        return "" in self.by_row.values()

    @property
    def takes_any_order(self) -> bool:
        """True if it gives the same in whatever order of event times the rows of a batch come."""
        return False

    def combiner(self) -> Combiner | None:
        """Makes the combiner of rows that are sent to the operator; None if each row has to come.

        Asked for in a batch only, of an operator whose rows come over keyed edges.
        """
        return None

    def check(self) -> None:
        """Called when the job is submitted, before anything is started; may block.

        Raises a UserError for what cannot work, such as a path that does not exist.
        """

    def open(self, context: OperatorContext) -> None:
        """Called once after state is restored, from the tail of the chain to its head."""

    def declare(self, context: OperatorContext) -> None:
        """Asks for the states that ``open`` asks for, without its other effects.

        A dry run calls it in the place of ``open``, so that no source is opened and nothing is
        committed. Functions of users are opened.
        """
        self.open(context)

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        """Processes a batch. port: number of the input, from 0."""
        raise NotImplementedError

    def on_watermark(self, watermark: Watermark, out: Output) -> Steps | None:
        """Event time has advanced (minimum over the inputs). Default: pass it on."""
        out.emit_watermark(watermark)

    def on_watermark_status(self, status: WatermarkStatus, out: Output) -> None:
        """All inputs are idle, or one is active again. Default: pass it on."""
        out.emit_watermark(status)

    def on_ready(self, out: Output) -> Steps | None:
        """Called between two batches when something started, or asked for by ``wake``, is ready."""

    def on_event(self, event: OperatorEvent) -> None:
        """Receives an event from the operator's coordinator."""

    def finish(self, out: Output) -> Steps | None:
        """Emits the rest, since no more input comes. The final checkpoint follows."""

    def before_barrier(self, checkpoint: CheckpointId, out: Output) -> None:
        """Emits what belongs before the barrier."""

    def snapshot(self, context: SnapshotContext) -> Awaitable[None] | None:
        """Brings operator state up to date. The slot takes keyed state by itself.

        If the checkpoint needs something that is not durable yet, such as files being closed on the
        pool, an awaitable for it is returned: it must not change state, and the acknowledgement
        waits for it.
        """

    def on_complete(self, checkpoint: CheckpointId) -> None:
        """The checkpoint is durable."""

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was aborted."""

    def on_subsumed(self, checkpoint: CheckpointId) -> None:
        """A newer checkpoint replaced this one, which was deleted."""

    def close(self) -> Awaitable[None] | None:
        """Called once at the end, also after a failure or a cancel.

        No call that went through ``run_blocking`` is under way any more. Longer work is returned as
        an awaitable, which the slot awaits for a bounded time.
        """


class Polled(Enum):
    """Result of polling a source."""

    MORE = "MORE"
    NOTHING = "NOTHING"
    END = "END"


class SourceOperator(Operator):
    """An operator without inputs: it is polled."""

    @property
    def bounded(self) -> bool:
        return True

    def poll(self, out: Output) -> Polled:
        """Emits at most one batch. NOTHING: call again after ``OperatorTasks.wake``."""
        raise NotImplementedError


@frozen
class KeyBy:
    """Way in which the rows of an edge get their key.

    Exactly one of selector (for rows: a plain function) and column (for Arrow batches; for rows
    that are mappings, its value under that name).
    """

    selector: Callable[[object], object] | None = None
    column: str | None = None
    key_type: TypeInformation | None = None


class Combiner(Protocol):
    """Joins rows of one key before they go over a keyed edge.

    A plain picklable value until it is opened, where rows are sent.
    """

    def open(self, panes: Callable[[TypeInformation | None], KeyedPanes]) -> None:
        """Called before any rows come. panes: makes empty state for keys of a type."""
        ...

    def add(self, batch: Batch) -> Sequence[Batch]:
        """Takes rows in; gives what is to be sent now."""
        ...

    def flush(self) -> Sequence[Batch]:
        """All that is held; nothing is held afterwards."""
        ...


@frozen
class OutputPlan:
    """The code of an edge. edge: index into ``Topology.edges``.

    partition: custom partitioner ``(key, number of targets) -> target``; for CUSTOM edges only.
    read_as_columns: the operator behind the edge evaluates columns of rows. combiner: joins rows
    before they are sent; None where each is sent.
    """

    edge: int
    key: KeyBy | None = None
    partition: Callable[[object, int], int] | None = None
    read_as_columns: bool = False
    combiner: Combiner | None = None


@frozen
class VertexPlan:
    """The code of a vertex; shipped as one pickle.

    operators: as in ``model.topology.Vertex.operators``. side_tags: per operator the tag by which
    it reads its upstream operator's side output; None for the main output.
    """

    operators: tuple[Operator, ...]
    outputs: tuple[OutputPlan, ...] = ()
    side_tags: tuple[str | None, ...] = ()
