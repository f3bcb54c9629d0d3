"""Whatever the bytes of state are: they mean something, or are refused at a byte, and soon."""

from __future__ import annotations

import shutil
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from golden import FIXTURES
from hypothesis import given
from hypothesis import strategies as st

from flinkformat.handles import KeyGroupsSavepointStateHandle, KeyGroupsStateHandle
from flinkformat.metadata.wire import Reader
from flinkformat.snapshots import FINISHED
from flinkformat.state import snappy
from flinkformat.state.headers import read_keyed_header
from flinkformat.state.operator_state import operator_states
from flinkformat.state.sections import canonical_entries, heap_entries
from tests.flink.job_states import opened
from tests.properties import examples
from tidegate.errors import FormatError, RestoreRefused, StorageFailed
from tidegate.snapshots.flink_snapshot import FlinkSnapshot
from tidegate.storage.state_files import StateFiles

if TYPE_CHECKING:
    from pathlib import Path

FILES = StateFiles()
NAMES = [
    "keyed-heap-chk1",
    "keyed-heapfile-chk1",
    "keyed-heapfile-savepoint-canonical",
    "types-heap-chk",
    "types-heap-savepoint-canonical",
    "pyflink-savepoint-canonical",
]


def streams(name: str) -> list[tuple[Any, int, bytes]]:
    """Each stream of keyed state: its handle, the max parallelism, its bytes."""
    found = [
        (operator.max_parallelism, subtask.managed_keyed)
        for operator in opened(name).operators
        for subtask in operator.subtasks.values()
        if subtask is not FINISHED
    ]
    kinds = (KeyGroupsStateHandle, KeyGroupsSavepointStateHandle)
    return [(h, most, FILES.read_handle(h.delegate)) for most, h in found if isinstance(h, kinds)]


STREAMS = [stream for name in NAMES for stream in streams(name)]
edits = st.lists(
    st.tuples(st.integers(0, 1 << 20), st.binary(min_size=1, max_size=6)), min_size=1, max_size=4
)


def damaged(data: bytes, changes: list[tuple[int, bytes]]) -> bytes:
    changed = bytearray(data)
    for place, piece in changes:
        place %= len(changed)
        changed[place : place + len(piece)] = piece
    return bytes(changed)


def read_or_refuse(stream: tuple[Any, int, bytes]) -> int | None:
    """Number of entries, or None where the bytes were refused; other exceptions fail the test."""
    handle, most, data = stream
    begins = {g: o for g, o in zip(handle.key_groups, handle.offsets, strict=True) if o > 0}
    ends = [*begins.values(), len(data)][1:]
    count = 0
    try:
        header = read_keyed_header(Reader(data))
        for (group, begin), end in zip(begins.items(), ends, strict=True):
            section = data[begin:end]
            if isinstance(handle, KeyGroupsSavepointStateHandle):
                entries = canonical_entries(header, most, group, section, "here")
            else:
                entries = heap_entries(header, group, section, "here")
            count += sum(1 for _ in entries)
    except FormatError as error:
        assert 0 <= error.offset <= 1 << 17
        assert error.what and error.expected and error.found and error.where
        return None
    return count


@examples(400)
@given(stream=st.sampled_from(STREAMS), changes=edits)
def test_damaged_keyed_state_is_refused_at_a_byte_or_means_something(
    stream: tuple[Any, int, bytes], changes: list[tuple[int, bytes]]
) -> None:
    handle, most, data = stream
    assert read_or_refuse(stream) is not None
    read_or_refuse((handle, most, damaged(data, changes)))


@given(stream=st.sampled_from(STREAMS), share=st.floats(0, 0.999))
def test_a_stream_that_was_cut_off_is_refused(stream: tuple[Any, int, bytes], share: float) -> None:
    handle, most, data = stream
    if any(handle.offsets):
        assert read_or_refuse((handle, most, data[: int(len(data) * share)])) is None


