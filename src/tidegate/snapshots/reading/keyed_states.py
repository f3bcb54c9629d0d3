"""The keyed states of one operator of a snapshot, over the streams of all its subtasks."""

from __future__ import annotations

import json
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from tidegate.errors import ConfigError, UnsupportedKey
from tidegate.snapshots.reading.keyed_streams import EntryReaders, keyed_streams
from tidegate.snapshots.rows import Rows, StateForm, StateInfo, StateKind, serializer_read
from tidegate.state.format.blocks import COLUMNS, StateHeader, reading
from tidegate.state.format.encoding import paired
from tidegate.state.user.timers import TIMERS, beside_time
from tidegate.state.user.ttl import without_times
from tidegate.typeinfo.arrow import type_of_arrow
from tidegate.typeinfo.convert import Converter, Misfit
from tidegate.typeinfo.descriptions import type_described
from tidegate.typeinfo.evolution import reader_for, with_classes
from tidegate.typeinfo.key_hash import KeyHasher
from tidegate.typeinfo.serializers import SerializerSnapshot
from tidegate.typeinfo.types import LONG, PICKLED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from flinkformat.snapshots import SubtaskState
    from tidegate.snapshots.reading.keyed_streams import KeyedStream, StoredState
    from tidegate.storage.reading import StateReader
    from tidegate.storage.state_files import StateFiles
    from tidegate.typeinfo.serializers import Reader
    from tidegate.typeinfo.types import TypeInformation

    Split = Callable[[Any], tuple[Any, Any]]


