"""Results back to the program: a sink whose coordinator fills a buffer in the driver.

With checkpoints each record arrives exactly once: rows are kept in the writer's state until the
checkpoint that holds them is complete, then sent; the driver's buffer knows by origin and number
what came before a failure. Without checkpoints they are sent at once. The driver confirms a chunk
once its buffer has room; a writer that has too much unconfirmed takes no more input.
"""

from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING, Final, cast

from flinkformat.frozen import frozen
from tidegate.api import ship
from tidegate.api.sink import Prepared
from tidegate.model.elements import ArrowBatch, OperatorEvent
from tidegate.model.topology import Delivery, DeliveryGuarantee

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    import pyarrow as pa

    from tidegate.api.coordinator import CoordinatorContext
    from tidegate.api.results import ResultBuffer
    from tidegate.api.sink import WriterContext
    from tidegate.model.elements import Batch
    from tidegate.model.ids import CheckpointId

_CHUNK_ROWS: Final = 4_096
_UNCONFIRMED_ROWS_MAX: Final = 32_768
_LOOK_AGAIN_MS: Final = 20


@frozen
class ResultChunk:
    """Records in transit. origin, number: their maker, and the number among its chunks, from 1.

    rows: how many. data: a list of rows, or an Arrow batch, as bytes.
    """

    origin: str
    number: int
    rows: int
    data: bytes


@frozen
class ChunkTaken:
    """The driver has taken a chunk, and accepts more."""

    origin: str
    number: int


class CollectSink:
    """Gives its records to ``JobClient.collected(name)``."""

    delivery = Delivery(DeliveryGuarantee.EXACTLY_ONCE, ("this program lives",))
    waits_for_checkpoints: Final = True

    def __init__(self, name: str) -> None:
        self._name = name

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> CollectWriter:
        return CollectWriter(context, restored)

    def committer(self) -> None:
        return

    def coordinator(self, context: CoordinatorContext) -> CollectCoordinator:
        return CollectCoordinator(context, context.results(self._name))


class CollectWriter:
    """Keeps rows until they may be sent, and sent ones until they are confirmed."""

    def __init__(self, context: WriterContext, restored: Sequence[bytes]) -> None:
        self._context = context
        self._at_once = not (context.checkpointing and context.answers)
        self._rows: list[object] = []
        self._held: list[ResultChunk] = []
        self._cuts: dict[CheckpointId, int] = {}
        self._sent: dict[tuple[str, int], ResultChunk] = {}
        self._unconfirmed_rows = 0
        self._made = 0
        self._room: asyncio.Future[None] | None = None
        for data in restored:
            self._send(cast("ResultChunk", pickle.loads(data)))

    def write(self, batch: Batch) -> Awaitable[object] | None:
        if isinstance(batch, ArrowBatch):
            self._pack()
            if batch.batch.num_rows:
                self._hold(batch.batch)
        else:
            self._rows.extend(batch.values)
            if not self._context.checkpointing or len(self._rows) >= _CHUNK_ROWS:
                self._pack()
        if self._at_once:
            self._send_held(len(self._held))
        if self._unconfirmed_rows <= _UNCONFIRMED_ROWS_MAX:
            return None
        self._room = asyncio.get_running_loop().create_future()
        return self._room

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        self._pack()
        if self._at_once:
            self._send_held(len(self._held))
        return Prepared()

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[bytes]:
        self._cuts[checkpoint] = self._made
        chunks = [*self._sent.values(), *self._held]
        return [pickle.dumps(chunk, protocol=5) for chunk in chunks]

    def on_complete(self, checkpoint: CheckpointId) -> None:
        cuts = [cut for cut in self._cuts if cut <= checkpoint]
        last = max((self._cuts.pop(cut) for cut in cuts), default=0)
        self._send_held(sum(1 for chunk in self._held if chunk.number <= last))

    def on_event(self, event: OperatorEvent) -> None:
        taken = event.payload
        assert isinstance(taken, ChunkTaken), f"no event of a collect sink: {taken!r}"
        chunk = self._sent.pop((taken.origin, taken.number), None)
        if chunk is not None:
            self._unconfirmed_rows -= chunk.rows
        if self._room is not None and self._unconfirmed_rows <= _UNCONFIRMED_ROWS_MAX:
            if not self._room.done():
                self._room.set_result(None)
            self._room = None

    def close(self) -> None: ...

    def _pack(self) -> None:
        if self._rows:
            self._hold(self._rows)
            self._rows = []

    def _hold(self, rows: list[object] | pa.RecordBatch) -> None:
        self._made += 1
        data = ship.dumps(rows, name=self._context.operator)
        self._held.append(ResultChunk(self._context.attempt_name, self._made, len(rows), data))

    def _send_held(self, count: int) -> None:
        for chunk in self._held[:count]:
            self._send(chunk)
        del self._held[:count]

    def _send(self, chunk: ResultChunk) -> None:
        if self._context.answers:
            self._sent[chunk.origin, chunk.number] = chunk
            self._unconfirmed_rows += chunk.rows
        self._context.to_coordinator(OperatorEvent(chunk))


class CollectCoordinator:
    """Puts chunks into the driver's buffer, and confirms them while it has room."""

    def __init__(self, context: CoordinatorContext, results: ResultBuffer) -> None:
        self._context = context
        self._results = results
        self._unconfirmed: list[tuple[int, ResultChunk]] = []

    def start(self, checkpoint: CheckpointId | None, data: bytes | None) -> None: ...

    def subtask_ready(self, subtask: int) -> None: ...

    def subtask_reset(self, subtask: int, checkpoint: CheckpointId | None) -> None:
        # The new attempt sends again what was not confirmed.
        self._unconfirmed = [one for one in self._unconfirmed if one[0] != subtask]

    def on_event(self, subtask: int, event: OperatorEvent) -> None:
        chunk = event.payload
        assert isinstance(chunk, ResultChunk), f"no event of a collect sink: {chunk!r}"
        rows = cast("list[object] | pa.RecordBatch", ship.loads(chunk.data, name="collect"))
        self._results.put(chunk.origin, chunk.number, rows)
        waiting = bool(self._unconfirmed)
        self._unconfirmed.append((subtask, chunk))
        if not waiting:
            self._confirm()

    def snapshot(self, checkpoint: CheckpointId) -> bytes:
        return b""  # the writers keep what is not confirmed

    def on_complete(self, checkpoint: CheckpointId) -> None: ...

    def on_aborted(self, checkpoint: CheckpointId) -> None: ...

    def close(self) -> None: ...

    def _confirm(self) -> None:
        if self._results.has_room:
            for subtask, chunk in self._unconfirmed:
                taken = ChunkTaken(chunk.origin, chunk.number)
                self._context.send(subtask, OperatorEvent(taken, confirms=True))
            self._unconfirmed = []
        else:
            self._context.call_later(_LOOK_AGAIN_MS, self._confirm)
