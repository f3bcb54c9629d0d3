from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from flinkformat import metadata
from flinkformat.handles import (
    ByteStreamStateHandle,
    InputChannelStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    ResultSubpartitionStateHandle,
    SegmentFileStateHandle,
    StateDistribution,
    StateMetaInfo,
    StateScope,
)
from flinkformat.key_groups import KeyGroupRange
from flinkformat.snapshots import (
    EMPTY,
    FINISHED,
    OperatorState,
    SubtaskState,
)
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
from tidegate.checkpoint.provenance import Provenance, to_master_state
from tidegate.checkpoint.restore.assignment import NOTHING, assign, coordinator_states
from tidegate.checkpoint.restore.fitting import fit
from tidegate.errors import MaxParallelismChanged, OperatorMissing, RestoreRefused
from tidegate.model.files import FileChecksum
from tidegate.model.ids import OperatorId, SubtaskId, VertexId
from tidegate.model.topology import OperatorInfo, Partitioner

if TYPE_CHECKING:
    from tidegate.model.restore import SubtaskRestore


def finished(operator_id: OperatorId, **fields: object) -> OperatorState:
    return operator(operator_id, parallelism=2, fully_finished=True, **fields)


def keyed(subtask: int, parallelism: int) -> SubtaskState:
    key_groups = KeyGroupRange.of(subtask, parallelism, 128)
    offsets = tuple(10 * key_group for key_group in key_groups)
    return SubtaskState(
        managed_keyed=KeyGroupsStateHandle(key_groups, offsets, FILE, f"old{subtask}")
    )


def named(name: str, mode: StateDistribution, *offsets: int) -> SubtaskState:
    delegate = ByteStreamStateHandle("the same name everywhere", b"and the same bytes")
    states = {name: StateMetaInfo(mode, offsets)}
    return SubtaskState(managed_operator=OperatorStreamStateHandle(states, delegate))


def offsets_of(
    assigned: dict[SubtaskId, SubtaskRestore], operator_id: OperatorId, name: str
) -> list[list[int]]:
    """Of each subtask that the operator heads: the offsets of all elements of a state."""
    return [
        [
            offset
            for handle in restore.operators.get(operator_id, NOTHING).managed_operator
            for offset in handle.states[name].offsets
        ]
        for subtask, restore in assigned.items()
        if subtask.vertex == operator_id
    ]


def test_with_the_same_parallelism_everybody_gets_its_own_state_back() -> None:
    first, second = keyed(0, 2), keyed(1, 2)
    assigned = assign(snapshot(operator(COUNT, first, second)), job())
    assert list(assigned) == [
        SubtaskId(VertexId(v), index) for v in (SOURCE, COUNT) for index in (0, 1)
    ]
    for index, state in enumerate((first, second)):
        restore = assigned[SubtaskId(VertexId(COUNT), index)]
        assert restore.operators[COUNT].managed_keyed == (state.managed_keyed,)
        assert list(restore.operators) == [COUNT] and not restore.finished
        assert assigned[SubtaskId(VertexId(SOURCE), index)].operators == {}


def test_each_subtask_gets_the_checksums_of_its_segments_of_a_file() -> None:
    segments = [SegmentFileStateHandle("/a/f", at, 9, StateScope.EXCLUSIVE, "l") for at in (0, 9)]
    states = [
        SubtaskState(managed_operator=OperatorStreamStateHandle({}, segment))
        for segment in segments
    ]
    known = {f"/a/f{segment}": FileChecksum(7, 9) for segment in ("", "@0", "@9", "@18")}
    taken = replace(
        snapshot(operator(COUNT, *states)),
        master_states=(to_master_state(Provenance({}, known)),),
    )
    assigned = assign(taken, job())
    found = [assigned[SubtaskId(VertexId(COUNT), index)].checksums for index in (0, 1)]
    assert found == [{"/a/f@0": FileChecksum(7, 9)}, {"/a/f@9": FileChecksum(7, 9)}]


def test_at_twice_the_parallelism_every_key_group_is_found_once() -> None:
    topology = job(count=vertex(OperatorInfo(COUNT, "count"), parallelism=4))
    assigned = assign(snapshot(operator(COUNT, keyed(0, 2), keyed(1, 2))), topology)
    found: list[tuple[int, int]] = []
    for index in range(4):
        restore = assigned[SubtaskId(VertexId(COUNT), index)]
        for handle in restore.operators[COUNT].managed_keyed:
            assert isinstance(handle, KeyGroupsStateHandle)
            found += [(key_group, handle.offset_of(key_group)) for key_group in handle.key_groups]
            own = KeyGroupRange.of(index, 4, 128)
            assert handle.key_groups.intersection(own) == handle.key_groups
    assert found == [(key_group, 10 * key_group) for key_group in range(128)]