class KeyedStates:
    """All keyed states of an operator. where: names it in errors."""

    def __init__(
        self,
        subtasks: Mapping[int, SubtaskState],
        max_parallelism: int,
        files: StateFiles,
        reader: StateReader,
        where: str,
    ) -> None:
        self._subtasks = subtasks
        self._max_parallelism = max_parallelism
        self._files = files
        self._reader = reader
        self._where = where
        # One for each, so that classes stay the same.
        self._serializer = cache(serializer_read)
        self._opened: dict[int, list[KeyedStream]] = {}

    def _streams(self, groups: Collection[int] | None = None) -> Iterator[tuple[int, KeyedStream]]:
        for index, state in self._subtasks.items():
            handle = state.managed_keyed
            if handle is None or not (
                groups is None or any(g in handle.key_groups for g in groups)
            ):
                continue
            if index not in self._opened:
                self._opened[index] = list(keyed_streams(handle, self._files, self._reader))
            yield from ((index, stream) for stream in self._opened[index])

    @cached_property
    def infos(self) -> dict[str, StateInfo]:
        """States by name. Reads headers; raises RestoreRefused, FormatError, StorageFailed."""
        found: dict[str, StateInfo] = {}
        # A subtask without entries does not know the type of undeclared keys.
        for _, stream in sorted(self._streams(), key=lambda each: each[1].key is None):
            for state in stream.states.values():
                if state.name not in found:
                    found[state.name] = self._info(state, stream.key)
            for info in _columns_of(stream):
                found.setdefault(info.name, info)
        return found

    def streams(self) -> list[KeyedStream]:
        return [stream for _, stream in self._streams()]

    def form(self, info: StateInfo) -> StateForm:
        for stream in self.streams():
            if info.name in stream.states and stream.key is not None:
                state = stream.states[info.name]
                newest = state.versions[-1]
                header = StateHeader(
                    state.name, state.kind, newest.serializer, state.namespace, ttl=newest.ttl
                )
                keys, values = self._serializer(stream.key), self._serializer(newest.serializer)
                return StateForm(info, header, keys, values)
        raise ConfigError(
            f"The state '{info.name}' is empty, so the type of its keys is unknown",
            where=self._where,
            remedy="Put it with its descriptor, and key_type.",
        )

    def place_of(self, info: StateInfo, key: object) -> tuple[int, object]:
        """Key group of a key, and the key in the state's form.

        Raises ConfigError for a key that is not of the type.
        """
        key_type = self.infos[info.name].key_type  # that given may lack the classes of records
        assert key_type is not None, "a keyed state has keys"
        try:
            [own] = Converter(key_type).batch([key])
            [plain], [group] = KeyHasher(key_type, self._max_parallelism).keyed([own])
        except (Misfit, UnsupportedKey) as error:
            raise ConfigError(
                f"{key!r} is not a key of the state '{info.name}', whose keys are {key_type}",
                where=self._where,
                remedy="Give a key of that type.",
            ) from error
        return int(group), plain

    def splits(self, bytes_max: int) -> list[range]:
        """Runs of key groups of one subtask, each with about this many bytes at most."""
        found: list[range] = []
        for state in self._subtasks.values():
            handle = state.managed_keyed
            if handle is None:
                continue
            first, count = handle.key_groups.first, len(handle.key_groups)
            parts = max(1, min(count, -(-handle.state_size // bytes_max)))
            ends = [first + count * part // parts for part in range(parts + 1)]
            found += map(range, ends, ends[1:])
        return found

    def rows(self, info: StateInfo, groups: Collection[int] | None) -> Iterator[Rows]:
        """Rows of a state, key group by key group. groups: only these; None for all."""
        for subtask, stream in self._streams(groups):
            wanted = [each for each in stream.key_groups if groups is None or each in groups]
            if not wanted:
                continue
            if info.kind is StateKind.COLUMN:
                yield from self._column(info, subtask, stream, wanted)
            elif info.name in stream.states and stream.key is not None:
                yield from self._entries(info, subtask, stream, wanted)

    def _entries(
        self, info: StateInfo, subtask: int, stream: KeyedStream, groups: Sequence[int]
    ) -> Iterator[Rows]:
        state = stream.states[info.name]
        readers = self._readers(info, state, cast("bytes", stream.key))
        split = _splitter(info.kind)
        for group, found, entries in stream.entries(groups, readers):
            keys, namespaces = found, None
            values, times = entries, None
            if state.namespace is not None:
                keys, namespaces = map(list, zip(*found, strict=True))
            if info.kind is StateKind.TIMERS:
                assert namespaces is not None, "a timer's time is in its namespace"
                values = namespaces
                namespaces = None
                if info.namespace_type is not None:
                    values, namespaces = map(list, zip(*values, strict=True))
            if info.expires:
                values, times = map(list, zip(*map(split, entries), strict=True))
            yield Rows(subtask, group, keys, namespaces, values, times)

    def _namespace(self, state: StoredState) -> TypeInformation | None:
        return None if state.namespace is None else self._serializer(state.namespace).type_info

    def _info(self, state: StoredState, key: bytes | None) -> StateInfo:
        newest = state.versions[-1]
        key_type = PICKLED if key is None else self._serializer(key).type_info
        namespace = self._namespace(state)
        if state.name.startswith(TIMERS):
            return StateInfo(state.name, StateKind.TIMERS, key_type, beside_time(namespace), LONG)
        value_type, kind = self._serializer(newest.serializer).type_info, StateKind(state.kind)
        if newest.ttl:
            value_type = without_times(value_type)
        return StateInfo(state.name, kind, key_type, namespace, value_type, newest.ttl)

    def _readers(self, info: StateInfo, state: StoredState, key: bytes) -> EntryReaders:
        """Readers that convert a stream's entries to the newest version of the state."""
        where = f"{self._where}, state '{info.name}'"
        keys = paired(self._serializer(key), self._namespace(state))
        newest = state.versions[-1]
        target = self._serializer(newest.serializer)
        values: list[Reader] = []
        for version in state.versions:
            if version.ttl != newest.ttl:
                change = (_stamper if newest.ttl else _stripper)(info.kind)
                values.append(_Changed(self._serializer(version.serializer), change))
            elif version.serializer == newest.serializer:
                values.append(target)
            else:
                old = SerializerSnapshot.from_bytes(version.serializer)
                values.append(reader_for(old, target, where=where))
        return EntryReaders(info.name, keys, values, where)

    def _column(
        self, info: StateInfo, subtask: int, stream: KeyedStream, groups: Sequence[int]
    ) -> Iterator[Rows]:
        header = stream.columns
        if header is None:
            return
        schema = pa.ipc.read_schema(pa.py_buffer(header.schema))
        if info.name not in schema.names:
            return
        for group, blocks in stream.sections(groups):
            for block in (each for each in blocks if each.kind == COLUMNS):
                with reading(f"{self._where}, column '{info.name}'"):
                    batch = pa.ipc.read_record_batch(pa.py_buffer(block.values), schema)
                    panes = batch.column(1).to_pylist() if header.panes else None
                    yield Rows(subtask, group, batch.column(0), panes, batch.column(info.name))


def _columns_of(stream: KeyedStream) -> Iterator[StateInfo]:
    header = stream.columns
    if header is None:
        return
    with reading("columns"):
        schema = pa.ipc.read_schema(pa.py_buffer(header.schema))
        key_type = with_classes(type_described(json.loads(schema.field(0).metadata[b"type"])))
        for field in list(schema)[2 if header.panes else 1 :]:
            namespace = LONG if header.panes else None
            value_type = type_of_arrow(field.type)
            yield StateInfo(field.name, StateKind.COLUMN, key_type, namespace, value_type)


class _Changed:
    """Reads entries whose time to live was added or removed since, and converts each."""

    def __init__(self, entries: Reader, change: Callable[[Any], Any]) -> None:
        self._entries = entries
        self._change = change

    def decode_many(self, data: bytes | memoryview) -> list[Any]:
        return list(map(self._change, self._entries.decode_many(data)))

    def decode_each(self, pieces: Iterable[bytes]) -> list[Any]:
        return list(map(self._change, self._entries.decode_each(pieces)))


def _stripper(kind: StateKind) -> Callable[[Any], Any]:
    split = _splitter(kind)
    return lambda entry: split(entry)[0]


def _stamper(kind: StateKind) -> Callable[[Any], Any]:
    match kind:
        case StateKind.LIST:
            return lambda entry: [(None, value) for value in entry]
        case StateKind.MAP:
            return lambda entry: {key: (None, value) for key, value in entry.items()}
        case _:
            return lambda entry: (None, entry)


def _splitter(kind: StateKind) -> Split:
    match kind:
        case StateKind.LIST:
            return lambda entry: ([value for _, value in entry], [ms for ms, _ in entry])
        case StateKind.MAP:
            return lambda entry: (
                {key: value for key, (_, value) in entry.items()},
                {key: ms for key, (ms, _) in entry.items()},
            )
        case _:
            return lambda entry: (entry[1], entry[0])
