"""What an operator is to the slot that hosts it, and what the slot is to the operator.

An operator is a plain picklable value until it is opened: the driver builds it and ships it, the
slot opens it. It is called on the slot's loop only, with whole batches, and never waits: what must
wait goes through ``run_blocking`` or ``start``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from tidegate.api.pieces import TURN_S

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Coroutine

    from tidegate.api.functions import RuntimeContext
    from tidegate.api.state import (
        BroadcastState,
        ColumnState,
        ColumnStateDescriptor,
        KeyedColumns,
        KeyedPanes,
        MapStateDescriptor,
        OperatorListState,
        OperatorStateDescriptor,
        State,
        StateDescriptor,
    )
    from tidegate.metrics import MetricGroup
    from tidegate.model.elements import Batch, OperatorEvent, Watermark, WatermarkStatus
    from tidegate.model.ids import CheckpointId, JobId, OperatorId
    from tidegate.model.settings import SlotSettings
    from tidegate.typeinfo.types import TypeInformation


class Pause(Enum):
    """What steps yield between two pieces of work, where a snapshot may come in between."""

    HERE = "HERE"


Steps = Iterator["Awaitable[object] | Pause | None"]
"""Work in pieces; see ``Operator``."""


class Output(Protocol):
    """Where an operator's results go: the next operators of the chain, or the channels."""

    def emit(self, batch: Batch) -> None:
        """Pass a batch on. It must not be changed afterwards."""
        ...

    def emit_side(self, tag: str, batch: Batch) -> None:
        """Pass a batch on to the side output of that name."""
        ...

    def emit_watermark(self, watermark: Watermark | WatermarkStatus) -> None:
        """Pass on how far event time has come."""
        ...

    @property
    def has_room(self) -> bool:
        """False where more output would pile up; an operator's iterator then pauses."""
        ...

    @property
    def rows_max(self) -> int:
        """Rows to emit at once: few in front of a slow step, or where a row takes long."""
        ...

    @property
    def piece_rows(self) -> int:
        """Rows that a source is to emit at once, of Arrow columns too: more would take too long."""
        ...