def test_elements_of_equal_streams_are_not_taken_for_one() -> None:
    state = named("splits", StateDistribution.SPLIT_DISTRIBUTE, 1, 2)
    shrunk = job(source=vertex(OperatorInfo(SOURCE, "flights"), parallelism=1))
    assigned = assign(snapshot(operator(SOURCE, state, state)), shrunk)
    assert offsets_of(assigned, SOURCE, "splits") == [[1, 2, 1, 2]]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_union_state_goes_to_everybody(parallelism: int) -> None:
    state = operator(
        SOURCE,
        named("all", StateDistribution.UNION, 1),
        named("all", StateDistribution.UNION, 2, 3),
    )
    topology = job(source=vertex(OperatorInfo(SOURCE, "flights"), parallelism=parallelism))
    assigned = assign(snapshot(state), topology)
    assert [sorted(found) for found in offsets_of(assigned, SOURCE, "all")] == [
        [1, 2, 3]
    ] * parallelism


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_broadcast_state_goes_to_everybody_once(parallelism: int) -> None:
    state = named("rules", StateDistribution.BROADCAST, 7)
    topology = job(source=vertex(OperatorInfo(SOURCE, "flights"), parallelism=parallelism))
    assigned = assign(snapshot(operator(SOURCE, state, state)), topology)
    assert offsets_of(assigned, SOURCE, "rules") == [[7]] * parallelism


def put_away(elements: dict[str, tuple[StateDistribution, list[int]]]) -> SubtaskState:
    """A subtask's operator state, an element a byte."""
    data, states = bytearray(), dict[str, StateMetaInfo]()
    for name, (mode, values) in elements.items():
        states[name] = StateMetaInfo(mode, tuple(range(len(data), len(data) + len(values))))
        data += bytes(values)
    stream = ByteStreamStateHandle("h", bytes(data))
    return SubtaskState(managed_operator=OperatorStreamStateHandle(states, stream))


def take_back(restore: SubtaskRestore) -> dict[str, tuple[StateDistribution, list[int]]]:
    """What `put_away` was given, read at the offsets that the subtask was assigned."""
    elements: dict[str, tuple[StateDistribution, list[int]]] = {}
    for handle in restore.operators[SOURCE].managed_operator:
        assert isinstance(handle.delegate, ByteStreamStateHandle)
        for name, info in handle.states.items():
            values = [handle.delegate.data[offset] for offset in info.offsets]
            elements.setdefault(name, (info.mode, []))[1].extend(values)
    return elements


@pytest.mark.feature("F206", "F259")
def test_operator_state_is_whole_after_2_3_and_1_subtasks() -> None:
    def elements(split: list[int], union: list[int]) -> SubtaskState:
        return put_away(
            {
                "list": (StateDistribution.SPLIT_DISTRIBUTE, split),
                "union": (StateDistribution.UNION, union),
                "rules": (StateDistribution.BROADCAST, [7, 8]),
            }
        )

    states = [elements([1, 2, 3, 4, 5], [20]), elements([6, 7], [30])]
    for parallelism in (3, 1):
        data = metadata.encode(snapshot(operator(SOURCE, *states)))
        topology = job(source=vertex(OperatorInfo(SOURCE, "flights"), parallelism=parallelism))
        assigned = assign(metadata.decode(data, str), topology)
        found = [take_back(assigned[SubtaskId(VertexId(SOURCE), i)]) for i in range(parallelism)]
        assert [sorted(f["union"][1]) for f in found] == [[20, 30]] * parallelism
        assert [f["rules"][1] for f in found] == [[7, 8]] * parallelism
        split = [f["list"][1] for f in found]
        assert sorted(value for part in split for value in part) == [1, 2, 3, 4, 5, 6, 7]
        assert max(map(len, split)) - min(map(len, split)) <= 1
        # As an operator would, a subtask keeps of the union only what it finds to be its own.
        states = [
            elements(part, [20, 30] if index == 0 else []) for index, part in enumerate(split)
        ]


