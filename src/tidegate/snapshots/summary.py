"""Counts the content of a snapshot: ``tidegate inspect``.

Per operator, state and key group, counted without making a value or running code of the job
(`sizes`); types as they stand in the snapshot.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from os import PathLike, fspath
from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from flinkformat.handles import (
    ChangelogStateBackendHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
)
from flinkformat.snapshots import FINISHED, SavepointType
from flinkformat.state_streams import files_of
from tidegate.checkpoint.provenance import hook_states, provenance_of
from tidegate.errors import FormatError, RestoreRefused
from tidegate.snapshots.flink_snapshot import (
    NO_GROUP,
    CountedState,
    FlinkSnapshot,
    counted_states,
)
from tidegate.snapshots.folders import properties_of
from tidegate.snapshots.rows import StateKind, in_flight
from tidegate.snapshots.sizes import Size, is_on_disk, keyed_sizes
from tidegate.snapshots.snapshot import Snapshot
from tidegate.state.format.blocks import element
from tidegate.storage.reading import StateReader
from tidegate.storage.state_files import StateFiles
from tidegate.typeinfo.serializers import unpacked, values_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from flinkformat.handles import KeyedStateHandle
    from flinkformat.snapshots import OperatorState, SubtaskState
    from tidegate.snapshots.rows import StateInfo
    from tidegate.snapshots.snapshot import OperatorInfo
    from tidegate.typeinfo.types import TypeInformation


@frozen
class KeyGroupSummary:
    """Content of a state in one key group.

    size_bytes: as stored, keys included; None in a snapshot of Flink's.
    """

    key_group: int
    entries: int
    size_bytes: int | None


@frozen
class StateSummary:
    """A state of an operator.

    kind: a value of StateKind. key, namespace, value: their types as text; None if there are
    none. entries: keys, timers, elements, batches in flight. size_bytes: as in `KeyGroupSummary`.
    skew: entries of the largest key group by those of the mean one, over all key groups; None
    without key groups or entries. key_groups: those that have entries.
    """

    name: str
    kind: str
    key: str | None
    namespace: str | None
    value: str
    expires: bool
    entries: int
    size_bytes: int | None
    skew: float | None
    largest_key_group: int | None
    key_groups: tuple[KeyGroupSummary, ...]


@frozen
class OperatorSummary:
    """An operator of a snapshot.

    operator_id: 32 hexadecimal digits. backend: what wrote its keyed state; None without any.
    finished: how many of its subtasks had reached their end. timers: of all services.
    in_flight_bytes: of data that barriers had overtaken. coordinator_bytes: of the half that is on
    the driver. size_bytes: of all state, as the snapshot says it. states: None if they are
    Flink's and can't be read; then note says why.
    """

    operator_id: str
    uid: str | None
    name: str | None
    parallelism: int
    max_parallelism: int
    backend: str | None
    finished: int
    timers: int
    in_flight_bytes: int
    coordinator_bytes: int
    files: int
    size_bytes: int
    states: tuple[StateSummary, ...] | None
    note: str = ""


@frozen
class SnapshotSummary:
    """Content of a snapshot.

    kind: as Flink calls it. format: ``CANONICAL`` or ``NATIVE``; None of a checkpoint. job,
    versions: of the writer; None and empty if Flink wrote it. hooks: names of the states of hooks.
    files: number of files. size_bytes: of all state, shared files included. one_in: one key group
    in so many was counted; beyond 1, entries and bytes of keyed states are estimates.
    """

    path: str
    checkpoint: int
    kind: str
    format: str | None
    job: str | None
    versions: Mapping[str, str]
    hooks: tuple[str, ...]
    files: int
    size_bytes: int
    operators: tuple[OperatorSummary, ...]
    one_in: int = 1

    def to_json(self) -> dict[str, object]:
        """The summary as values of JSON."""
        return asdict(self)


def inspect_snapshot(path: str | PathLike[str], *, one_in: int = 1) -> SnapshotSummary:
    """Counts the content of a checkpoint or savepoint. Blocking; reads its keyed state.

    path: the folder, or the ``_metadata`` in it. one_in: counts one key group in so many, and
    estimates sizes of states by these; state on disk is left out then, for its files would have to
    be fetched whole. Raises RestoreRefused if there is none, or a
    file of it is missing, FormatError for bytes that are not what they say, StorageFailed.
    """
    snapshot = Snapshot.open(fspath(path))
    read = snapshot.metadata
    provenance = provenance_of(read)
    facts = {} if provenance is None else provenance.facts
    versions = facts.get("versions")
    kind = properties_of(read).snapshot_type
    states = dict(zip(snapshot.operators, read.operators, strict=True))
    named = set(files_of(read))
    return SnapshotSummary(
        snapshot.path,
        read.checkpoint_id,
        kind.name,
        kind.format.value if isinstance(kind, SavepointType) else None,
        snapshot.job_name,
        {str(k): str(v) for k, v in versions.items()} if isinstance(versions, dict) else {},
        tuple(state.name for state in hook_states(read)),
        len(named),
        read.state_size,
        tuple(_operator(snapshot, info, state, one_in) for info, state in states.items()),
        one_in,
    )


def _operator(
    snapshot: Snapshot, info: OperatorInfo, state: OperatorState, one_in: int
) -> OperatorSummary:
    subtasks = {i: each for i, each in state.subtasks.items() if each is not FINISHED}
    finished = len(state.subtasks) - len(subtasks)
    coordinator = state.coordinator_state
    channels = [
        channel
        for each in subtasks.values()
        for channel in (*each.input_channel, *each.result_subpartition)
    ]
    keyed = [each.managed_keyed for each in subtasks.values() if each.managed_keyed is not None]
    note, states = "", None
    if one_in > 1 and is_on_disk(keyed):
        note = "it is on disk, and all of its files would have to be fetched"
    elif provenance_of(snapshot.metadata) is not None:
        states = _states(snapshot, info, subtasks, keyed, one_in)
    else:
        try:
            states = _states_of_flink(snapshot, state)
        except (FormatError, RestoreRefused) as error:
            note = error.what
    timers = [each for each in states or () if each.kind == StateKind.TIMERS.value]
    return OperatorSummary(
        info.operator_id.hex(),
        info.uid,
        info.name,
        info.parallelism,
        info.max_parallelism,
        _backend(keyed),
        info.parallelism if state.fully_finished else finished,
        sum(each.entries for each in timers),
        sum(channel.state_size for channel in channels),
        0 if coordinator is None else coordinator.state_size,
        len({path for each in subtasks.values() for path in files_of(each)}),
        state.state_size,
        states,
        note,
    )


def _backend(handles: Iterable[KeyedStateHandle]) -> str | None:
    for handle in handles:
        match handle:
            case KeyGroupsStateHandle():
                return "hashmap"
            case KeyGroupsSavepointStateHandle():
                return "canonical"
            case IncrementalRemoteKeyedStateHandle(private_state=private):
                return "rocksdb" if private else "hashmap, incremental"
            case ChangelogStateBackendHandle():
                return "changelog"
            case _:
                return None
    return None


def _states(
    snapshot: Snapshot,
    info: OperatorInfo,
    subtasks: Mapping[int, SubtaskState],
    keyed: Iterable[KeyedStateHandle],
    one_in: int,
) -> tuple[StateSummary, ...]:
    where = f"{snapshot.path}, operator '{info}'"
    files = StateFiles()
    reader = StateReader(files, {}, where=where)
    sizes = keyed_sizes(keyed, files, reader, one_in)
    found: list[StateSummary] = []
    for each in snapshot.states(info):
        if each.kind.is_keyed:
            of_groups = sizes.get(each.name, {})
        elif each.kind in (StateKind.INPUT_CHANNELS, StateKind.OUTPUT_CHANNELS):
            of_groups = {NO_GROUP: _sum(_in_flight(each, subtasks))}
        else:
            of_groups = {NO_GROUP: _sum(_elements(each, subtasks, reader))}
        counted = CountedState(
            each.name,
            each.kind.value,
            _shown(each.key_type),
            _shown(each.namespace_type),
            str(each.value_type),
            Counter({group: size.entries for group, size in of_groups.items()}),
        )
        made = _summary(counted, of_groups, info.max_parallelism)
        if each.kind.is_keyed and one_in > 1:
            made = _estimated(made, one_in)
        found.append(replace(made, expires=each.expires))
    return tuple(found)


def _states_of_flink(snapshot: Snapshot, operator: OperatorState) -> tuple[StateSummary, ...]:
    states = counted_states(FlinkSnapshot(snapshot.path, snapshot.metadata), operator)
    return tuple(_summary(state, None, operator.max_parallelism) for state in states)


def _summary(
    state: CountedState, sizes: Mapping[int, Size] | None, max_parallelism: int
) -> StateSummary:
    """Summary of a state without times. sizes: by key group as its counts; None if unknown."""
    groups = {group: count for group, count in state.groups.items() if group != NO_GROUP}
    largest = max(groups, key=lambda group: (groups[group], -group), default=None)
    skew = None
    if largest is not None:
        skew = round(groups[largest] * max_parallelism / sum(groups.values()), 3)
    return StateSummary(
        state.name,
        state.kind,
        state.key,
        state.namespace,
        state.value,
        expires=False,
        entries=state.groups.total(),
        size_bytes=None if sizes is None else _sum(sizes.values()).size_bytes,
        skew=skew,
        largest_key_group=largest,
        key_groups=tuple(
            KeyGroupSummary(group, count, None if sizes is None else sizes[group].size_bytes)
            for group, count in sorted(groups.items())
        ),
    )


def _estimated(counted: StateSummary, one_in: int) -> StateSummary:
    """A state of which one key group in so many was counted."""
    size, skew = counted.size_bytes, counted.skew
    return replace(
        counted,
        entries=counted.entries * one_in,
        size_bytes=None if size is None else size * one_in,
        skew=None if skew is None else round(skew / one_in, 3),
    )


def _sum(sizes: Iterable[Size]) -> Size:
    total = Size()
    for size in sizes:
        total.add(size.entries, size.size_bytes)
    return total


def _shown(type_info: TypeInformation | None) -> str | None:
    return None if type_info is None else str(type_info)


def _elements(
    info: StateInfo, subtasks: Mapping[int, SubtaskState], reader: StateReader
) -> Iterator[Size]:
    """Elements of each subtask; for a broadcast state, of one, since all are equal."""
    for state in subtasks.values():
        handle = state.managed_operator
        if handle is None or info.name not in handle.states:
            continue
        data, where = memoryview(reader.read(handle.delegate)), handle.delegate.physical_id
        found = [element(data, at, where) for at in handle.states[info.name].offsets]
        broadcast = info.kind is StateKind.BROADCAST
        yield Size(sum(map(_entries_in, found)) if broadcast else len(found), sum(map(len, found)))
        if broadcast and found:
            return


def _entries_in(piece: memoryview) -> int:
    """Entries of a broadcast map; one if the map is pickled."""
    if values_in(piece) is None:
        return 1
    return sum(len(each) for each in unpacked(piece[1:]))


def _in_flight(info: StateInfo, subtasks: Mapping[int, SubtaskState]) -> Iterator[Size]:
    for state in subtasks.values():
        for _, channel in in_flight(info.kind, state):
            yield Size(len(channel.offsets), channel.state_size)
