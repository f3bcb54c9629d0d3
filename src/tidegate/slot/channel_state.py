"""In-flight data of a slot's subtasks: encoded on the loop, written off it, a file for several.

Data are encoded when they are added: rows are processed, and may be changed, right after. A
checkpoint whose barriers overtake nothing is not started here, and has the result `EMPTY`.

Source: checkpoint coordination §15.2, §15.4.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from flinkformat.frozen import frozen
from tidegate.api.rows.batches import arrow_take, take
from tidegate.checkpoint.channel_state.file_format import chunk, read_chunks
from tidegate.checkpoint.channel_state.group import (
    Abort,
    Add,
    ChannelStateGroup,
    Complete,
    Fail,
    Finish,
    Leave,
    NotStored,
    Side,
    Start,
    Store,
    Stored,
)
from tidegate.errors import StorageFailed
from tidegate.model.elements import ArrowBatch, Barrier, CheckpointOptions, RowBatch
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import CheckpointId
from tidegate.transport import codec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence

    from flinkformat.handles import InputStateHandle, OutputStateHandle, StreamStateHandle
    from flinkformat.key_groups import KeyGroupRange
    from tidegate.checkpoint.channel_state.file_format import ChannelInfo
    from tidegate.checkpoint.channel_state.group import ChannelStateEvent
    from tidegate.model.elements import Batch, Element
    from tidegate.model.files import FileChecksum
    from tidegate.model.ids import ChannelId, ExecutionId
    from tidegate.model.restore import InFlightData
    from tidegate.storage.checkpoints import CheckpointStorage

RESULTS_MAX: Final = 1_000
"""Checkpoints of one subtask whose results nobody has taken; Flink's bound."""


@frozen
class ChannelStateFile:
    """A file of channel state that was written. checksums: of the file, by its place."""

    handle: StreamStateHandle
    checksums: Mapping[str, FileChecksum]


class ChannelStateResult:
    """The handles of one subtask's in-flight data of one checkpoint, once they are durable."""

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
        """True if both sides are durable, or have failed."""
        return self._ready.is_set()

    @property
    def bytes_persisted(self) -> int:
        return sum(handle.state_size for handle in (*self.inputs, *self.outputs))

    def complete(
        self,
        inputs: tuple[InputStateHandle, ...],
        outputs: tuple[OutputStateHandle, ...],
        checksums: Mapping[str, FileChecksum],
        delete: Callable[[], object] | None = None,
    ) -> None:
        """Both sides are durable. delete: begins to delete their file; None if there is none."""
        if not self.is_done:
            self.inputs, self.outputs, self.checksums = inputs, outputs, checksums
            self._delete = delete
            self._ready.set()

    def fail(self, error: Exception) -> None:
        """The data will not become durable; of several errors the first counts."""
        if not self.is_done:
            self._error = error
            self._ready.set()

    def give_up(self) -> None:
        """Nobody will take the data: their file is deleted, now or once it is written."""
        self.fail(StorageFailed(f"checkpoint {self.barrier.checkpoint} was given up"))
        delete, self._delete = self._delete, None
        if delete is not None:
            delete()

    async def ready(self) -> None:
        """Wait for both sides. Raises what they failed with."""
        await self._ready.wait()
        if self._error is not None:
            raise self._error


def _empty() -> ChannelStateResult:
    result = ChannelStateResult(Barrier(CheckpointId(0), 0, CheckpointOptions()))
    result.complete((), (), {})
    return result


EMPTY: Final = _empty()
"""The result of every checkpoint without in-flight data."""


class ChannelStateWriter:
    """Takes one subtask's in-flight data, checkpoint by checkpoint.

    Raises ValueError for calls in a wrong order, and RuntimeError after `close`.
    """

    def __init__(self, files: SharedFiles, member: ExecutionId) -> None:
        self._member = member
        self._files = files
        self._task_name = f"subtask {member.subtask.index} of vertex {member.subtask.vertex.hex()}"
        self._results: dict[CheckpointId, ChannelStateResult] = {}
        self._closed = False
        files.join(member)

    def start(self, barrier: Barrier) -> None:
        """Begin with a checkpoint. Raises RuntimeError for too many results that nobody took."""
        self._check_open()
        checkpoint = barrier.checkpoint
        if checkpoint in self._results:
            raise ValueError(f"{self._task_name} has started checkpoint {checkpoint} already")
        if len(self._results) >= RESULTS_MAX:
            raise RuntimeError(
                f"{self._task_name}: nobody has taken the results of {RESULTS_MAX} checkpoints"
            )
        result = self._results[checkpoint] = ChannelStateResult(barrier)
        self._files.start(self._member, result)

    def add(self, checkpoint: CheckpointId, info: ChannelInfo, data: Iterable[Element]) -> None:
        """Data of one channel, in order. Raises ValueError for anything but batches."""
        self._check_open()
        for element in data:
            if not isinstance(element, RowBatch | ArrowBatch):
                raise ValueError(f"it should be a buffer but is a {type(element).__name__}")
            encoded = b"".join(codec.encode(element))
            self._files.handle(Add(self._member, checkpoint, info, chunk(encoded)))

    def finish(self, checkpoint: CheckpointId, side: Side) -> None:
        self._check_open()
        self._files.handle(Finish(self._member, checkpoint, side))

    def abort(self, checkpoint: CheckpointId, cause: str) -> None:
        """Give a checkpoint up; a result that was not taken is forgotten."""
        self._check_open()
        self._files.handle(Abort(self._member, checkpoint, cause))
        self._results.pop(checkpoint, None)

    def take_result(self, checkpoint: CheckpointId) -> ChannelStateResult:
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
        self._files.handle(Leave(self._member))

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"the channel state of {self._task_name} is closed")


