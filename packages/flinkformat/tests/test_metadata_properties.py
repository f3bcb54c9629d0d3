from __future__ import annotations

import tracemalloc

import pytest
from golden import FIXTURES
from hypothesis import given
from hypothesis import strategies as st

from flinkformat import metadata
from flinkformat.errors import FormatError
from flinkformat.handles import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandle,
    ChangelogStateHandleStream,
    EmptySegmentFileStateHandle,
    FileMergingOperatorStreamStateHandle,
    FileStateHandle,
    HandleAndLocalPath,
    HandleAndOffset,
    IncrementalRemoteKeyedStateHandle,
    InMemoryChangelogStateHandle,
    InputChannelStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    MergedInputChannelStateHandle,
    MergedResultSubpartitionStateHandle,
    OperatorStreamStateHandle,
    RelativeFileStateHandle,
    ResultSubpartitionStateHandle,
    SegmentFileStateHandle,
    StateChange,
    StateDistribution,
    StateMetaInfo,
    StateScope,
)
from flinkformat.key_groups import KeyGroupRange
from flinkformat.metadata.channels import unmerge_input, unmerge_output
from flinkformat.snapshots import (
    FINISHED,
    CheckpointMetadata,
    CheckpointProperties,
    CheckpointType,
    MasterState,
    OperatorState,
    PostCheckpointAction,
    SavepointFormatType,
    SavepointType,
    SharingFilesStrategy,
    SubtaskState,
)

FILES = {path.parent.name: path.read_bytes() for path in FIXTURES.glob("*/_metadata")}
SMALL = sorted(name for name, data in FILES.items() if len(data) < 6000)


def joined(text: str) -> str:
    """The text as Java has it: two halves of a character side by side are that character."""
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


texts = st.text(st.characters(exclude_categories=()), max_size=12).map(joined)
names = st.none() | texts.filter(bool)
longs = st.integers(-(2**63), 2**63 - 1)
sizes = st.integers(0, 2**63 - 1)
ints = st.integers(-(2**31), 2**31 - 1)
blobs = st.binary(max_size=40)
uuids = st.uuids().map(str)
offsets = st.lists(longs, max_size=5).map(tuple)

plain_streams = st.one_of(
    st.builds(ByteStreamStateHandle, texts, blobs),
    st.builds(FileStateHandle, texts, sizes),
    st.builds(RelativeFileStateHandle, texts, sizes),
    st.builds(EmptySegmentFileStateHandle),
)
segments = st.builds(
    SegmentFileStateHandle, texts, sizes, sizes, st.sampled_from(StateScope), texts
)
streams = plain_streams | segments

ranges = st.builds(
    lambda first, size: KeyGroupRange(first, first + size - 1) if size else KeyGroupRange.empty(),
    st.integers(0, 32000),
    st.integers(0, 9),
)


@st.composite
def key_groups(draw: st.DrawFn) -> KeyGroupsStateHandle:
    key_groups = draw(ranges)
    size = len(key_groups)
    at = tuple(draw(st.lists(longs, min_size=size, max_size=size)))
    return KeyGroupsStateHandle(key_groups, at, draw(streams), draw(texts))


savepoints = key_groups().map(
    lambda handle: KeyGroupsSavepointStateHandle(handle.key_groups, handle.offsets, handle.delegate)
)
files = st.lists(st.builds(HandleAndLocalPath, texts, streams), max_size=3).map(tuple)
incrementals = st.builds(
    IncrementalRemoteKeyedStateHandle, longs, uuids, ranges, sizes, streams, files, files, texts
)
changes = st.one_of(
    st.builds(
        InMemoryChangelogStateHandle,
        ranges,
        longs,
        longs,
        st.lists(st.builds(StateChange, ints, blobs), max_size=3).map(tuple),
        texts,
    ),
    st.builds(
        ChangelogStateHandleStream,
        ranges,
        st.lists(st.builds(HandleAndOffset, longs, streams), max_size=3).map(tuple),
        sizes,
        sizes,
        texts,
        texts,
    ),
)
simple_keyed = st.one_of(key_groups(), savepoints, incrementals, changes)
changelogs = st.builds(
    ChangelogStateBackendHandle,
    ranges,
    st.lists(simple_keyed, max_size=2).map(tuple),
    st.lists(changes, max_size=2).map(tuple),
    longs,
    longs,
    sizes,
    texts,
)
keyed = st.none() | simple_keyed | changelogs

named_states = st.dictionaries(
    texts, st.builds(StateMetaInfo, st.sampled_from(StateDistribution), offsets), max_size=4
)
operator_handles = st.none() | st.one_of(
    st.builds(OperatorStreamStateHandle, named_states, streams),
    st.builds(
        FileMergingOperatorStreamStateHandle,
        named_states,
        texts,
        texts,
        st.booleans(),
        segments | st.builds(EmptySegmentFileStateHandle),
    ),
)
inputs = st.one_of(
    st.builds(InputChannelStateHandle, ints, ints, ints, offsets, sizes, streams),
    st.builds(MergedInputChannelStateHandle, ints, sizes, streams, blobs),
)
outputs = st.one_of(
    st.builds(ResultSubpartitionStateHandle, ints, ints, ints, offsets, sizes, streams),
    st.builds(MergedResultSubpartitionStateHandle, ints, sizes, streams, blobs),
)
subtasks = st.just(FINISHED) | st.builds(
    SubtaskState,
    managed_operator=operator_handles,
    raw_operator=operator_handles,
    managed_keyed=keyed,
    raw_keyed=keyed,
    input_channel=st.lists(inputs, max_size=2).map(tuple),
    result_subpartition=st.lists(outputs, max_size=2).map(tuple),
)


