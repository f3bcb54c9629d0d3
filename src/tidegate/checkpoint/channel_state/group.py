"""Data that barriers have overtaken: whose they are, and how several subtasks share one file.

The members of a group are subtasks of one slot. A checkpoint's file is stored once every member
has finished both sides, its inputs and its outputs; then each gets handles of its own part.

Rules that keep what comes late or for another checkpoint from doing harm:

- One checkpoint is under way at a time. A newer one fails an older one as subsumed.
- What comes for a checkpoint that was aborted fails with the cause of the abort; for a member that
  did not abort it itself, with the reason that says so.
- A member that leaves is not waited for.

Source: checkpoint coordination §15. File format: docs/formats/channel-state.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate
from typing import TYPE_CHECKING, assert_never

from flinkformat.frozen import frozen
from flinkformat.handles import InputChannelStateHandle, ResultSubpartitionStateHandle
from flinkformat.metadata.channels import merge_inputs, merge_outputs
from tidegate.checkpoint.channel_state.file_format import InputChannelInfo, file_header
from tidegate.model.failure_reason import FailureReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flinkformat.handles import InputStateHandle, OutputStateHandle, StreamStateHandle
    from tidegate.checkpoint.channel_state.file_format import ChannelInfo
    from tidegate.model.ids import CheckpointId, ExecutionId


class Side(Enum):
    """Data that have come to a subtask, or data that are to leave it."""

    INPUT = "input"
    OUTPUT = "output"


@frozen
class Start:
    """A member begins with a checkpoint."""

    member: ExecutionId
    checkpoint: CheckpointId


@frozen
class Add:
    """Data of one channel, in order. chunk: as in the file."""

    member: ExecutionId
    checkpoint: CheckpointId
    info: ChannelInfo
    chunk: bytes

    @property
    def side(self) -> Side:
        return Side.INPUT if isinstance(self.info, InputChannelInfo) else Side.OUTPUT


@frozen
class Finish:
    """No more data of that side come from the member."""

    member: ExecutionId
    checkpoint: CheckpointId
    side: Side


@frozen
class Abort:
    """The member has given the checkpoint up, or could not take its part."""

    member: ExecutionId
    checkpoint: CheckpointId
    cause: str


@frozen
class Leave:
    """The member has ended and leaves."""

    member: ExecutionId


@frozen
class Stored:
    """The file of a checkpoint is written. One that no `Complete` names is to be deleted."""

    checkpoint: CheckpointId
    file: StreamStateHandle


@frozen
class NotStored:
    """The file of a checkpoint could not be written."""

    checkpoint: CheckpointId
    cause: str


ChannelStateEvent = Start | Add | Finish | Abort | Leave | Stored | NotStored


@frozen
class Store:
    """Write the file of a checkpoint; `Stored` or `NotStored`. member: one with data in it."""

    checkpoint: CheckpointId
    member: ExecutionId
    parts: Sequence[bytes]


@frozen
class Complete:
    """The member's part is durable, or there was nothing of it."""

    member: ExecutionId
    checkpoint: CheckpointId
    inputs: tuple[InputStateHandle, ...] = ()
    outputs: tuple[OutputStateHandle, ...] = ()


@frozen
class Fail:
    """The member's part will not become durable."""

    member: ExecutionId
    checkpoint: CheckpointId
    reason: FailureReason
    cause: str


ChannelStateCommand = Store | Complete | Fail


@dataclass(slots=True)
class _Part:
    """One member's share. open: the sides that are not finished."""

    open: set[Side] = field(default_factory=lambda: set(Side))
    started: bool = False
    chunks: dict[ChannelInfo, list[bytes]] = field(
        default_factory=dict["ChannelInfo", "list[bytes]"]
    )


@dataclass(slots=True)
class _UnderWay:
    """The one checkpoint that is under way."""

    checkpoint: CheckpointId
    parts: dict[ExecutionId, _Part]
    storing: bool = False

    @property
    def finished(self) -> bool:
        return not any(part.open for part in self.parts.values())

    @property
    def chunks(self) -> list[bytes]:
        parts = self.parts.values()
        return [each for part in parts for chunks in part.chunks.values() for each in chunks]

    def stored(self, file: StreamStateHandle) -> list[ChannelStateCommand]:
        """Each member's handles: its chunks stand in the file one behind the other."""
        assert self.storing and self.finished, "no part changes once the file is being written"
        commands: list[ChannelStateCommand] = []
        position = len(file_header())
        for member, part in self.parts.items():
            inputs: list[InputChannelStateHandle] = []
            outputs: list[ResultSubpartitionStateHandle] = []
            subtask = member.subtask.index
            for info, chunks in part.chunks.items():
                *offsets, end = accumulate(map(len, chunks), initial=position)
                place = (tuple(offsets), end - position, file)
                position = end
                if isinstance(info, InputChannelInfo):
                    inputs.append(InputChannelStateHandle(subtask, info.gate, info.channel, *place))
                else:
                    to = (info.partition, info.subpartition)
                    outputs.append(ResultSubpartitionStateHandle(subtask, *to, *place))
            commands.append(
                Complete(
                    member,
                    self.checkpoint,
                    (merge_inputs(tuple(inputs)),) if inputs else (),
                    (merge_outputs(tuple(outputs)),) if outputs else (),
                )
            )
        return commands


