"""In-flight data of checkpoints: whose it is, and how several subtasks share one file.

The dispatcher is pure: it takes requests and answers with commands. Its members are the subtasks of
one slot that share a file. A checkpoint's file is stored once every member has finished both
sides, its inputs and its outputs; then each gets handles of its own part.

Rules that keep a late or foreign request from doing harm:

- One checkpoint is under way at a time. A newer one fails an older one as subsumed.
- What comes for a checkpoint that was aborted fails with the cause of the abort; for a member that
  did not abort it itself, with the reason that says so.
- A member that leaves is not waited for.

Source: checkpoint coordination §15. File format: docs/formats/channel-state.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, assert_never

from flinkformat.handles import InputChannelStateHandle, ResultSubpartitionStateHandle
from flinkformat.metadata.channels import merge_inputs, merge_outputs
from tidegate.errors import FormatError
from tidegate.model.failure_reason import FailureReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flinkformat.handles import InputStateHandle, OutputStateHandle, StreamStateHandle
    from tidegate.model.ids import CheckpointId, ExecutionId

SEQUENCE_NUMBER_RESTORED: Final = -1
"""In place of a number: the data were restored, and are saved again."""

SEQUENCE_NUMBER_UNKNOWN: Final = -2
"""In place of a number: channels do not number what they carry."""

FORMAT_VERSION: Final = 0

_INT: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class InputChannelInfo:
    """An input channel by its place: the gate among the subtask's, the channel in the gate."""

    gate: int
    channel: int


@dataclass(frozen=True, slots=True)
class ResultSubpartitionInfo:
    """An output by its place: the partition among the subtask's, the subpartition in it."""

    partition: int
    subpartition: int


ChannelInfo = InputChannelInfo | ResultSubpartitionInfo


def file_header() -> bytes:
    """What a file of channel state begins with."""
    return _INT.pack(FORMAT_VERSION)


def chunk(data: bytes) -> bytes:
    """One buffer as it stands in a file."""
    return _INT.pack(len(data)) + data


def read_chunks(file: bytes, offsets: Iterable[int]) -> list[memoryview]:
    """The buffers that begin at these offsets. Raises FormatError for what is no such file."""
    view = memoryview(file)
    version = _INT.unpack_from(view)[0] if len(view) >= _INT.size else None
    if version != FORMAT_VERSION:
        raise FormatError(
            "not a file of channel state", expected=str(FORMAT_VERSION), found=str(version)
        )
    found: list[memoryview] = []
    for offset in offsets:
        begin = offset + _INT.size
        length = _INT.unpack_from(view, offset)[0] if 0 < offset <= len(view) - _INT.size else -1
        if not 0 <= length <= len(view) - begin:
            raise FormatError("a buffer beyond the end of its file", offset=offset)
        found.append(view[begin : begin + length])
    return found


class Side(Enum):
    """Whose data: those that have come, or those that are to leave."""

    INPUT = "input"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Start:
    """A member begins with a checkpoint."""

    member: ExecutionId
    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class Add:
    """Data of one channel, in order. chunk: as in the file."""

    member: ExecutionId
    checkpoint: CheckpointId
    info: ChannelInfo
    chunk: bytes


@dataclass(frozen=True, slots=True)
class Finish:
    """No more data of that side come from the member."""

    member: ExecutionId
    checkpoint: CheckpointId
    side: Side


@dataclass(frozen=True, slots=True)
class Abort:
    """The member has given the checkpoint up, or could not take its part."""

    member: ExecutionId
    checkpoint: CheckpointId
    cause: str


@dataclass(frozen=True, slots=True)
class Leave:
    """The member is over."""

    member: ExecutionId


@dataclass(frozen=True, slots=True)
class Stored:
    """The file of a checkpoint is written."""

    checkpoint: CheckpointId
    file: StreamStateHandle


@dataclass(frozen=True, slots=True)
class NotStored:
    """The file of a checkpoint could not be written."""

    checkpoint: CheckpointId
    cause: str


Request = Start | Add | Finish | Abort | Leave | Stored | NotStored


