"""All keyed rows of one operator in memory: its tables by name, their snapshots, their way back.

Restored state stays encoded until the operator requests it by name; unrequested state goes into the
next snapshot unchanged.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, cast

from flinkformat.handles import KeyGroupsStateHandle
from tidegate.errors import FormatError, RestoreRefused
from tidegate.model.ids import CheckpointId
from tidegate.state.format.blocks import COLUMNS, keyed_header, reading, section
from tidegate.state.format.encoding import Keys, paired
from tidegate.state.format.streams import in_streams
from tidegate.state.heap.hashmap import HashMapTable
from tidegate.state.heap.keyed import (
    HeldBytes,
    KeyedSnapshot,
    Live,
    Registered,
    Restored,
    decoded_block,
)
from tidegate.state.heap.pieces import Present
from tidegate.state.user import kinds, ttl
from tidegate.state.user.asked import StatesByName
from tidegate.typeinfo.serializers import SerializerSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from flinkformat.handles import KeyedStateHandle
    from tidegate.api.state import State
    from tidegate.model.elements import Batch, CheckpointOptions
    from tidegate.state.heap.increments import SharedSections
    from tidegate.state.heap.pieces import Missing
    from tidegate.state.log.changelog import ChangeLog
    from tidegate.state.log.log_parts import Base
    from tidegate.state.protocols import WrittenColumns
    from tidegate.state.scope import BesideRows, StateScope, Target
    from tidegate.state.user.asked import Asked
    from tidegate.storage.places import Place
    from tidegate.storage.reading import StateReads

    Changed = Mapping[str, Collection[object]]

_BUSY_SHARE: Final = 4
"""A key group is busy where one in this many of its keys, or more, were written to."""


class HeapBackend:
    """A `protocols.LoggedBackend` in memory.

    shared: what snapshots name again; None where each is a stream of all rows. log: where changes
    go; None where they do not.
    """

    prepares = False

    def __init__(
        self,
        scope: StateScope,
        *,
        shared: SharedSections | None = None,
        log: ChangeLog | None = None,
    ) -> None:
        self._scope = scope
        self._shared = shared
        self._log = log
        self._keys = Keys(scope.key_type, scope.where)
        self._states: dict[str, Registered] = {}
        self._restored: dict[str, list[Restored]] = {}
        self._busy: set[int] = set()
        self._held = HeldBytes()
        self.state = StatesByName(scope.where, self._made).state

    def scan(self, state: str) -> Iterator[tuple[int, object, object]]:
        return self._states[state].table.scan()

    def put(self, state: str, group: int, rows: Sequence[tuple[object, object]]) -> None:
        """Put entries, each behind its key, into a state that was asked for and is empty."""
        keys, values = [key for key, _ in rows], [value for _, value in rows]
        self._states[state].table.load(group, Present(keys, values))

    def entries(self) -> Mapping[str, int]:
        return {
            name: sum(map(state.table.entries, self._scope.key_groups))
            for name, state in list(self._states.items())
        }

    def sizes(self) -> Mapping[str, int]:
        held = self._held.newest
        return {} if held is None else {**dict.fromkeys(list(self._states), 0), **held}

    def figure(self, name: str) -> int | None:
        """There is no library that counts."""

    def before_batch(self, batch: Batch, *, encoding: bool) -> None:
        """Nothing is to be read."""

    def restore(
        self, handles: Sequence[KeyedStateHandle], reader: StateReads
    ) -> list[WrittenColumns]:
        streams = in_streams(handles, self._scope.key_groups, reader.read)
        found = [self._restore(handle, reader) for handle in streams]
        return [columns for columns in found if columns is not None]

    def snapshot(
        self, checkpoint: CheckpointId, options: CheckpointOptions, columns: BesideRows | None
    ) -> KeyedSnapshot:
        if self._shared is None:
            return self._cut(self._scope.whole_stream(checkpoint), columns, {})
        target, changed = self._shared.begin(self._written, checkpoint, options, columns)
        return self._cut(target, columns, changed)

    def on_complete(self, checkpoint: CheckpointId) -> None:
        if self._shared is not None:
            self._shared.named.on_complete(checkpoint)

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        if self._shared is not None:
            self._shared.named.on_aborted(checkpoint)

    def close(self) -> None:
        """Memory needs no giving back."""

    # --- for a log ---

    @property
    def key_type(self) -> bytes | None:
        keys = self._keys.serializer
        return None if keys is None else keys.snapshot().to_bytes()

    @property
    def undrained(self) -> int:
        return sum(state.table.undrained for state in self._states.values())

    def drain(self, rows: int) -> None:
        for state in self._states.values():
            for group in self._scope.key_groups:
                if rows <= 0:
                    return
                pieces = state.table.drain(group, rows, state.kept)
                try:
                    rows -= self._logged(state, group, pieces)
                except BaseException:
                    state.table.undrain(group, pieces)
                    raise

    def cut(self, sealed: Callable[[], None]) -> Tail:
        cut = [(state, state.table.cut()) for state in self._states.values()]
        return Tail(self._logged, [(state, groups) for state, groups in cut if groups], sealed)

    def whole(self, checkpoint: CheckpointId, number: CheckpointId) -> KeyedSnapshot:
        del number
        return self._cut(self._scope.whole_stream(checkpoint), None, {})

    def base(self, base: Base, place: Place) -> KeyedSnapshot:
        groups = frozenset(self._scope.key_groups)
        live = [Live(state, groups, partial(_current, state)) for state in self._states.values()]
        target = self._scope.base_stream(CheckpointId(base.number), place.new_name())
        return self._snapshot(live, self._unclaimed(), target, None, {})

    def _logged(self, state: Registered, group: int, pieces: Iterable[Present | Missing]) -> int:
        """Log entries of a key group; gives their number."""
        assert self._log is not None, "nothing is drained without a log"
        count = 0
        for piece in pieces:
            block = state.block(piece, 0, self._scope.where)
            keys, values = bytes(block.keys), bytes(block.values)
            self._log.append(group, state.header, block.kind, block.rows, keys, values)
            count += block.rows
        return count

    # --- snapshots ---

    def _cut(
        self, target: Target, columns: BesideRows | None, changed: Mapping[int, Changed]
    ) -> KeyedSnapshot:
        """The quick part of a snapshot: in proportion to the key groups.

        changed: key groups of which this one has only some keys, by state, for an earlier one
        holds the others as they are.
        """
        live: list[Live] = []
        for state in self._states.values():
            name = state.header.name
            only = {group: keys[name] for group, keys in changed.items() if name in keys}
            kept = changed.keys() - only.keys()
            groups = frozenset(state.table.freeze(kept, only, self._busy))
            live.append(Live(state, groups, partial(_frozen, state, only)))
        left = self._unclaimed()
        if not left and not changed and not any(each.groups for each in live):
            live = []
        return self._snapshot(live, left, target, columns, changed)

    def _snapshot(
        self,
        live: list[Live],
        left: list[Restored],
        target: Target,
        columns: BesideRows | None,
        partly: Mapping[int, Changed],
    ) -> KeyedSnapshot:
        key = self._learned_key_type() if live or left else None
        scope, held = self._scope, self._held
        return KeyedSnapshot(scope, key, live, left, target, held, columns, partly=partly)

    def _learned_key_type(self) -> bytes | None:
        """Snapshot of the keys' serializer, learned from the first entry if it is not known yet."""
        for state in self._states.values() if self._keys.serializer is None else ():
            for _, key, _ in state.table.scan():
                state.keys_of(key)
                return self.key_type
        return self.key_type

    def _written(self) -> dict[int, dict[str, Collection[object]] | None]:
        """Keys that may have been written since the last snapshot, if tracked.

        By key group and state the keys; None for any key of any state of a group.
        """
        found: dict[int, dict[str, Collection[object]]] = {}
        told: dict[int, bool] = {}
        for name, state in self._states.items():
            for group, keys in state.table.written().items():
                told[group] = told.get(group, True) and keys is not None
                found.setdefault(group, {})[name] = keys or ()
        self._busy = {
            group for group, states in found.items() if told[group] and self._is_busy(group, states)
        }
        return {
            group: states if told[group] and group not in self._busy else None
            for group, states in found.items()
        }

    def _is_busy(self, group: int, written: Mapping[str, Collection[object]]) -> bool:
        entries = sum(state.table.entries(group) for state in self._states.values())
        return sum(map(len, written.values())) * _BUSY_SHARE > entries

    def _unclaimed(self) -> list[Restored]:
        """Restored states that nobody has requested.

        It is in memory from the first snapshot on: once that is complete, the file that it was
        read from may be deleted, where a file that is looked at does not outlive its name (NFS).
        """
        self._restored = {
            name: [each.in_memory() for each in parts] for name, parts in self._restored.items()
        }
        return [restored for parts in self._restored.values() for restored in parts]

    # --- tables ---

    def _made(self, asked: Asked) -> State:
        descriptor, namespace, scope = asked.descriptor, asked.namespace, self._scope
        table = HashMapTable(
            scope.cell if namespace is None else scope.pair_cell,
            scope.key_groups,
            scope.max_parallelism,
            copy=kinds.entry_copier(ttl.stored(descriptor)),
            tracked=self._shared is not None,
            logged=self._log is not None,
        )
        view, kept = ttl.view(descriptor, table, scope.clock.wall_ms)
        state = Registered(
            descriptor, self._keys, namespace, table, asked.entries, asked.header, kept
        )
        for restored in self._restored.get(descriptor.name, ()):
            asked.check_restored(restored.header.kind, restored.header.namespace)
            self._load(state, restored, asked.where)
        self._restored.pop(descriptor.name, None)
        if self._keys.serializer is not None and not self._keys.declared:
            table.check_first_key(self._keys.check if namespace is None else self._check_pair)
        self._states[descriptor.name] = state
        return view

    def _check_pair(self, pair: object) -> None:
        self._keys.check(cast("tuple[object, object]", pair)[0])

    def _load(self, state: Registered, restored: Restored, where: str) -> None:
        assert self._keys.serializer is not None, "what was restored has told the type of its keys"
        old = SerializerSnapshot.from_bytes(restored.header.serializer)
        values = ttl.reader(
            old,
            state.descriptor,
            had_times=restored.header.ttl,
            timed_ms=self._scope.clock.wall_ms(),
            where=where,
        )
        keys = paired(self._keys.serializer, state.namespace)
        for group, block in restored.blocks:
            with reading(where):
                state.table.load(group, decoded_block(block, keys, values, where))

    def _restore(self, handle: KeyedStateHandle, reader: StateReads) -> WrittenColumns | None:
        where = self._scope.where
        if not isinstance(handle, KeyGroupsStateHandle):
            raise RestoreRefused(
                f"Keyed state in the form of {type(handle).__name__} can't be read by the HashMap"
                " backend",
                where=where,
                remedy="Set state.backend.type: rocksdb if that has written it, or start from a "
                "savepoint in canonical form ('tidegate savepoint --type canonical').",
            )
        name = handle.delegate.physical_id
        data = reader.view(handle.delegate)
        header = keyed_header(data, name)
        if header.key is not None:
            self._keys.restore(header.key)
        states = [Restored(state) for state in header.states]
        columns: list[tuple[int, memoryview]] = []
        for group in handle.key_groups.intersection(self._scope.key_groups):
            offset = handle.offset_of(group)
            for block in section(data, offset, group, name) if offset else ():
                if block.kind == COLUMNS:
                    columns.append((group, memoryview(block.values)))
                elif block.state < len(states):
                    states[block.state].blocks.append((group, block))
                else:
                    raise FormatError(
                        "A block of keyed state is of no state", where=name, offset=offset
                    )
        for state in states:
            self._restored.setdefault(state.header.name, []).append(state)
        return None if header.columns is None else (header.columns, columns)


