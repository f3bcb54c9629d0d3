"""In-flight data of a slot's subtasks: encoded on the loop, written off it, a file for several.

Data are encoded when they are added: rows are processed, and may be changed, right after. A
subtask without unaligned checkpoints has the writer that does nothing.

Source: checkpoint coordination §15.2, §15.4.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, cast

import numpy as np

from tidegate.checkpoint.channel_state import machine as protocol
from tidegate.checkpoint.channel_state.machine import (
    Abort,
    Add,
    ChannelInfo,
    ChannelStateWriteRequestDispatcher,
    Complete,
    Discard,
    Fail,
    Finish,
    InputChannelInfo,
    Leave,
    NotStored,
    Request,
    ResultSubpartitionInfo,
    Side,
    Start,
    Store,
    Stored,
)
from tidegate.errors import StorageFailed
from tidegate.model.elements import ArrowBatch, Barrier, CheckpointOptions, RowBatch
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import CheckpointId
from tidegate.slot.channels.output import take
from tidegate.storage.places import CheckpointPlace
from tidegate.transport import codec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence

    from flinkformat.handles import InputStateHandle, OutputStateHandle, StreamStateHandle
    from flinkformat.key_groups import KeyGroupRange
    from tidegate.model.elements import Batch, Element
    from tidegate.model.files import FileChecksum
    from tidegate.model.ids import ChannelId, ExecutionId
    from tidegate.model.restore import InFlightData
    from tidegate.model.settings import CheckpointSettings
    from tidegate.storage.checkpoints import CheckpointStorageWorkerView

RESULTS_MAX: Final = 1_000
"""Checkpoints of one subtask whose results nobody has taken; Flink's bound."""


@dataclass(frozen=True, slots=True)
class ChannelStateFile:
    """A file of channel state that was written. checksums: of the file, by its place."""

    handle: StreamStateHandle
    checksums: Mapping[str, FileChecksum]


class ChannelStateWriteResult:
    """What becomes of one subtask's in-flight data of one checkpoint."""

    def __init__(self, barrier: Barrier) -> None:
        self.barrier = barrier
        self._ready = asyncio.Event()
        self._error: Exception | None = None
        self._delete: Callable[[], object] | None = None
        self.inputs: tuple[InputStateHandle, ...] = ()
        self.outputs: tuple[OutputStateHandle, ...] = ()
        self.checksums: Mapping[str, FileChecksum] = {}

    @property
    def is_done(self) -> bool:
        """Whether both sides are durable, or have failed."""
        return self._ready.is_set()

    @property
    def bytes_persisted(self) -> int:
        """Bytes of in-flight data, of both sides."""
        return sum(handle.state_size for handle in (*self.inputs, *self.outputs))

    def complete(
        self,
        inputs: tuple[InputStateHandle, ...],
        outputs: tuple[OutputStateHandle, ...],
        checksums: Mapping[str, FileChecksum],
        delete: Callable[[], object] | None = None,
    ) -> None:
        """Both sides are durable. delete: begins to delete their file; None where there is none."""
        if not self.is_done:
            self.inputs, self.outputs, self.checksums = inputs, outputs, checksums
            self._delete = delete
            self._ready.set()

    def fail(self, error: Exception) -> None:
        """They will not be; the first word counts."""
        if not self.is_done:
            self._error = error
            self._ready.set()

    def give_up(self) -> None:
        """Nobody will take them: their file is deleted, now or once it is written."""
        self.fail(StorageFailed(f"checkpoint {self.barrier.checkpoint} was given up"))
        delete, self._delete = self._delete, None
        if delete is not None:
            delete()

    async def ready(self) -> None:
        """Wait for both sides. Raises what they failed with."""
        await self._ready.wait()
        if self._error is not None:
            raise self._error


def _empty() -> ChannelStateWriteResult:
    result = ChannelStateWriteResult(Barrier(CheckpointId(0), 0, CheckpointOptions()))
    result.complete((), (), {})
    return result


EMPTY: Final = _empty()
"""The result of every checkpoint without in-flight data."""