@dataclass(frozen=True, slots=True)
class Store:
    """Write the file of a checkpoint, and answer. member: one of those whose data are in it."""

    checkpoint: CheckpointId
    member: ExecutionId
    parts: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Complete:
    """The member's part is durable, or there was nothing of it."""

    member: ExecutionId
    checkpoint: CheckpointId
    inputs: tuple[InputStateHandle, ...] = ()
    outputs: tuple[OutputStateHandle, ...] = ()


@dataclass(frozen=True, slots=True)
class Fail:
    """The member's part will not be."""

    member: ExecutionId
    checkpoint: CheckpointId
    reason: FailureReason
    cause: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Nobody will hear of this file: delete it."""

    checkpoint: CheckpointId


Command = Store | Complete | Fail | Discard


@dataclass(slots=True)
class _Part:
    """One member's share. open: the sides that are not finished."""

    open: set[Side] = field(default_factory=lambda: set(Side))
    started: bool = False
    chunks: dict[ChannelInfo, list[bytes]] = field(
        default_factory=dict["ChannelInfo", "list[bytes]"]
    )


@dataclass(slots=True)
class _Writer:
    """The one checkpoint that is under way."""

    checkpoint: CheckpointId
    parts: dict[ExecutionId, _Part]
    storing: bool = False

    @property
    def finished(self) -> bool:
        return not any(part.open for part in self.parts.values())

    @property
    def first_with_data(self) -> ExecutionId | None:
        return next((member for member, part in self.parts.items() if part.chunks), None)