class SharedFiles:
    """The files that one group of subtasks shares: performs what the group decides.

    An event that nobody may send fails all that is outstanding; the next checkpoint starts anew.
    """

    def __init__(self, storage: ChannelStateStorage) -> None:
        self._storage = storage
        self._group = ChannelStateGroup()
        self._results: dict[tuple[ExecutionId, CheckpointId], ChannelStateResult] = {}

    @property
    def members(self) -> int:
        return self._group.members

    def join(self, member: ExecutionId) -> None:
        """A subtask shares from its next start on."""
        self._group.join(member)

    def start(self, member: ExecutionId, result: ChannelStateResult) -> None:
        """The member begins with a checkpoint; its result hears what becomes of its part."""
        checkpoint = result.barrier.checkpoint
        self._results[member, checkpoint] = result
        self.handle(Start(member, checkpoint))

    def handle(self, event: ChannelStateEvent, file: ChannelStateFile | None = None) -> None:
        """Tell the group of an event, and do what it answers. file: that was written."""
        try:
            commands = self._group.handle(event)
        except ValueError as error:
            self._break(str(error))
            return
        is_wanted = False
        for command in commands:
            if isinstance(command, Store):
                barrier = self._results[command.member, command.checkpoint].barrier
                self._storage.run(self._store(command, barrier))
                continue
            result = self._results.pop((command.member, command.checkpoint), None)
            if result is None or result.is_done:
                continue  # its member is over, or wants it no more
            match command:
                case Fail(_, _, reason, cause):
                    result.fail(reason.aborted(cause))
                case Complete(_, _, inputs, outputs):
                    is_wanted = True
                    checksums = {} if file is None else file.checksums
                    delete = None if file is None else partial(self._delete, file)
                    result.complete(inputs, outputs, checksums, delete)
        if file is not None and not is_wanted:
            self._delete(file)

    def _break(self, cause: str) -> None:
        self._group.fail(FailureReason.CHECKPOINT_ASYNC_EXCEPTION, cause)
        results, self._results = self._results, {}
        for result in results.values():
            result.fail(StorageFailed(f"channel state could not be kept: {cause}"))

    async def _store(self, store: Store, barrier: Barrier) -> None:
        try:
            file = await self._storage.write(store.member, barrier, store.parts)
        except Exception as error:
            self.handle(NotStored(store.checkpoint, str(error)))
        else:
            self.handle(Stored(store.checkpoint, file.handle), file)

    def _delete(self, file: ChannelStateFile) -> None:
        self._storage.run(self._storage.delete(file))


class ChannelStateStorage:
    """Where one slot's channel state goes, and which of its subtasks share files.

    storage: of the job, once the slot is accepted. draw: 64 random bits a call. run: runs a
    coroutine to its end, whatever becomes of the subtasks.
    """

    def __init__(
        self,
        storage: Callable[[], CheckpointStorage | None],
        run_blocking: Callable[[Callable[[], object]], Awaitable[object]],
        draw: Callable[[], int],
        run: Callable[[Coroutine[None, None, None]], object],
    ) -> None:
        self._storage = storage
        self._run_blocking = run_blocking
        self._draw = draw
        self.run = run
        self._newest: SharedFiles | None = None

    def writer(self, execution: ExecutionId, share_max: int) -> ChannelStateWriter:
        """The writer of one subtask, which shares files with the subtasks made just before it."""
        files = self._newest
        if files is None or files.members >= share_max:
            files = self._newest = SharedFiles(self)
        return ChannelStateWriter(files, execution)

    async def write(
        self, member: ExecutionId, barrier: Barrier, parts: Sequence[bytes]
    ) -> ChannelStateFile:
        """Write a checkpoint's file; nothing is left of one that fails. Raises StorageFailed."""
        place = self._accepted_storage().place(barrier, member, self._draw)

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
        files = self._accepted_storage().files
        with contextlib.suppress(StorageFailed):
            await self._run_blocking(lambda: files.delete_files(file.checksums))

    def _accepted_storage(self) -> CheckpointStorage:
        storage = self._storage()
        assert storage is not None, "a slot is accepted before it is given work"
        return storage


def read_in_flight(
    data: Sequence[InFlightData], read: Callable[[StreamStateHandle], bytes]
) -> list[tuple[ChannelId, Batch]]:
    """The batches of restored in-flight data, in order, each with the channel that it goes into.

    read: the bytes of a handle, blocking; each file is read once, from front to back.
    """
    files: dict[StreamStateHandle, bytes] = {}
    found: list[tuple[ChannelId, Batch]] = []
    for piece in data:
        if piece.file not in files:
            files[piece.file] = read(piece.file)
        for buffer in read_chunks(files[piece.file], piece.offsets):
            batch = codec.decode(buffer)
            assert isinstance(batch, RowBatch | ArrowBatch), "only batches are written"
            kept = batch if piece.key_groups is None else within(batch, piece.key_groups)
            if len(kept):
                found.append((piece.channel, kept))
    return found


def within(batch: Batch, key_groups: KeyGroupRange) -> Batch:
    """The rows of a keyed batch whose key groups lie in the range."""
    groups = np.asarray(batch.key_groups)
    chosen = np.flatnonzero((groups >= key_groups.first) & (groups <= key_groups.last))
    if isinstance(batch, RowBatch):
        return take(batch, chosen.tolist())
    return arrow_take(batch, chosen)