@st.composite
def operators(draw: st.DrawFn) -> OperatorState:
    parallelism = draw(st.integers(1, 4))
    fully_finished = draw(st.booleans())
    indexes = st.integers(0, parallelism - 1)
    coordinator = st.none() | st.builds(ByteStreamStateHandle, texts, blobs)
    return OperatorState(
        operator_id=draw(st.binary(min_size=16, max_size=16)),  # type: ignore[arg-type]
        parallelism=parallelism,
        max_parallelism=draw(st.integers(parallelism, 32768)),
        name=draw(names),
        uid=draw(names),
        coordinator_state=None if fully_finished else draw(coordinator),
        subtasks={} if fully_finished else draw(st.dictionaries(indexes, subtasks, max_size=2)),
        fully_finished=fully_finished,
    )


snapshot_types = st.one_of(
    st.builds(CheckpointType, texts, st.sampled_from(SharingFilesStrategy)),
    st.builds(
        SavepointType,
        texts,
        st.sampled_from(SavepointFormatType),
        st.sampled_from(PostCheckpointAction),
    ),
)
properties = st.none() | st.builds(
    CheckpointProperties,
    snapshot_type=snapshot_types,
    forced=st.booleans(),
    discard_subsumed=st.booleans(),
    discard_finished=st.booleans(),
    discard_cancelled=st.booleans(),
    discard_failed=st.booleans(),
    discard_suspended=st.booleans(),
    unclaimed=st.booleans(),
)
snapshots = st.builds(
    CheckpointMetadata,
    checkpoint_id=sizes,
    operators=st.lists(operators(), max_size=2).map(tuple),
    master_states=st.lists(st.builds(MasterState, texts, ints, blobs), max_size=2).map(tuple),
    properties=properties,
)


def some_id() -> str:
    return "made up"


def decode_or_refuse(data: bytes) -> CheckpointMetadata | None:
    """What the bytes say, or None where they were refused; any other exception fails the test."""
    try:
        decoded = metadata.decode(data, some_id)
        for operator in decoded.operators:
            for state in operator.subtasks.values():
                if state is not FINISHED:
                    for put_in in state.input_channel:
                        unmerge_input(put_in)
                    for put_out in state.result_subpartition:
                        unmerge_output(put_out)
    except FormatError as error:
        assert error.what and error.expected and error.found
        return None
    return decoded


@given(snapshot=snapshots)
def test_what_was_written_is_read_again(snapshot: CheckpointMetadata) -> None:
    data = metadata.encode(snapshot)
    assert metadata.decode(data, some_id) == snapshot
    assert metadata.encode(metadata.decode(data, some_id)) == data


@given(snapshot=snapshots, data=st.data())
def test_a_file_that_was_cut_off_is_refused(
    snapshot: CheckpointMetadata, data: st.DataObject
) -> None:
    whole = metadata.encode(snapshot)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(FormatError):
        metadata.decode(whole[:cut], some_id)


@given(
    name=st.sampled_from(SMALL),
    edits=st.lists(st.tuples(st.integers(0, 6000), st.binary(min_size=1, max_size=8)), max_size=4),
    cuts=st.lists(st.tuples(st.integers(0, 6000), st.integers(0, 30)), max_size=2),
)
def test_damaged_bytes_are_refused_or_mean_something(
    name: str, edits: list[tuple[int, bytes]], cuts: list[tuple[int, int]]
) -> None:
    damaged = bytearray(FILES[name])
    for place, piece in edits:
        place = 4 + place % len(damaged)
        damaged[place : place + len(piece)] = piece
    for place, size in cuts:
        del damaged[place % len(damaged) :][:size]
    decoded = decode_or_refuse(bytes(damaged))
    if decoded is not None:
        assert metadata.decode(metadata.encode(decoded), some_id) == decoded


@given(version=st.integers(2, 6), body=st.binary(max_size=200))
def test_noise_behind_a_right_beginning_is_refused_or_means_something(
    version: int, body: bytes
) -> None:
    decode_or_refuse(bytes.fromhex("4960672d") + version.to_bytes(4) + body)


@pytest.mark.parametrize("name", ["meta-hand-old-keyed-v6", "meta-hand-v2", "meta-hand-order-v6"])
@pytest.mark.parametrize("number", [0x7FFFFFFF, -1, -0x80000000, 0x00FFFFFF])
def test_no_number_anywhere_makes_the_reader_take_more_than_the_file_is_worth(
    name: str, number: int
) -> None:
    whole = FILES[name]
    tracemalloc.start()
    try:
        for place in range(8, len(whole) - 4):
            lie = number.to_bytes(4, signed=True)
            decode_or_refuse(whole[:place] + lie + whole[place + 4 :])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 60 * len(whole) + 200_000