def test_a_finished_subtask_leaves_its_split_state_with_nobody() -> None:
    state = named("splits", StateDistribution.SPLIT_DISTRIBUTE, 1, 2)
    assigned = assign(snapshot(operator(SOURCE, FINISHED, state)), job())
    assert offsets_of(assigned, SOURCE, "splits") == [[], [1, 2]]


def test_a_vertex_that_had_finished_is_restored_as_finished() -> None:
    assigned = assign(snapshot(finished(SOURCE)), job())
    assert [restore.finished for restore in assigned.values()] == [True, True, False, False]


def test_a_vertex_of_which_one_operator_had_finished_is_refused() -> None:
    with pytest.raises(RestoreRefused, match="mixed finished and unfinished"):
        assign(snapshot(finished(COUNT), operator(SINK, EMPTY, EMPTY)), job())


def test_a_coordinator_gets_its_bytes_and_a_new_one_none() -> None:
    stored = ByteStreamStateHandle("coordinator", b"splits")
    assert coordinator_states(snapshot(operator(SOURCE, coordinator_state=stored)), job()) == {
        SOURCE: b"splits"
    }
    assert coordinator_states(snapshot(), job()) == {SOURCE: None}


def test_a_hash_that_the_user_set_finds_the_state_before_the_operator_s_own_id() -> None:
    old = OperatorId(b"\xaa" * 16)
    topology = job(count=vertex(OperatorInfo(COUNT, "count", uid_hash=old)))
    renamed = operator(old, keyed(0, 2), keyed(1, 2))
    for states in ((renamed,), (operator(COUNT, EMPTY, EMPTY), renamed)):
        assert fit(snapshot(*states), topology) == topology
        restore = assign(snapshot(*states), topology)[SubtaskId(VertexId(COUNT), 1)]
        assert restore.operators[COUNT].managed_keyed == (keyed(1, 2).managed_keyed,)


CHANNEL = SubtaskState(input_channel=(InputChannelStateHandle(0, 0, 0, (4,), 9, FILE),))
OUTPUT = SubtaskState(result_subpartition=(ResultSubpartitionStateHandle(0, 0, 0, (4,), 9, FILE),))


@pytest.mark.parametrize("state", [operator(SINK, CHANNEL, EMPTY), operator(COUNT, EMPTY, OUTPUT)])
def test_in_flight_data_within_what_is_now_a_chain_is_refused(state: OperatorState) -> None:
    with pytest.raises(RestoreRefused, match="are now chained") as caught:
        assign(snapshot(state), job())
    assert state.operator_id.hex() in caught.value.where


GONE = OperatorId(b"\x09" * 16)


@pytest.mark.parametrize(
    "renamed",
    [
        OperatorInfo(COUNT, "count", uid="counter"),
        OperatorInfo(COUNT, "counts"),
    ],
)
def test_state_without_an_operator_is_refused_naming_the_likely_one(renamed: OperatorInfo) -> None:
    taken = snapshot(
        operator(GONE, keyed(0, 2), keyed(1, 2), name="count", uid="counts"),
        operator(SOURCE, EMPTY, EMPTY),
    )
    with pytest.raises(OperatorMissing) as caught:
        fit(taken, job(count=vertex(renamed, OperatorInfo(SINK, "sink"))))
    assert f"operator 'count' (uid 'counts', id {GONE.hex()}, 200 bytes)" in caught.value.what
    assert f"If it is the operator '{renamed.name}'" in caught.value.remedy
    assert "give that one uid('counts')" in caught.value.remedy


def test_all_state_of_an_operator_that_is_missing_is_named() -> None:
    splits = OperatorStreamStateHandle(
        {"splits": StateMetaInfo(StateDistribution.SPLIT_DISTRIBUTE, (4,))}, FILE
    )
    state = replace(keyed(0, 1), managed_operator=splits)
    coordinator = ByteStreamStateHandle("c", b"x")
    taken = snapshot(operator(GONE, state, coordinator_state=coordinator))
    with pytest.raises(OperatorMissing) as caught:
        fit(taken, job(), keyed_names={GONE: ["counts", "totals"]})
    assert (
        "with keyed state 'counts', 'totals' and operator state 'splits' and coordinator state"
        in caught.value.what
    )


def test_state_of_an_operator_without_uid_is_to_be_taken_over_by_its_hash() -> None:
    with pytest.raises(OperatorMissing) as caught:
        fit(snapshot(operator(GONE, keyed(0, 1))), job())
    assert f"set_uid_hash('{GONE.hex()}')" in caught.value.remedy