@examples(200)
@given(
    name=st.sampled_from(["keyed-heap-chk1", "keyed-heapfile-chk1", "pyflink-chk"]), changes=edits
)
def test_damaged_operator_state_is_refused_or_means_something(
    name: str, changes: list[tuple[int, bytes]]
) -> None:
    for operator in opened(name).operators:
        for subtask in operator.subtasks.values():
            handle: Any = None if subtask is FINISHED else subtask.managed_operator
            if handle is None:
                continue
            data = damaged(FILES.read_handle(handle.delegate), changes)
            try:
                list(operator_states(handle.states, data, "here"))
            except FormatError as error:
                assert error.offset >= 0 and error.expected and error.found


@pytest.mark.parametrize("number", [0x7FFFFFFF, 0x00FFFFFF])
def test_no_number_anywhere_makes_a_reader_take_more_than_the_stream_is_worth(number: int) -> None:
    handle, most, data = min((s for s in STREAMS if read_or_refuse(s)), key=lambda s: len(s[2]))
    lie = number.to_bytes(4, "big", signed=True)
    tracemalloc.start()
    try:
        for place in range(0, len(data) - 4, 5):
            read_or_refuse((handle, most, data[:place] + lie + data[place + 4 :]))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 60 * len(data) + 200_000


@given(data=st.binary(max_size=300))
def test_noise_is_no_compressed_stream_or_means_something(data: bytes) -> None:
    try:
        list(snappy.chunks(data, 0, len(data), "here"))
    except FormatError as error:
        assert 0 <= error.offset <= len(data)


@given(data=st.binary(max_size=200_000))
def test_what_was_compressed_is_read_again(data: bytes) -> None:
    packed = snappy.compressed(data)
    assert b"".join(plain for _, plain in snappy.chunks(packed, 0, len(packed), "here")) == data


@pytest.mark.parametrize(
    ("victim", "harm"),
    [
        (victim, harm)
        for victim in ("CURRENT", "MANIFEST", "OPTIONS", "sst")
        for harm in ("gone", "cut", "changed")
        if (victim, harm) != ("OPTIONS", "changed")  # nobody reads it
    ],
)
def test_a_damaged_database_is_refused(victim: str, harm: str, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "keyed-rocks-savepoint-native", tmp_path / "s")
    snapshot = FlinkSnapshot.open(tmp_path / "s")
    [operator] = [o for o in snapshot.operators if o.uid == "alpha-keyed"]
    handle: Any = next(iter(operator.subtasks.values())).managed_keyed  # type: ignore[union-attr]
    files = [*handle.shared_state, *handle.private_state]
    place = next(f.handle.relative_path for f in files if victim in f.local_path)
    path = tmp_path / "s" / place
    data = path.read_bytes()
    path.unlink()
    if harm == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif harm == "changed":
        path.write_bytes(bytes(byte ^ 0xFF for byte in data[:64]) + data[64:])
    with pytest.raises((FormatError, RestoreRefused)) as caught:
        for part in snapshot.keyed_state(operator):
            list(part.entries())
    assert "operator 'alpha-keyed', subtask 0" in caught.value.where


@examples(100)
@given(changes=edits)
def test_a_damaged_snapshot_is_refused_or_means_something(changes: list[tuple[int, bytes]]) -> None:
    data = (FIXTURES / "keyed-heap-chk1" / "_metadata").read_bytes()
    place = FIXTURES.parent / "nowhere"
    assert not place.exists()
    try:
        snapshot = FlinkSnapshot.decoded(damaged(data, changes), str(place))
        for operator in snapshot.operators:
            list(snapshot.operator_state(operator))
            for part in snapshot.keyed_state(operator):
                list(part.entries())
    except (FormatError, RestoreRefused, StorageFailed) as error:
        assert error.what


def test_offsets_that_lie_take_no_more_memory_than_the_stream(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "keyed-heapfile-chk1", tmp_path / "s")
    snapshot = FlinkSnapshot.open(tmp_path / "s")
    [operator] = [o for o in snapshot.operators if o.uid == "alpha-keyed"]
    subtask: Any = operator.subtasks[0]
    handle = subtask.managed_keyed
    for offsets in [(handle.offsets[0], *[1 << 62] * 3), (1 << 62, *handle.offsets[1:])]:
        lied = replace(subtask, managed_keyed=replace(handle, offsets=offsets))
        with pytest.raises(FormatError):
            for part in snapshot.keyed_state(replace(operator, subtasks={0: lied})):
                list(part.entries())