class TimerQueue(Protocol):
    """Timers of the current key in one time domain; one each for a time and namespace."""

    @property
    def next_ms(self) -> int | None:
        """A time before which none is due; None without any."""
        ...

    def register(self, ms: int, namespace: object = None) -> None:
        """Set a timer. Raises UserError where there is no current key, or for what is no time."""
        ...

    def delete(self, ms: int, namespace: object = None) -> None:
        """Take a timer back; without effect where there is none."""
        ...

    def due(self, until_ms: int) -> Iterator[tuple[int, object]]:
        """Take out the timers up to a time, in order: time and namespace.

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
    def event(self) -> TimerQueue:
        """Those of event time."""
        ...

    @property
    def processing(self) -> TimerQueue:
        """Those of processing time, which is ``OperatorContext.processing_time``."""
        ...


class KeyCell:
    """The key that keyed state stands on: set by the operator before each row, read by the state.

    One a keyed operator. Plain attributes, since they are set for every row.
    """

    __slots__ = ("group", "key")

    def __init__(self) -> None:
        self.key: object = None
        self.group: int = -1


class Threads(Protocol):
    """Threads of one operator, for calls that may never return; nothing waits for them at exit."""

    def run(self, call: Callable[[], object]) -> asyncio.Future[object]:
        """Run a call on one of them. A future that is cancelled before its call has begun skips it.

        The future may be cancelled, or forgotten, while its call goes on.
        """
        ...

    def close(self) -> None:
        """No call begins any more; threads end as their calls return."""
        ...


@dataclass(frozen=True, slots=True)
class SnapshotContext:
    """What a function may know of the checkpoint being taken. triggered_ms: wall clock."""

    checkpoint: CheckpointId
    triggered_ms: int


class OperatorContext(Protocol):
    """What the slot offers an open operator."""

    @property
    def operator(self) -> OperatorId:
        """Id of the operator."""
        ...

    @property
    def name(self) -> str:
        """Name of the operator, for messages."""
        ...

    @property
    def subtask(self) -> int:
        """Index of the subtask."""
        ...

    @property
    def parallelism(self) -> int:
        """Number of subtasks."""
        ...

    @property
    def max_parallelism(self) -> int:
        """Number of key groups."""
        ...

    @property
    def restored_checkpoint(self) -> CheckpointId | None:
        """The checkpoint that the state comes from; None on a fresh start."""
        ...

    @property
    def current_key(self) -> KeyCell:
        """The cell that keyed state reads its key from."""
        ...

    @property
    def current_pair(self) -> KeyCell:
        """The cell that state with a namespace reads from: its key is ``(key, namespace)``."""
        ...

    @property
    def runtime(self) -> RuntimeContext:
        """The view of this context that user functions get."""
        ...

    @property
    def metrics(self) -> MetricGroup:
        """Metrics of this operator."""
        ...

    @property
    def settings(self) -> SlotSettings:
        """Batch sizes, ``object_reuse`` (emitted values may be shared) and others."""
        ...

    @property
    def job(self) -> JobId:
        """Id of the job."""
        ...

    @property
    def attempt_name(self) -> str:
        """``<8 digits for the operator>-<epoch>-<attempt>-<subtask>``, unlike any other of the job.

        The digits are hexadecimal, the rest decimal; it may be part of a file's name.
        """
        ...

    @property
    def checkpointing(self) -> bool:
        """Whether checkpoints are taken by time, so that a final one follows ``finish``."""
        ...

    def keyed_state(
        self, descriptor: StateDescriptor, namespace: TypeInformation | None = None
    ) -> State:
        """The keyed state of that name; made or restored. Raises SerializerIncompatible.

        namespace: its type, for state that stands on ``current_pair``.
        """
        ...

    def entries(self, state: str) -> Iterator[tuple[int, object, object]]:
        """Key group, key and entry of all that a keyed state holds here; no write meanwhile.

        The key of a state with a namespace is ``(key, namespace)``. The state was asked for before.
        """
        ...

    def timers(self, name: str, namespace: TypeInformation | None = None) -> Timers:
        """The timers of that name; made or restored. namespace: type of what they have beside."""
        ...

    def keyed_columns(self, key_type: TypeInformation | None) -> KeyedColumns:
        """The dense index of this operator's keys, for columnar state."""
        ...

    def column_state(self, descriptor: ColumnStateDescriptor) -> ColumnState:
        """The columnar keyed state of that name."""
        ...

    def keyed_panes(self, key_type: TypeInformation | None) -> KeyedPanes:
        """Columnar keyed state by number; an operator has these or ``keyed_columns``."""
        ...

    def operator_state(self, descriptor: OperatorStateDescriptor) -> OperatorListState[Any]:
        """The operator's list state of that name (split or union)."""
        ...

    def broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """The operator's broadcast state of that name."""
        ...

    def processing_time(self) -> int:
        """Wall clock, milliseconds since 1970."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back."""
        ...

    def wake_at(self, monotonic_ms: int) -> None:
        """As ``wake``, at that time of ``monotonic_ms``."""
        ...

    def wake_at_wall(self, wall_ms: int) -> None:
        """As ``wake``, about when ``processing_time`` is that.

        There is one such alarm an operator, the earliest that was asked for: who is woken and finds
        nothing due, or has more to wait for, asks again.
        """
        ...

    def takes_input(self) -> bool:
        """Whether the subtask reads its input; False where an operator holds it back."""
        ...

    def skipped(self, rows: int) -> None:
        """Count input rows that were passed over."""
        ...

    def remark(self, warning: str, about: str) -> None:
        """Have the driver warn of something, once a job. warning: its name."""
        ...

    def run_blocking(self, call: Callable[[], object]) -> Awaitable[object]:
        """Run a call that blocks on the slot's pool."""
        ...

    def threads(self, limit: int) -> Threads:
        """At most so many threads for this operator alone, which closes them."""
        ...

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        """Run a coroutine on the slot's loop; its failure is the subtask's.

        A subtask does not end before what it started has ended; on cancel it is cancelled.
        """
        ...

    def wake(self) -> None:
        """Ask for ``on_ready`` (a source: ``poll``) soon; callable from coroutines on the loop."""
        ...

    def to_coordinator(self, event: OperatorEvent) -> None:
        """Send an event to the operator's coordinator."""
        ...


