"""In-flight data of several subtasks, put together by checkpoint; checkpoint coordination §15."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat.handles import FileStateHandle
from flinkformat.metadata.channels import unmerge_input, unmerge_output
from tidegate.checkpoint.channel_state.file_format import (
    InputChannelInfo,
    ResultSubpartitionInfo,
    chunk,
    file_header,
    read_chunks,
)
from tidegate.checkpoint.channel_state.group import (
    Abort,
    Add,
    ChannelStateCommand,
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
from tidegate.errors import FormatError
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import Attempt, CheckpointId, Epoch, ExecutionId, SubtaskId, VertexId

ONE, TWO = (
    ExecutionId(SubtaskId(VertexId(b"v" * 16), index), Attempt(0), Epoch(1)) for index in (0, 1)
)
FIRST, SECOND, THIRD = (CheckpointId(number) for number in (1, 2, 3))
FILE = FileStateHandle("f", 100)
SUBSUMED = FailureReason.CHECKPOINT_DECLINED_SUBSUMED
SHARED = FailureReason.CHANNEL_STATE_SHARED_STREAM_EXCEPTION


def group(*members: ExecutionId) -> ChannelStateGroup:
    made = ChannelStateGroup()
    for member in members or (ONE,):
        made.join(member)
    return made


def finished(
    made: ChannelStateGroup, member: ExecutionId, checkpoint: CheckpointId
) -> list[ChannelStateCommand]:
    return [command for side in Side for command in made.handle(Finish(member, checkpoint, side))]


@pytest.mark.feature("F150", "F151")
def test_places_are_values() -> None:
    for info in (InputChannelInfo(1, 2), ResultSubpartitionInfo(1, 2)):
        again = pickle.loads(pickle.dumps(info))
        assert again == info and hash(again) == hash(info)
        assert {info: "found"}[again] == "found"
    assert InputChannelInfo(1, 2) != InputChannelInfo(2, 1)
    assert InputChannelInfo(1, 2) != ResultSubpartitionInfo(1, 2)


@pytest.mark.feature("F176")
@given(st.lists(st.binary(max_size=40), max_size=8))
def test_buffers_come_back_from_their_offsets(buffers: list[bytes]) -> None:
    file, offsets = file_header(), []
    for buffer in buffers:
        offsets.append(len(file))
        file += chunk(buffer)
    assert file[:4] == b"\0\0\0\0"
    assert [bytes(found) for found in read_chunks(file, offsets)] == buffers


@pytest.mark.parametrize(
    ("file", "offset"),
    [
        (b"", 4),
        (b"\0\0\0\1" + chunk(b"x"), 4),
        (file_header() + chunk(b"x"), 2_000),
        (file_header() + chunk(b"x"), 0),
        (file_header() + b"\0\0\0\x09x", 4),
        (file_header() + b"\xff\xff\xff\xff", 4),
    ],
)
def test_what_is_no_file_of_channel_state_is_refused(file: bytes, offset: int) -> None:
    with pytest.raises(FormatError):
        read_chunks(file, [offset])


@pytest.mark.feature("F156", "F162", "F163", "F167", "F243")
def test_a_file_holds_the_data_of_all_and_each_gets_handles_of_its_own() -> None:
    made = group(ONE, TWO)
    came, unsent = InputChannelInfo(0, 1), ResultSubpartitionInfo(0, 0)
    for member in (ONE, TWO):
        assert made.handle(Start(member, FIRST)) == []
    adds = [
        Add(ONE, FIRST, came, chunk(b"a")),
        Add(ONE, FIRST, unsent, chunk(b"bb")),
        Add(TWO, FIRST, came, chunk(b"ccc")),
        Add(ONE, FIRST, came, chunk(b"dddd")),
    ]
    for add in adds:
        assert made.handle(add) == []
    assert finished(made, ONE, FIRST) == []
    assert made.handle(Finish(TWO, FIRST, Side.OUTPUT)) == []
    (store,) = made.handle(Finish(TWO, FIRST, Side.INPUT))
    assert isinstance(store, Store) and store.member == ONE
    file = b"".join(store.parts)
    first, second = made.handle(Stored(FIRST, FILE))
    assert isinstance(first, Complete) and isinstance(second, Complete)
    (inputs,), (outputs,) = first.inputs, first.outputs
    (held,), (sent,) = unmerge_input(inputs), unmerge_output(outputs)
    assert (held.gate_index, held.channel_index, held.subtask_index) == (0, 1, 0)
    assert [bytes(b) for b in read_chunks(file, held.offsets)] == [b"a", b"dddd"]
    assert held.state_size == len(chunk(b"a") + chunk(b"dddd")) == inputs.state_size
    assert [bytes(b) for b in read_chunks(file, sent.offsets)] == [b"bb"]
    (other,) = unmerge_input(second.inputs[0])
    assert other.subtask_index == 1 and second.outputs == ()
    assert [bytes(b) for b in read_chunks(file, other.offsets)] == [b"ccc"]


def test_without_data_there_is_no_file() -> None:
    made = group(ONE, TWO)
    made.handle(Start(ONE, FIRST))
    assert finished(made, ONE, FIRST) == [], "the other has not even begun"
    made.handle(Start(TWO, FIRST))
    assert finished(made, TWO, FIRST) == [Complete(ONE, FIRST), Complete(TWO, FIRST)]


@pytest.mark.feature("F173")
def test_a_newer_checkpoint_fails_the_older_as_subsumed() -> None:
    made = group()
    made.handle(Start(ONE, FIRST))
    assert made.handle(Start(ONE, SECOND)) == [Fail(ONE, FIRST, SUBSUMED, SUBSUMED.message)]
    late = Add(ONE, FIRST, InputChannelInfo(0, 0), chunk(b"x"))
    for event in (late, Finish(ONE, FIRST, Side.INPUT), Start(ONE, FIRST)):
        assert made.handle(event) == [Fail(ONE, FIRST, SUBSUMED, SUBSUMED.message)]


@pytest.mark.feature("F173")
@pytest.mark.parametrize(
    "event",
    [Add(ONE, FIRST, InputChannelInfo(0, 0), b""), Finish(ONE, FIRST, Side.OUTPUT)],
)
def test_what_was_not_started_is_an_error(event: Add | Finish) -> None:
    with pytest.raises(ValueError, match="was not started"):
        group().handle(event)


@pytest.mark.feature("F162", "F163")
@pytest.mark.parametrize(
    ("side", "info"),
    [(Side.INPUT, InputChannelInfo(0, 0)), (Side.OUTPUT, ResultSubpartitionInfo(0, 0))],
)
def test_after_the_end_of_a_side_more_of_it_is_an_error(
    side: Side, info: InputChannelInfo | ResultSubpartitionInfo
) -> None:
    made = group()
    made.handle(Start(ONE, FIRST))
    made.handle(Finish(ONE, FIRST, side))
    with pytest.raises(ValueError, match=f"more {side.value} data"):
        made.handle(Add(ONE, FIRST, info, b""))


def test_a_second_start_is_an_error_that_leaves_the_first() -> None:
    made = group()
    made.handle(Start(ONE, FIRST))
    with pytest.raises(ValueError, match="started twice"):
        made.handle(Start(ONE, FIRST))
    assert finished(made, ONE, FIRST) == [Complete(ONE, FIRST)]


@pytest.mark.feature("F173")
def test_an_abort_fails_its_own_member_with_the_cause_and_the_others_as_sharers() -> None:
    made = group(ONE, TWO)
    for member in (ONE, TWO):
        made.handle(Start(member, SECOND))
    declined = FailureReason.CHECKPOINT_DECLINED
    assert made.handle(Abort(ONE, SECOND, "why")) == [
        Fail(ONE, SECOND, declined, "why"),
        Fail(TWO, SECOND, SHARED, SHARED.message),
    ]
    assert made.handle(Abort(ONE, SECOND, "why")) == []
    assert made.handle(Finish(ONE, SECOND, Side.INPUT)) == [Fail(ONE, SECOND, declined, "why")]
    assert made.handle(Start(TWO, FIRST)) == [Fail(TWO, FIRST, SUBSUMED, SUBSUMED.message)]
    assert made.handle(Start(ONE, THIRD)) == []


@pytest.mark.feature("F164")
def test_an_abort_of_what_has_not_begun_cancels_what_comes_later() -> None:
    made = group()
    assert made.handle(Abort(ONE, SECOND, "why")) == []
    (failed,) = made.handle(Start(ONE, SECOND))
    assert isinstance(failed, Fail) and failed.cause == "why"
    assert made.handle(Start(ONE, THIRD)) == []


def test_an_abort_of_an_older_checkpoint_leaves_the_one_under_way() -> None:
    made = group()
    made.handle(Start(ONE, SECOND))
    assert made.handle(Abort(ONE, FIRST, "why")) == []
    assert finished(made, ONE, SECOND) == [Complete(ONE, SECOND)]


def test_a_member_that_leaves_is_not_waited_for() -> None:
    made = group(ONE, TWO)
    for member in (ONE, TWO):
        made.handle(Start(member, FIRST))
    finished(made, ONE, FIRST)
    assert made.handle(Leave(TWO)) == [Complete(ONE, FIRST)]
    assert made.members == 1
    assert made.handle(Leave(TWO)) == []


def test_the_data_of_a_member_that_had_finished_stay() -> None:
    made = group(ONE, TWO)
    for member in (ONE, TWO):
        made.handle(Start(member, FIRST))
    made.handle(Add(ONE, FIRST, InputChannelInfo(0, 0), chunk(b"x")))
    finished(made, ONE, FIRST)
    made.handle(Leave(ONE))
    made.handle(Finish(TWO, FIRST, Side.INPUT))
    (store,) = made.handle(Finish(TWO, FIRST, Side.OUTPUT))
    assert isinstance(store, Store) and b"".join(store.parts) == file_header() + chunk(b"x")


def stored(made: ChannelStateGroup) -> None:
    made.handle(Start(ONE, FIRST))
    made.handle(Add(ONE, FIRST, InputChannelInfo(0, 0), chunk(b"x")))
    assert isinstance(finished(made, ONE, FIRST)[-1], Store)


def test_a_file_that_could_not_be_written_fails_its_members() -> None:
    made = group()
    stored(made)
    (failed,) = made.handle(NotStored(FIRST, "the disk is full"))
    assert failed == Fail(ONE, FIRST, FailureReason.CHECKPOINT_ASYNC_EXCEPTION, "the disk is full")
    assert made.handle(Start(ONE, SECOND)) == []


def test_a_file_that_came_too_late_is_nobodys() -> None:
    made = group()
    stored(made)
    made.handle(Abort(ONE, FIRST, "why"))
    assert made.handle(Stored(FIRST, FILE)) == []
    assert made.handle(NotStored(FIRST, "either")) == []


@pytest.mark.feature("F174")
def test_all_that_is_outstanding_can_be_failed() -> None:
    made = group(ONE, TWO)
    made.handle(Start(ONE, FIRST))
    reason = FailureReason.CHECKPOINT_ASYNC_EXCEPTION
    assert made.fail(reason, "over") == [
        Fail(ONE, FIRST, reason, "over"),
        Fail(TWO, FIRST, reason, "over"),
    ]
    assert made.fail(reason, "over") == []