class ChannelStateWriteRequestDispatcher:
    """Puts the in-flight data of several subtasks together, checkpoint by checkpoint.

    Raises ValueError for requests that nobody may make; the caller's channel state is over then.
    """

    def __init__(self) -> None:
        self._members: dict[ExecutionId, None] = {}
        self._writer: _Writer | None = None
        self._ongoing = 0
        self._aborted = 0
        self._aborted_by: ExecutionId | None = None
        self._cause = ""

    @property
    def members(self) -> int:
        """How many subtasks share."""
        return len(self._members)

    def register(self, member: ExecutionId) -> None:
        """A subtask shares from its next start on."""
        self._members[member] = None

    def dispatch(self, request: Request) -> list[Command]:
        """What is to be done about the request, in order."""
        match request:
            case Start():
                return self._start(request)
            case Add() | Finish():
                return self._data(request)
            case Abort():
                return self._abort(request)
            case Leave(member):
                return self._leave(member)
            case Stored() | NotStored():
                return self._answered(request)
            case _:
                assert_never(request)

    def fail(self, reason: FailureReason, cause: str) -> list[Command]:
        """Fail everything that is outstanding."""
        writer, self._writer = self._writer, None
        if writer is None:
            return []
        return [Fail(member, writer.checkpoint, reason, cause) for member in writer.parts]

    def _start(self, start: Start) -> list[Command]:
        checkpoint, member = start.checkpoint, start.member
        if self._is_over(checkpoint):
            return [self._refused(member, checkpoint)]
        commands: list[Command] = []
        if self._writer is None or checkpoint > self._writer.checkpoint:
            subsumed = FailureReason.CHECKPOINT_DECLINED_SUBSUMED
            commands = self.fail(subsumed, subsumed.message)
            parts = {each: _Part() for each in self._members}
            self._writer = _Writer(checkpoint, parts)
            self._ongoing = checkpoint
        part = self._writer.parts[member]
        if part.started:
            raise ValueError(f"checkpoint {checkpoint} was started twice by one subtask")
        part.started = True
        return commands

    def _data(self, request: Add | Finish) -> list[Command]:
        checkpoint, member = request.checkpoint, request.member
        if self._is_over(checkpoint):
            return [self._refused(member, checkpoint)]
        part = None if self._writer is None else self._writer.parts.get(member)
        if self._writer is None or part is None or not part.started:
            raise ValueError(f"channel state of checkpoint {checkpoint}, which was not started")
        side = request.side if isinstance(request, Finish) else side_of(request.info)
        if side not in part.open:
            raise ValueError(f"more {side.value} data of checkpoint {checkpoint} after its end")
        if isinstance(request, Add):
            part.chunks.setdefault(request.info, []).append(request.chunk)
            return []
        part.open.discard(side)
        return self._store_if_finished()

    def _abort(self, abort: Abort) -> list[Command]:
        if abort.checkpoint > self._aborted:
            self._aborted, self._aborted_by = abort.checkpoint, abort.member
            self._cause = abort.cause
        writer = self._writer
        if writer is None or writer.checkpoint > abort.checkpoint:
            return []
        self._writer = None
        return [self._refused(member, writer.checkpoint) for member in writer.parts]

    def _leave(self, member: ExecutionId) -> list[Command]:
        self._members.pop(member, None)
        part = None if self._writer is None else self._writer.parts.get(member)
        if self._writer is None or part is None or not part.open:
            return []
        del self._writer.parts[member]
        return self._store_if_finished()

    def _store_if_finished(self) -> list[Command]:
        writer = self._writer
        if writer is None or writer.storing or not writer.finished:
            return []
        first = writer.first_with_data
        if first is None:
            self._writer = None
            return [Complete(member, writer.checkpoint) for member in writer.parts]
        writer.storing = True
        chunks = [
            chunk
            for part in writer.parts.values()
            for chunks in part.chunks.values()
            for chunk in chunks
        ]
        return [Store(writer.checkpoint, first, [file_header(), *chunks])]

    def _answered(self, answer: Stored | NotStored) -> list[Command]:
        writer = self._writer
        if writer is None or writer.checkpoint != answer.checkpoint:
            return [Discard(answer.checkpoint)] if isinstance(answer, Stored) else []
        if isinstance(answer, NotStored):
            return self.fail(FailureReason.CHECKPOINT_ASYNC_EXCEPTION, answer.cause)
        self._writer = None
        return self._handles(writer, answer.file)

    def _handles(self, writer: _Writer, file: StreamStateHandle) -> list[Command]:
        """Each member's handles, by where its chunks stand in the file."""
        commands: list[Command] = []
        position = len(file_header())
        for member, part in writer.parts.items():
            inputs: list[InputChannelStateHandle] = []
            outputs: list[ResultSubpartitionStateHandle] = []
            for info, chunks in part.chunks.items():
                offsets: list[int] = []
                for each in chunks:
                    offsets.append(position)
                    position += len(each)
                place = (tuple(offsets), sum(map(len, chunks)), file)
                if isinstance(info, InputChannelInfo):
                    handle = InputChannelStateHandle(
                        member.subtask.index, info.gate, info.channel, *place
                    )
                    inputs.append(handle)
                else:
                    outputs.append(
                        ResultSubpartitionStateHandle(
                            member.subtask.index, info.partition, info.subpartition, *place
                        )
                    )
            commands.append(
                Complete(
                    member,
                    writer.checkpoint,
                    (merge_inputs(tuple(inputs)),) if inputs else (),
                    (merge_outputs(tuple(outputs)),) if outputs else (),
                )
            )
        return commands

    def _is_over(self, checkpoint: CheckpointId) -> bool:
        under_way = self._writer is not None and self._writer.checkpoint == checkpoint
        done = checkpoint <= self._ongoing and not under_way
        return checkpoint <= self._aborted or done

    def _refused(self, member: ExecutionId, checkpoint: CheckpointId) -> Fail:
        if checkpoint != self._aborted:
            reason = FailureReason.CHECKPOINT_DECLINED_SUBSUMED
        elif member != self._aborted_by:
            reason = FailureReason.CHANNEL_STATE_SHARED_STREAM_EXCEPTION
        else:
            return Fail(member, checkpoint, FailureReason.CHECKPOINT_DECLINED, self._cause)
        return Fail(member, checkpoint, reason, reason.message)


def side_of(info: ChannelInfo) -> Side:
    """Whose data a channel carries."""
    return Side.INPUT if isinstance(info, InputChannelInfo) else Side.OUTPUT
