"""Where in-flight data go when the job starts again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat.handles import InputChannelStateHandle, ResultSubpartitionStateHandle
from flinkformat.key_groups import KeyGroupRange
from flinkformat.metadata.channels import merge_inputs
from flinkformat.snapshots import EMPTY, FINISHED, CheckpointProperties, OperatorState, SubtaskState
from tests.checkpoint.restored_jobs import (
    COUNT,
    FILE,
    SINK,
    SOURCE,
    job,
    operator,
    snapshot,
    vertex,
)
from tidegate.checkpoint.completed import CompletedCheckpoint
from tidegate.checkpoint.restore.assignment import assign
from tidegate.checkpoint.restore.in_flight_targets import deal_in_flight
from tidegate.errors import RestoreRefused
from tidegate.jobmaster.redeployment import shares
from tidegate.model.ids import ChannelId, CheckpointId, SubtaskId, VertexId
from tidegate.model.restore import InFlightData
from tidegate.model.settings import RestoreSettings
from tidegate.model.topology import OperatorInfo, Partitioner

COUNTS = VertexId(COUNT)


def came(consumer: int, producer: int, *offsets: int) -> InputChannelStateHandle:
    return InputChannelStateHandle(consumer, 0, producer, offsets, 9, FILE)


def unsent(producer: int, consumer: int, *offsets: int) -> ResultSubpartitionStateHandle:
    return ResultSubpartitionStateHandle(producer, 0, consumer, offsets, 9, FILE)


def states(
    came_: list[list[InputChannelStateHandle]], unsent_: list[list[ResultSubpartitionStateHandle]]
) -> tuple[OperatorState, OperatorState]:
    return (
        operator(SOURCE, *(SubtaskState(result_subpartition=tuple(each)) for each in unsent_)),
        operator(COUNT, *(SubtaskState(input_channel=tuple(each)) for each in came_)),
    )


@pytest.mark.feature("F152", "F153")
def test_a_reader_gets_what_had_come_and_then_what_had_not_left() -> None:
    both = states([[came(0, 1, 4, 8)], []], [[], [unsent(1, 0, 40), unsent(1, 1, 50)]])
    assert deal_in_flight(snapshot(*both), job()) == {
        SubtaskId(COUNTS, 0): (
            InFlightData(ChannelId(0, 1, 0), FILE, (4, 8)),
            InFlightData(ChannelId(0, 1, 0), FILE, (40,)),
        ),
        SubtaskId(COUNTS, 1): (InFlightData(ChannelId(0, 1, 1), FILE, (50,)),),
    }
    assigned = assign(snapshot(*both), job())
    assert len(assigned[SubtaskId(COUNTS, 0)].in_flight) == 2
    assert assigned[SubtaskId(VertexId(SOURCE), 1)].in_flight == ()


def test_handles_of_several_channels_in_one_are_unfolded() -> None:
    merged = merge_inputs((came(0, 0, 4), came(0, 1, 8)))
    counts = operator(COUNT, SubtaskState(input_channel=(merged,)), EMPTY)
    (found,) = deal_in_flight(snapshot(counts), job()).values()
    assert [(data.channel.producer, data.offsets) for data in found] == [(0, (4,)), (1, (8,))]


@pytest.mark.feature("F241")
@given(
    old=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    new=st.tuples(st.integers(1, 5), st.integers(1, 5)),
)
def test_each_key_group_of_each_old_channel_is_read_once_and_by_its_owner(
    old: tuple[int, int], new: tuple[int, int]
) -> None:
    """Parallelisms of producers and readers, before and after."""
    offset = iter(range(4, 10_000, 4))
    came_ = [[came(c, p, next(offset)) for p in range(old[0])] for c in range(old[1])]
    unsent_ = [[unsent(p, c, next(offset)) for c in range(old[1])] for p in range(old[0])]
    owner = {
        handle.offsets[0]: c
        for c in range(old[1])
        for handle in (*came_[c], *(row[c] for row in unsent_))
    }
    topology = job(
        source=vertex(OperatorInfo(SOURCE, "s"), parallelism=new[0]),
        count=vertex(OperatorInfo(COUNT, "c"), parallelism=new[1]),
    )
    dealt = deal_in_flight(snapshot(*states(came_, unsent_)), topology)
    read: dict[tuple[int, int], int] = {}
    for subtask, data in dealt.items():
        mine = KeyGroupRange.of(subtask.index, new[1], 128)
        for piece in data:
            assert piece.channel.consumer == subtask.index
            assert 0 <= piece.channel.producer < new[0]
            (begins,) = piece.offsets
            had = KeyGroupRange.of(owner[begins], old[1], 128)
            for group in had if piece.key_groups is None else had.intersection(piece.key_groups):
                assert group in mine
                assert (begins, group) not in read, "read twice"
                read[begins, group] = subtask.index
    wanted = {(begins, g) for begins, c in owner.items() for g in KeyGroupRange.of(c, old[1], 128)}
    assert read.keys() == wanted


@pytest.mark.feature("F241")
@pytest.mark.parametrize("partitioner", [Partitioner.REBALANCE, Partitioner.SHUFFLE])
def test_rows_that_any_reader_may_have_go_round_the_new_ones(partitioner: Partitioner) -> None:
    both = states([[came(0, 0, 4)], [came(1, 0, 8)], [came(2, 0, 12)]], [[]])
    topology = job(count=vertex(OperatorInfo(COUNT, "c"), parallelism=2), partitioner=partitioner)
    dealt = deal_in_flight(snapshot(*both), topology)
    begins = {
        subtask.index: [data.offsets[0] for data in found] for subtask, found in dealt.items()
    }
    assert begins == {0: [4, 12], 1: [8]}
    assert all(data.key_groups is None for found in dealt.values() for data in found)


@pytest.mark.feature("F242")
def test_in_flight_data_are_dropped_where_the_user_wants_it() -> None:
    both = states([[came(0, 1, 4)], []], [[], []])
    assigned = assign(snapshot(*both), job(), drop_in_flight=True)
    assert not any(restore.in_flight for restore in assigned.values())


@pytest.mark.feature("F242")
@pytest.mark.parametrize(("named", "kept"), [(None, True), (16, True), (17, False), (18, True)])
def test_the_option_drops_the_in_flight_data_of_the_checkpoint_that_it_names(
    named: int | None, kept: bool
) -> None:
    both = states([[came(0, 1, 4)], []], [[], []])
    newest = CompletedCheckpoint(
        CheckpointId(17),
        "/chk-17",
        "/chk-17",
        snapshot(*both),
        CheckpointProperties.for_unclaimed_snapshot(),
    )
    started = shares(newest, job(), RestoreSettings(without_in_flight_of=named))
    assert any(restore.in_flight for restore in started.values()) is kept


@pytest.mark.parametrize(
    "partitioner", [Partitioner.FORWARD, Partitioner.RESCALE, Partitioner.BROADCAST]
)
def test_data_of_an_exchange_that_has_none_now_are_refused(partitioner: Partitioner) -> None:
    both = states([[came(0, 1, 4)], []], [[], []])
    with pytest.raises(RestoreRefused, match="topology changes") as caught:
        deal_in_flight(snapshot(*both), job(partitioner=partitioner))
    assert "without-channel-state.checkpoint-id: 17" in caught.value.remedy


def test_data_of_an_input_that_is_gone_are_refused() -> None:
    other = InputChannelStateHandle(0, 1, 0, (4,), 9, FILE)
    counts = operator(COUNT, SubtaskState(input_channel=(other,)), EMPTY)
    with pytest.raises(RestoreRefused, match="topology changes"):
        deal_in_flight(snapshot(counts), job())


def test_finished_subtasks_have_none() -> None:
    assert deal_in_flight(snapshot(operator(COUNT, FINISHED, EMPTY)), job()) == {}
    assert deal_in_flight(snapshot(operator(SINK, EMPTY, EMPTY)), job()) == {}