class ChannelStateGroup:
    """Puts the in-flight data of several subtasks together, checkpoint by checkpoint.

    Raises ValueError for events that nobody may send; the group's channel state is over then.
    """

    def __init__(self) -> None:
        self._members: dict[ExecutionId, None] = {}
        self._under_way: _UnderWay | None = None
        self._newest = 0
        self._aborted = 0
        self._aborted_by: ExecutionId | None = None
        self._cause = ""

    @property
    def members(self) -> int:
        return len(self._members)

    def join(self, member: ExecutionId) -> None:
        """A subtask shares from its next start on."""
        assert member not in self._members, "an attempt joins once"
        self._members[member] = None

    def handle(self, event: ChannelStateEvent) -> list[ChannelStateCommand]:
        """Commands for an event, in order."""
        match event:
            case Start(member, checkpoint):
                return self._start(member, checkpoint)
            case Add() | Finish():
                return self._data(event)
            case Abort():
                return self._abort(event)
            case Leave(member):
                return self._leave(member)
            case Stored() | NotStored():
                return self._answered(event)
            case _:
                assert_never(event)

    def fail(self, reason: FailureReason, cause: str) -> list[ChannelStateCommand]:
        """Fail everything that is outstanding."""
        under_way, self._under_way = self._under_way, None
        if under_way is None:
            return []
        return [Fail(member, under_way.checkpoint, reason, cause) for member in under_way.parts]

    def _start(self, member: ExecutionId, checkpoint: CheckpointId) -> list[ChannelStateCommand]:
        if self._is_over(checkpoint):
            return [self._refused(member, checkpoint)]
        commands: list[ChannelStateCommand] = []
        if self._under_way is None or checkpoint > self._under_way.checkpoint:
            subsumed = FailureReason.CHECKPOINT_DECLINED_SUBSUMED
            commands = self.fail(subsumed, subsumed.message)
            # All members are waited for: a barrier reaches each of them, or the driver aborts.
            parts = {each: _Part() for each in self._members}
            self._under_way = _UnderWay(checkpoint, parts)
            assert checkpoint > self._newest, "what was under way before is over"
            self._newest = checkpoint
        assert self._under_way.checkpoint == checkpoint, "an older one is over"
        part = self._under_way.parts[member]
        if part.started:
            raise ValueError(f"checkpoint {checkpoint} was started twice by one subtask")
        part.started = True
        return commands

    def _data(self, event: Add | Finish) -> list[ChannelStateCommand]:
        checkpoint, member = event.checkpoint, event.member
        if self._is_over(checkpoint):
            return [self._refused(member, checkpoint)]
        part = None if self._under_way is None else self._under_way.parts.get(member)
        if part is None or not part.started:
            raise ValueError(f"channel state of checkpoint {checkpoint}, which was not started")
        if event.side not in part.open:
            side = event.side.value
            raise ValueError(f"more {side} data of checkpoint {checkpoint} after its end")
        if isinstance(event, Add):
            part.chunks.setdefault(event.info, []).append(event.chunk)
            return []
        part.open.discard(event.side)
        return self._store_if_finished()

    def _abort(self, abort: Abort) -> list[ChannelStateCommand]:
        if abort.checkpoint > self._aborted:
            self._aborted, self._aborted_by = abort.checkpoint, abort.member
            self._cause = abort.cause
        under_way = self._under_way
        if under_way is None or under_way.checkpoint > abort.checkpoint:
            return []
        self._under_way = None
        assert self._is_over(under_way.checkpoint), "nothing more is taken for it"
        return [self._refused(member, under_way.checkpoint) for member in under_way.parts]

    def _leave(self, member: ExecutionId) -> list[ChannelStateCommand]:
        self._members.pop(member, None)
        part = None if self._under_way is None else self._under_way.parts.get(member)
        if self._under_way is None or part is None or not part.open:
            return []  # a part that is finished stays: the member acknowledges nothing any more
        assert not self._under_way.storing, "a file is stored when every part is finished"
        del self._under_way.parts[member]
        return self._store_if_finished()

    def _store_if_finished(self) -> list[ChannelStateCommand]:
        under_way = self._under_way
        if under_way is None or not under_way.finished:
            return []
        assert not under_way.storing, "the last side is finished once"
        first = next((member for member, part in under_way.parts.items() if part.chunks), None)
        if first is None:
            self._under_way = None
            return [Complete(member, under_way.checkpoint) for member in under_way.parts]
        under_way.storing = True
        return [Store(under_way.checkpoint, first, [file_header(), *under_way.chunks])]

    def _answered(self, answer: Stored | NotStored) -> list[ChannelStateCommand]:
        under_way = self._under_way
        if under_way is None or under_way.checkpoint != answer.checkpoint:
            return []  # given up while its file was written
        if isinstance(answer, NotStored):
            return self.fail(FailureReason.CHECKPOINT_ASYNC_EXCEPTION, answer.cause)
        self._under_way = None
        return under_way.stored(answer.file)

    def _is_over(self, checkpoint: CheckpointId) -> bool:
        is_under_way = self._under_way is not None and self._under_way.checkpoint == checkpoint
        done = checkpoint <= self._newest and not is_under_way
        return checkpoint <= self._aborted or done

    def _refused(self, member: ExecutionId, checkpoint: CheckpointId) -> Fail:
        if checkpoint != self._aborted:
            reason = FailureReason.CHECKPOINT_DECLINED_SUBSUMED
        elif member != self._aborted_by:
            reason = FailureReason.CHANNEL_STATE_SHARED_STREAM_EXCEPTION
        else:
            return Fail(member, checkpoint, FailureReason.CHECKPOINT_DECLINED, self._cause)
        return Fail(member, checkpoint, reason, reason.message)