class ChannelStateWriter:
    """Takes a subtask's in-flight data, checkpoint by checkpoint.

    This one keeps nothing: it is the writer of subtasks whose barriers overtake nothing.
    """

    def start(self, barrier: Barrier) -> None:
        """Begin with a checkpoint.

        Raises ValueError where it has begun, RuntimeError for too many results that nobody took.
        """

    def add_input_data(
        self,
        checkpoint: CheckpointId,
        info: InputChannelInfo,
        start_sequence: int,
        data: Iterable[Element],
    ) -> None:
        """Data that had come, in order. Raises ValueError for anything but batches."""

    def add_output_data(
        self,
        checkpoint: CheckpointId,
        info: ResultSubpartitionInfo,
        start_sequence: int,
        data: Iterable[Element],
    ) -> None:
        """Data that were to leave, in order. Raises ValueError for anything but batches."""

    def finish_input(self, checkpoint: CheckpointId) -> None:
        """No more input data come."""

    def finish_output(self, checkpoint: CheckpointId) -> None:
        """No more output data come."""

    def abort(self, checkpoint: CheckpointId, cause: str, *, clean_up: bool) -> None:
        """Give a checkpoint up. clean_up: nobody will ask for its result."""

    def get_and_remove_write_result(self, checkpoint: CheckpointId) -> ChannelStateWriteResult:
        """The result of a checkpoint that was started; once. Raises ValueError."""
        return EMPTY

    def close(self) -> None:
        """The subtask is over: what is outstanding fails."""


NO_CHANNEL_STATE: Final = ChannelStateWriter()
"""Keeps nothing, so one is enough."""


class ChannelStateFiles(Protocol):
    """Where the executor's files go, and how what it does runs beside the subtasks."""

    def soon(self, act: Callable[[], None]) -> None:
        """Call it when what is under way on the loop is done."""
        ...

    def run(self, work: Coroutine[None, None, None], /) -> object:
        """Run it to its end."""
        ...

    async def write(
        self, member: ExecutionId, barrier: Barrier, parts: Sequence[bytes]
    ) -> ChannelStateFile:
        """Write a checkpoint's file; nothing is left of one that fails. Raises StorageFailed."""
        ...

    async def delete(self, file: ChannelStateFile) -> None:
        """Delete a file of which nobody will hear."""
        ...


class ChannelStateWriteRequestExecutor:
    """The requests of the subtasks that share files, one after the other.

    A request that fails takes all with it that is outstanding.
    """

    def __init__(self, files: ChannelStateFiles) -> None:
        self._files = files
        self._dispatcher = ChannelStateWriteRequestDispatcher()
        self._requests: deque[Request] = deque()
        self._woken = False
        self._results: dict[tuple[ExecutionId, CheckpointId], ChannelStateWriteResult] = {}
        self._written: dict[CheckpointId, ChannelStateFile] = {}
        self._heard_of: CheckpointId | None = None  # somebody has got its file

    @property
    def members(self) -> int:
        """How many subtasks share."""
        return self._dispatcher.members

    def register(self, member: ExecutionId) -> None:
        """A subtask shares from its next start on."""
        self._dispatcher.register(member)

    def expect(
        self, member: ExecutionId, barrier: Barrier, result: ChannelStateWriteResult
    ) -> None:
        """Tell this result what becomes of the member's part."""
        self._results[member, barrier.checkpoint] = result

    def submit(self, request: Request) -> None:
        """Have a request dispatched behind those that wait."""
        self._requests.append(request)
        self._wake_up()

    def submit_priority(self, request: Request) -> None:
        """Have a request dispatched before those that wait."""
        self._requests.appendleft(request)
        self._wake_up()

    def _wake_up(self) -> None:
        if not self._woken:
            self._woken = True
            self._files.soon(self.drain)

    def drain(self) -> None:
        """Dispatch what waits."""
        self._woken = False
        while self._requests:
            request = self._requests.popleft()
            try:
                commands = self._dispatcher.dispatch(request)
            except ValueError as error:
                self._break(str(error))
                return
            for command in commands:
                self._perform(command)
            if isinstance(request, Stored) and self._heard_of != request.checkpoint:
                self._perform(Discard(request.checkpoint))

    def _break(self, cause: str) -> None:
        """What was asked for in vain fails, and all that waits; the next checkpoint starts anew."""
        self._requests.clear()
        self._dispatcher.fail(FailureReason.CHECKPOINT_ASYNC_EXCEPTION, cause)
        results, self._results = self._results, {}
        for result in results.values():
            result.fail(StorageFailed(f"channel state could not be kept: {cause}"))

    def _perform(self, command: protocol.Command) -> None:
        match command:
            case Store(checkpoint, member, parts):
                barrier = self._results[member, checkpoint].barrier
                self._files.run(self._store(member, barrier, parts))
            case Complete(member, checkpoint, inputs, outputs):
                result = self._results.pop((member, checkpoint), None)
                file = self._written.get(checkpoint)
                if result is not None and not result.is_done:
                    self._heard_of = checkpoint
                    if file is None:
                        result.complete(inputs, outputs, {})
                    else:
                        delete = partial(self._delete, file)
                        result.complete(inputs, outputs, file.checksums, delete)
            case Fail(member, checkpoint, reason, cause):
                result = self._results.pop((member, checkpoint), None)
                if result is not None:
                    result.fail(reason.aborted(cause))
            case Discard(checkpoint):
                self._delete(self._written[checkpoint])

    def _delete(self, file: ChannelStateFile) -> None:
        self._files.run(self._files.delete(file))

    async def _store(self, member: ExecutionId, barrier: Barrier, parts: Sequence[bytes]) -> None:
        checkpoint = barrier.checkpoint
        try:
            written = await self._files.write(member, barrier, parts)
        except Exception as error:
            self.submit(NotStored(checkpoint, str(error)))
            return
        self._written = {checkpoint: written}
        self.submit(Stored(checkpoint, written.handle))