def test_every_operator_that_is_missing_is_named_at_once() -> None:
    other = OperatorId(b"\x08" * 16)
    stored = ByteStreamStateHandle("c", b"x")
    taken = snapshot(operator(GONE, keyed(0, 1)), operator(other, coordinator_state=stored))
    with pytest.raises(OperatorMissing) as caught:
        fit(taken, job())
    assert GONE.hex() in caught.value.what and other.hex() in caught.value.what


def test_state_without_an_operator_is_dropped_where_that_is_allowed() -> None:
    taken = snapshot(operator(GONE, keyed(0, 2), keyed(1, 2)))
    assert fit(taken, job(), allow_unclaimed_state=True) == job()
    assert all(restore.operators == {} for restore in assign(taken, job()).values())


def test_an_operator_that_had_no_state_may_go() -> None:
    assert fit(snapshot(operator(GONE, EMPTY, FINISHED)), job()) == job()


@pytest.mark.feature("F260")
def test_a_max_parallelism_that_nobody_set_is_taken_over_from_the_snapshot() -> None:
    taken = snapshot(operator(COUNT, keyed(0, 1), max_parallelism=512))
    fitted = fit(taken, job())
    assert [v.max_parallelism for v in fitted.vertices] == [128, 512]
    assert fitted.edges == job().edges


@pytest.mark.feature("F260")
def test_a_max_parallelism_that_was_set_must_be_the_snapshot_s() -> None:
    count = vertex(OperatorInfo(COUNT, "count"), max_parallelism=256, max_parallelism_set=True)
    taken = snapshot(operator(COUNT, keyed(0, 1)))
    with pytest.raises(MaxParallelismChanged, match="max parallelism 128 to new program with max"):
        fit(taken, job(count=count))


def test_a_parallelism_above_the_snapshot_s_max_parallelism_is_refused() -> None:
    count = vertex(OperatorInfo(COUNT, "count"), parallelism=5, max_parallelism=8)
    taken = snapshot(operator(COUNT, EMPTY, max_parallelism=4))
    with pytest.raises(MaxParallelismChanged, match=r"\(4\).*lower than the configured.*\(5\)"):
        fit(taken, job(count=count))


def test_one_chain_cannot_have_keyed_state_in_two_numbers_of_key_groups() -> None:
    states = (
        operator(COUNT, keyed(0, 1), max_parallelism=128),
        operator(SINK, keyed(0, 1), max_parallelism=256),
    )
    with pytest.raises(MaxParallelismChanged, match="different max"):
        fit(snapshot(*states), job())


RUNNING = operator(SOURCE, EMPTY, EMPTY)
PARTLY = operator(SOURCE, FINISHED, EMPTY)
ALL_BEHIND = (finished(COUNT), finished(SINK))
SOME_BEHIND = (operator(COUNT, FINISHED), operator(SINK, FINISHED))
NONE_BEHIND = (operator(COUNT, EMPTY), operator(SINK, EMPTY))


@pytest.mark.parametrize(
    ("producer", "consumer", "partitioner", "fits"),
    [
        (finished(SOURCE), ALL_BEHIND, Partitioner.HASH, True),
        (RUNNING, ALL_BEHIND, Partitioner.HASH, False),
        (PARTLY, ALL_BEHIND, Partitioner.FORWARD, False),
        (PARTLY, SOME_BEHIND, Partitioner.HASH, False),
        (PARTLY, SOME_BEHIND, Partitioner.FORWARD, True),
        (RUNNING, SOME_BEHIND, Partitioner.RESCALE, False),
        (PARTLY, NONE_BEHIND, Partitioner.HASH, True),
    ],
)
def test_nothing_that_runs_may_stand_in_front_of_what_has_finished(
    producer: OperatorState,
    consumer: tuple[OperatorState, OperatorState],
    partitioner: Partitioner,
    fits: bool,
) -> None:
    topology = job(partitioner=partitioner)
    taken = snapshot(producer, *consumer)
    if fits:
        assert fit(taken, topology) == topology
        return
    with pytest.raises(RestoreRefused, match="Illegal JobGraph modification"):
        fit(taken, topology)


def test_operators_of_a_vertex_that_differ_in_how_far_they_had_come_are_refused() -> None:
    with pytest.raises(RestoreRefused, match=r"\['ALL_RUNNING', 'FULLY_FINISHED'\]"):
        fit(snapshot(finished(COUNT)), job())
