"""Canonical state of Flink, written by us: the bytes of Flink's own savepoints again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from golden import FIXTURES

from flinkformat.handles import KeyGroupsSavepointStateHandle
from flinkformat.metadata.wire import Reader
from flinkformat.snapshots import FINISHED
from flinkformat.state.headers import read_keyed_header
from flinkformat.state.operator_state import operator_states, write_operator_states
from flinkformat.state.sections import canonical_entries, write_canonical_keyed
from tests.flink.job_states import opened
from tidegate.storage.state_files import StateFiles

if TYPE_CHECKING:
    from flinkformat.state.entries import FlinkEntry
    from tidegate.snapshots.flink_snapshot import FlinkSnapshot

CANONICAL = sorted(path.parent.name for path in FIXTURES.glob("*-savepoint-canonical/state.json"))
FILES = StateFiles()


def keyed_handles(snapshot: FlinkSnapshot) -> list[tuple[int, KeyGroupsSavepointStateHandle]]:
    found = [
        (operator.max_parallelism, subtask.managed_keyed)
        for operator in snapshot.operators
        for subtask in operator.subtasks.values()
        if subtask is not FINISHED
    ]
    return [(most, h) for most, h in found if isinstance(h, KeyGroupsSavepointStateHandle)]


def read_back(data: bytes, max_parallelism: int, offsets: dict[int, int]) -> list[FlinkEntry]:
    header = read_keyed_header(Reader(data))
    begins = {group: offset for group, offset in offsets.items() if offset}
    ends = [*begins.values(), len(data)][1:]
    return [
        entry
        for (group, begin), end in zip(begins.items(), ends, strict=True)
        for entry in canonical_entries(header, max_parallelism, group, data[begin:end], "again")
    ]


@pytest.mark.parametrize("name", CANONICAL)
def test_keyed_state_is_written_as_flink_wrote_it(name: str) -> None:
    snapshot = opened(name)
    parts = [p for o in snapshot.operators for p in snapshot.keyed_state(o)]
    handles = keyed_handles(snapshot)
    assert handles
    for part, (most, handle) in zip(parts, handles, strict=True):
        data, offsets = write_canonical_keyed(part.header, most, part.key_groups, part.entries())
        if part.header.compressed:  # as no two libraries compress alike, it is read again
            assert read_back(
                data, most, dict(zip(handle.key_groups, offsets, strict=True))
            ) == list(part.entries())
        else:
            assert offsets == handle.offsets
            assert data == FILES.read_handle(handle.delegate)


def test_state_of_rocksdb_becomes_the_canonical_savepoint_that_flink_took_of_it() -> None:
    native, canonical = (
        opened(f"keyed-rocks-savepoint-{form}") for form in ("native", "canonical")
    )
    [operator] = [o for o in native.operators if o.uid == "alpha-keyed"]
    parts = list(native.keyed_state(operator))
    handles = keyed_handles(canonical)
    for part, (most, handle) in zip(parts, handles, strict=True):
        data, offsets = write_canonical_keyed(part.header, most, part.key_groups, part.entries())
        assert (data, offsets) == (FILES.read_handle(handle.delegate), handle.offsets)


@pytest.mark.parametrize("name", CANONICAL)
def test_operator_state_is_written_as_flink_wrote_it(name: str) -> None:
    snapshot = opened(name)
    for operator in snapshot.operators:
        for index, states in snapshot.operator_state(operator):
            subtask: Any = operator.subtasks[index]
            handle = subtask.managed_operator
            data, infos = write_operator_states(states)
            again = list(operator_states(infos, data, "again"))
            assert again == states
            if "heapfile" not in name:  # those are compressed
                assert data == FILES.read_handle(handle.delegate)
                assert infos == handle.states