class ChannelStateWriterImpl(ChannelStateWriter):
    """The writer of one subtask. shared: of the subtasks that share files with it."""

    def __init__(self, shared: ChannelStateWriteRequestExecutor, member: ExecutionId) -> None:
        self._member = member
        self._shared = shared
        self._task_name = f"subtask {member.subtask.index} of vertex {member.subtask.vertex.hex()}"
        self._results: dict[CheckpointId, ChannelStateWriteResult] = {}
        self._closed = False
        shared.register(member)

    def start(self, barrier: Barrier) -> None:
        """Begin with a checkpoint."""
        self._check_open()
        checkpoint = barrier.checkpoint
        if checkpoint in self._results:
            raise ValueError(f"{self._task_name} has started checkpoint {checkpoint} already")
        if len(self._results) >= RESULTS_MAX:
            raise RuntimeError(
                f"{self._task_name}: nobody has taken the results of {RESULTS_MAX} checkpoints"
            )
        result = self._results[checkpoint] = ChannelStateWriteResult(barrier)
        self._shared.expect(self._member, barrier, result)
        self._shared.submit(Start(self._member, checkpoint))

    def add_input_data(
        self,
        checkpoint: CheckpointId,
        info: InputChannelInfo,
        start_sequence: int,
        data: Iterable[Element],
    ) -> None:
        """Data that had come, in order."""
        self._add(checkpoint, info, data)

    def add_output_data(
        self,
        checkpoint: CheckpointId,
        info: ResultSubpartitionInfo,
        start_sequence: int,
        data: Iterable[Element],
    ) -> None:
        """Data that were to leave, in order."""
        self._add(checkpoint, info, data)

    def _add(self, checkpoint: CheckpointId, info: ChannelInfo, data: Iterable[Element]) -> None:
        self._check_open()
        for element in data:
            if not isinstance(element, RowBatch | ArrowBatch):
                raise ValueError(f"it should be a buffer but is a {type(element).__name__}")
            encoded = b"".join(codec.encode(element))
            self._shared.submit(Add(self._member, checkpoint, info, protocol.chunk(encoded)))

    def finish_input(self, checkpoint: CheckpointId) -> None:
        """No more input data come."""
        self._finish(checkpoint, Side.INPUT)

    def finish_output(self, checkpoint: CheckpointId) -> None:
        """No more output data come."""
        self._finish(checkpoint, Side.OUTPUT)

    def _finish(self, checkpoint: CheckpointId, side: Side) -> None:
        self._check_open()
        self._shared.submit(Finish(self._member, checkpoint, side))

    def abort(self, checkpoint: CheckpointId, cause: str, *, clean_up: bool) -> None:
        """Give a checkpoint up: what is under way first, then what was asked for before."""
        self._check_open()
        abort = Abort(self._member, checkpoint, cause)
        self._shared.submit_priority(abort)
        self._shared.submit(abort)
        if clean_up:
            self._results.pop(checkpoint, None)

    def get_and_remove_write_result(self, checkpoint: CheckpointId) -> ChannelStateWriteResult:
        """The result of a checkpoint that was started; once."""
        self._check_open()
        result = self._results.pop(checkpoint, None)
        if result is None:
            raise ValueError(f"{self._task_name} has no result of checkpoint {checkpoint}")
        return result

    def close(self) -> None:
        """The subtask is over: what is outstanding fails."""
        if self._closed:
            return
        self._closed = True
        for checkpoint, result in self._results.items():
            result.fail(StorageFailed(f"{self._task_name} ended in checkpoint {checkpoint}"))
        self._results.clear()
        self._shared.submit(Leave(self._member))

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"the channel state of {self._task_name} is closed")