class Operator:
    """Base of all operators: what is not overridden does nothing.

    ``process``, ``on_watermark``, ``on_ready`` and ``finish`` may return an iterator when they may
    emit without bound or have to wait: the slot advances it while the output has room. It yields
    None to ask for room, an awaitable to be advanced again once that is done (a failure of it is
    the subtask's), ``Pause.HERE`` where its state and what it has emitted agree, so that a snapshot
    may be taken there. No batch or watermark reaches the operator before its iterator is exhausted,
    nor a barrier but for such a pause; events and notifications of checkpoints do.
    """

    key_type: TypeInformation | None = None
    """Declared type of the keys of a keyed operator; None where they say it themselves."""

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

    asks_later: bool = False
    """Whether it asks for keyed state while it works, and not only in ``open``."""

    @property
    def drained(self) -> bool:
        """False where the end of the input is to wait before ``finish`` is called.

        Snapshots are taken meanwhile, and ``wake`` brings the next look at it.
        """
        return True

    def check(self) -> None:
        """Called where the job is submitted, before anything is started; may block.

        Raises a UserError for what cannot work, such as a path that does not exist.
        """

    def open(self, context: OperatorContext) -> None:
        """Called once, after state is restored, from the tail of the chain to its head."""

    def declare(self, context: OperatorContext) -> None:
        """Ask for the states that ``open`` asks for, and nothing else where it does more.

        A dry run calls it in the place of ``open``, so that no source is opened and nothing is
        committed. Functions of users are opened.
        """
        self.open(context)

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        """A batch has come on an input; port counts the inputs from 0."""
        raise NotImplementedError

    def on_watermark(self, watermark: Watermark, out: Output) -> Steps | None:
        """Event time has advanced (the minimum over the inputs). Default: pass it on."""
        out.emit_watermark(watermark)

    def on_watermark_status(self, status: WatermarkStatus, out: Output) -> None:
        """All inputs have become idle, or one is active again. Default: pass it on."""
        out.emit_watermark(status)

    def on_ready(self, out: Output) -> Steps | None:
        """What was started or asked for by ``wake`` is ready; comes between two batches."""

    def on_event(self, event: OperatorEvent) -> None:
        """An event from the operator's coordinator."""

    def finish(self, out: Output) -> Steps | None:
        """No more input: emit what is left. The final checkpoint comes after this."""

    def before_barrier(self, checkpoint: CheckpointId, out: Output) -> None:
        """Emit what belongs before the barrier."""

    def snapshot(self, context: SnapshotContext) -> Awaitable[None] | None:
        """Put into operator state what is not there yet. Keyed state is taken by the slot.

        What this checkpoint needs and is not durable yet (files being closed on the pool) is
        returned as an awaitable: it must have changed no state, and the acknowledgement waits for
        it.
        """

    def on_complete(self, checkpoint: CheckpointId) -> None:
        """The checkpoint is durable."""

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was given up."""

    def on_subsumed(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was made needless by a newer one and deleted."""

    def close(self) -> Awaitable[None] | None:
        """Called once at the end, also after a failure or a cancel.

        No call that went through ``run_blocking`` is under way any more. What takes longer is
        returned as an awaitable, which the slot awaits for a bounded time.
        """


class Polled(Enum):
    """What a source found."""

    MORE = "MORE"
    NOTHING = "NOTHING"
    END = "END"


class SourceOperator(Operator):
    """An operator without inputs: it is polled."""

    @property
    def bounded(self) -> bool:
        """Whether it comes to an end by itself."""
        return True

    def poll(self, out: Output) -> Polled:
        """Emit at most one batch. NOTHING: call again after ``OperatorContext.wake``."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class KeyBy:
    """How the rows of an edge get their key.

    Exactly one of selector (for rows: a plain function) and column (for Arrow batches; for rows
    that are mappings, its value under that name).
    """

    selector: Callable[[object], object] | None = None
    column: str | None = None
    key_type: TypeInformation | None = None


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """The code of an edge. edge: index into ``Topology.edges``.

    partition: custom partitioner ``(key, number of targets) -> target``; for CUSTOM edges only.
    """

    edge: int
    key: KeyBy | None = None
    partition: Callable[[object, int], int] | None = None


@dataclass(frozen=True, slots=True)
class VertexPlan:
    """The code of a vertex; shipped as one pickle.

    operators: as in ``model.topology.Vertex.operators``. side_tags: per operator the tag by which
    it reads its upstream operator's side output; None for the main output.
    """

    operators: tuple[Operator, ...]
    outputs: tuple[OutputPlan, ...] = ()
    side_tags: tuple[str | None, ...] = ()