class Tail:
    """Entries written before a barrier and not logged yet; a `pending.Pending`.

    log: takes some of them. sealed: called once all are logged, and nothing that was written later.
    """

    def __init__(
        self,
        log: Callable[[Registered, int, Iterable[Present | Missing]], int],
        cut: list[tuple[Registered, list[int]]],
        sealed: Callable[[], None],
    ) -> None:
        self._log = log
        self._cut = cut
        self._sealed = sealed

    def steps(self, rows: Callable[[], int]) -> Iterator[int]:
        for state, groups in self._cut:
            for group in groups:
                for piece in state.table.tail(group, rows, state.kept):
                    yield self._log(state, group, [piece])
        self._sealed()

    def thaw(self) -> None:
        """Entries that are not logged yet count as written after the barrier."""
        for state, _ in self._cut:
            state.table.thaw()

    def upload(self, place: Place) -> None:
        """The log writes its entries."""

    def cancel(self) -> None:
        """The log keeps what it has."""


def _frozen(
    state: Registered,
    only: Mapping[int, Collection[object]],
    group: int,
    rows: Callable[[], int],
) -> Iterator[Present | Missing]:
    return state.table.pieces(group, rows, state.kept, only.get(group))


def _current(state: Registered, group: int, rows: Callable[[], int]) -> Iterator[Present]:
    return state.table.current(group, rows, state.kept)