class ChannelStateWriters:
    """Makes the writers of one slot's subtasks, of which several share their files.

    view: of the job's storage, once the slot is accepted. draw: 64 random bits a call. run: runs a
    coroutine to its end, whatever becomes of the subtasks.
    """

    def __init__(
        self,
        view: Callable[[], CheckpointStorageWorkerView | None],
        run_blocking: Callable[[Callable[[], object]], Awaitable[object]],
        draw: Callable[[], int],
        run: Callable[[Coroutine[None, None, None]], object],
    ) -> None:
        self._view = view
        self._run_blocking = run_blocking
        self._draw = draw
        self.run = run
        self._sharing: ChannelStateWriteRequestExecutor | None = None

    def writer(self, execution: ExecutionId, settings: CheckpointSettings) -> ChannelStateWriter:
        """The writer of one subtask."""
        if not settings.unaligned:
            return NO_CHANNEL_STATE
        sharing = self._sharing
        if sharing is None or sharing.members >= settings.subtasks_a_channel_state_file:
            sharing = self._sharing = ChannelStateWriteRequestExecutor(self)
        return ChannelStateWriterImpl(sharing, execution)

    def soon(self, act: Callable[[], None]) -> None:
        """Call it when what is under way on the loop is done."""
        asyncio.get_running_loop().call_soon(act)

    async def write(
        self, member: ExecutionId, barrier: Barrier, parts: Sequence[bytes]
    ) -> ChannelStateFile:
        """Write a checkpoint's file; nothing is left of one that fails."""
        view = self._view()
        assert view is not None, "a slot is accepted before it is given work"
        place = CheckpointPlace(view, barrier, member, self._draw)

        def write() -> StreamStateHandle:
            try:
                return place.write(parts)
            except Exception:
                place.discard()
                raise

        handle = cast("StreamStateHandle", await self._run_blocking(write))
        return ChannelStateFile(handle, place.checksums)

    async def delete(self, file: ChannelStateFile) -> None:
        """Delete a file of which nobody will hear; what cannot be is left to the sweep."""
        view = self._view()
        assert view is not None, "a slot is accepted before it is given work"
        with contextlib.suppress(StorageFailed):
            await self._run_blocking(lambda: view.storage.files.delete_files(file.checksums))


@dataclass
class SequentialChannelStateReader:
    """Reads in-flight data back, file by file and from front to back.

    read: the bytes of a handle; blocking.
    """

    read: Callable[[StreamStateHandle], bytes]
    _files: dict[StreamStateHandle, bytes] = field(
        default_factory=dict["StreamStateHandle", "bytes"]
    )

    def read_data(self, data: Sequence[InFlightData]) -> list[tuple[ChannelId, Batch]]:
        """The batches, each with the channel that it goes into; in their order."""
        found: list[tuple[ChannelId, Batch]] = []
        for piece in data:
            if piece.file not in self._files:
                self._files[piece.file] = self.read(piece.file)
            for buffer in protocol.read_chunks(self._files[piece.file], piece.offsets):
                batch = codec.decode(buffer)
                assert isinstance(batch, RowBatch | ArrowBatch), "only batches are written"
                kept = batch if piece.key_groups is None else within(batch, piece.key_groups)
                if len(kept):
                    found.append((piece.channel, kept))
        return found

    def close(self) -> None:
        """Forget the files."""
        self._files.clear()


def within(batch: Batch, key_groups: KeyGroupRange) -> Batch:
    """The rows of a keyed batch whose key groups lie in the range."""
    groups = np.asarray(batch.key_groups)
    chosen = np.flatnonzero((groups >= key_groups.first) & (groups <= key_groups.last))
    if isinstance(batch, RowBatch):
        return take(batch, chosen.tolist())
    times = batch.timestamps_ms
    return ArrowBatch(
        batch.batch.take(chosen),
        None if times is None else times[chosen],
        batch.key_column,
        groups[chosen],
    )
