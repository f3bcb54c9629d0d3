"""Compares two snapshots: operators, states, keys and files. ``tidegate diff``.

Operators are the same by their id, states by their name, entries by key and namespace. Keyed state
is laid side by side key group by key group, so no more than one of each is in memory. Values are
compared as what they are, not as bytes: another backend or another release is no difference. The
times of states that expire do not count, nor do data in flight.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections import Counter
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, cast

from flinkformat.frozen import frozen
from flinkformat.handles import SegmentFileStateHandle
from flinkformat.snapshots import FINISHED
from flinkformat.state_streams import file_of, streams
from tidegate.checkpoint.provenance import provenance_of
from tidegate.errors import ConfigError, RestoreRefused, UserError
from tidegate.snapshots.rows import StateKind, listed
from tidegate.snapshots.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping
    from os import PathLike

    from tidegate.snapshots.rows import Rows, StateInfo
    from tidegate.snapshots.snapshot import OperatorInfo

ADDED: Final = "added"
REMOVED: Final = "removed"
CHANGED: Final = "changed"
SAME: Final = "same"

_IN_FLIGHT: Final = (StateKind.INPUT_CHANNELS, StateKind.OUTPUT_CHANNELS)
_SHOWN_MAX: Final = 200
_SCALARS: Final = frozenset((type(None), bool, int, str, bytes))


@frozen
class EntryDiff:
    """An entry that differs, as text. change: ``added``, ``removed`` or ``changed``.

    before, after: its values; None if there is none.
    """

    change: str
    key: str
    namespace: str | None
    before: str | None
    after: str | None


@frozen
class StateDiff:
    """A state of either snapshot. change: of the whole; ``same`` if nothing differs.

    types_before, types_after: kind and types as text; None if it is not. added, removed,
    changed, same: numbers of entries. entries: some of those that differ, as many as were asked
    for. note: why entries were not compared; empty if they were.
    """

    name: str
    change: str
    types_before: str | None
    types_after: str | None
    added: int
    removed: int
    changed: int
    same: int
    entries: tuple[EntryDiff, ...]
    note: str


@frozen
class OperatorDiff:
    """An operator of either snapshot. change: of the whole; ``same`` if nothing differs.

    parallelism, max_parallelism: before and after, None if it is not. coordinator: whether the
    state of its half on the driver differs.
    """

    operator_id: str
    name: str
    change: str
    parallelism: tuple[int | None, int | None]
    max_parallelism: tuple[int | None, int | None]
    coordinator: bool
    states: tuple[StateDiff, ...]


@frozen
class FileReuse:
    """Files that both snapshots name, or one alone; with their bytes of state."""

    both: int
    both_bytes: int
    only_before: int
    only_before_bytes: int
    only_after: int
    only_after_bytes: int


@frozen
class SnapshotDiff:
    """Differences of two snapshots."""

    before: str
    after: str
    operators: tuple[OperatorDiff, ...]
    files: FileReuse

    @property
    def same(self) -> bool:
        """True if both hold the same state; files do not count."""
        return all(operator.change == SAME for operator in self.operators)

    def to_json(self) -> dict[str, object]:
        """The differences as a JSON object."""
        plain: dict[str, object] = asdict(self)
        return {**plain, "same": self.same}


def diff_snapshots(
    before: str | PathLike[str],
    after: str | PathLike[str],
    *,
    keys_max: int = 0,
    key_file: str | PathLike[str] | None = None,
) -> SnapshotDiff:
    """Compares two snapshots. Blocking; reads the keyed state of both.

    before, after: folders, or the ``_metadata`` in them. keys_max: how many entries that differ are
    shown of each state. key_file: holds the key with which both have to be signed. Raises
    ConfigError for state that Flink wrote, RestoreRefused where there is no snapshot, or a file of
    one is missing, FormatError for bytes that are not what they say, StorageFailed.
    """
    old, new = (Snapshot.open(path, key_file=key_file) for path in (before, after))
    for each in (old, new):
        _check_own(each)
    comparison = _Comparison(old, new, keys_max)
    theirs = {each.operator_id: each for each in new.operators}
    ours = {each.operator_id for each in old.operators}
    pairs = [(each, theirs.get(each.operator_id)) for each in old.operators]
    added = [(None, each) for each in new.operators if each.operator_id not in ours]
    return SnapshotDiff(
        old.path,
        new.path,
        tuple(comparison.operator(*pair) for pair in (*pairs, *added)),
        _reuse(_files(old), _files(new)),
    )


class _Comparison:
    def __init__(self, before: Snapshot, after: Snapshot, keys_max: int) -> None:
        self._before = before
        self._after = after
        self._keys_max = keys_max

    def operator(self, old: OperatorInfo | None, new: OperatorInfo | None) -> OperatorDiff:
        some = old or new
        assert some is not None, "it is in one of them"
        states = tuple(self._states(old, new))
        coordinator = _coordinator(self._before, old) != _coordinator(self._after, new)
        parallelism = (old and old.parallelism, new and new.parallelism)
        max_parallelism = (old and old.max_parallelism, new and new.max_parallelism)
        same = (
            not coordinator
            and len(set(parallelism)) == len(set(max_parallelism)) == 1
            and all(state.change == SAME for state in states)
        )
        return OperatorDiff(
            some.operator_id.hex(),
            str(some),
            _change(old, new, same=same),
            parallelism,
            max_parallelism,
            coordinator,
            states,
        )

    def _states(self, old: OperatorInfo | None, new: OperatorInfo | None) -> Iterator[StateDiff]:
        before, after = _states_of(self._before, old), _states_of(self._after, new)
        for name in dict.fromkeys((*before, *after)):
            yield self._state((old, before.get(name)), (new, after.get(name)))

    def _state(
        self,
        old: tuple[OperatorInfo | None, StateInfo | None],
        new: tuple[OperatorInfo | None, StateInfo | None],
    ) -> StateDiff:
        some = old[1] or new[1]
        assert some is not None, "it is in one of them"
        counts, note = _Counts(self._keys_max), ""
        sides = [
            _Side(snapshot, operator, state)
            for snapshot, (operator, state) in ((self._before, old), (self._after, new))
        ]
        try:
            if sides[0].is_beside(sides[1]):
                counts.take(*sides)
            else:
                note = "not compared: max parallelism differs, and so do the key groups"
        except RestoreRefused:
            raise  # a file is gone, which is no property of the state
        except UserError as error:
            note = f"not compared: {error.what}"
        types = sides[0].types, sides[1].types
        same = types[0] == types[1] and not (counts.added or counts.removed or counts.changed)
        return StateDiff(
            some.name,
            _change(old[1], new[1], same=same and not note),
            *types,
            counts.added,
            counts.removed,
            counts.changed,
            counts.same,
            tuple(counts.shown),
            note,
        )


class _Side:
    """One state of one snapshot; empty if the state is missing."""

    def __init__(
        self, snapshot: Snapshot, operator: OperatorInfo | None, state: StateInfo | None
    ) -> None:
        self._snapshot = snapshot
        self._operator = operator
        self._state = state

    @property
    def types(self) -> str | None:
        state = self._state
        if state is None:
            return None
        parts = [state.key_type, state.namespace_type, state.value_type]
        types = ", ".join(str(part) for part in parts if part is not None)
        return f"{state.kind.value} of {types}{', expires' if state.expires else ''}"

    @property
    def _is_keyed(self) -> bool:
        return self._state is not None and self._state.kind.is_keyed

    def is_beside(self, other: _Side) -> bool:
        """True if both snapshots have each key in the same key group."""
        if not (self._is_keyed and other._is_keyed):
            return True
        assert self._operator is not None and other._operator is not None, "of these are the states"
        return self._operator.max_parallelism == other._operator.max_parallelism

    def groups(self) -> Iterator[tuple[int, _Entries]]:
        """Entries by key group, ascending; of state without key groups all at once, as -1."""
        operator, state = self._operator, self._state
        if operator is None or state is None:
            return
        if not self._is_keyed:
            yield -1, _Entries(state, self._snapshot.runs(operator, state))
        elif self._is_in_order():
            runs = self._snapshot.runs(operator, state)
            for group, some in groupby(runs, lambda run: cast("int", run.key_group)):
                yield group, _Entries(state, some)
        else:
            for group in range(operator.max_parallelism):
                runs = self._snapshot.runs(operator, state, key_groups=(group,))
                yield group, _Entries(state, runs)

    def _is_in_order(self) -> bool:
        """True if the subtasks, one after another, give the key groups in order."""
        assert self._operator is not None, "there is a state"
        subtasks = self._snapshot.content(self._operator).subtasks
        firsts = [
            each.managed_keyed.key_groups.first
            for each in subtasks.values()
            if each is not FINISHED and each.managed_keyed is not None
        ]
        return firsts == sorted(firsts)


class _Entries:
    """Entries of one key group: values by the identity of the entry."""

    def __init__(self, state: StateInfo, runs: Iterable[Rows]) -> None:
        self.values: dict[Hashable, Any] = {}
        self._odd: dict[Hashable, tuple[Any, Any]] = {}
        seen: Counter[Hashable] = Counter()
        for run in runs:
            if state.kind is StateKind.TIMERS:
                self._put_timers(run)
            elif state.key_type is not None:
                self._put(run)
            else:
                # A number distinguishes equal elements of lists.
                for value in listed(run.values):
                    name = plain(value)
                    seen[name] += 1
                    self.values[name, seen[name]] = value

    def _put(self, run: Rows) -> None:
        keys, values = listed(run.keys or ()), listed(run.values)
        if run.namespaces is None and set(map(type, keys)) <= _SCALARS:
            self.values.update(zip(keys, values, strict=True))
            return
        namespaces = run.namespaces or [None] * len(keys)
        for key, namespace, value in zip(keys, namespaces, values, strict=True):
            if namespace is None and type(key) in _SCALARS:
                self.values[key] = value
                continue
            name = (plain(key), plain(namespace))
            self.values[name] = value
            self._odd[name] = (key, namespace)

    def _put_timers(self, run: Rows) -> None:
        keys, times = listed(run.keys or ()), listed(run.values)
        namespaces = run.namespaces or [None] * len(keys)
        for key, namespace, time in zip(keys, namespaces, times, strict=True):
            name = (plain(key), plain(namespace), time)
            self.values[name] = time
            self._odd[name] = (key, namespace)

    def told(self, name: Hashable) -> tuple[str, str | None]:
        """Key and namespace of an entry as text; empty for an element of a list."""
        if name in self._odd:
            key, namespace = self._odd[name]
            return _text(key), None if namespace is None else _text(namespace)
        return ("-" if isinstance(name, tuple) else _text(name)), None


class _Counts:
    def __init__(self, shown_max: int) -> None:
        self._shown_max = shown_max
        self.added = self.removed = self.changed = self.same = 0
        self.shown: list[EntryDiff] = []

    def take(self, before: _Side, after: _Side) -> None:
        old, new = before.groups(), after.groups()
        left, right = next(old, None), next(new, None)
        while left is not None or right is not None:
            group = min(side[0] for side in (left, right) if side is not None)
            here = left[1] if left is not None and left[0] == group else None
            there = right[1] if right is not None and right[0] == group else None
            self._group(here, there)
            left = left if here is None else next(old, None)
            right = right if there is None else next(new, None)

    def _group(self, before: _Entries | None, after: _Entries | None) -> None:
        old = {} if before is None else before.values
        new = {} if after is None else after.values
        for name, value in old.items():
            if name not in new:
                self.removed += 1
                self._show(REMOVED, before, name, value, None)
            elif same(value, other := new[name]):
                self.same += 1
            else:
                self.changed += 1
                self._show(CHANGED, before, name, value, other)
        for name, value in new.items():
            if name not in old:
                self.added += 1
                self._show(ADDED, after, name, None, value)

    def _show(
        self, change: str, entries: _Entries | None, name: Hashable, before: Any, after: Any
    ) -> None:
        if len(self.shown) < self._shown_max:
            assert entries is not None, "it has the entry"
            key, namespace = entries.told(name)
            old = None if change == ADDED else _text(before)
            new = None if change == REMOVED else _text(after)
            self.shown.append(EntryDiff(change, key, namespace, old, new))


def same(before: object, after: object) -> bool:
    """True if two values are equal, whatever classes stand in for the program's."""
    if type(before) in _SCALARS and type(after) in _SCALARS and before == after:
        return True
    try:
        if bool(before == after):
            return True
        return plain(before) == plain(after)
    except Exception:  # whatever the values' own comparison raises, as arrays do
        return pickle.dumps(before, protocol=5) == pickle.dumps(after, protocol=5)


def plain(value: Any) -> Hashable:
    """A hashable value, equal for all values of the same kind and contents."""
    match value:
        case None | bool() | int() | str() | bytes():
            return value
        case float():
            return value if value == value else "NaN"
        case list() | tuple():
            return tuple(map(plain, cast("list[Any]", value)))
        case dict():
            pairs = cast("dict[Any, Any]", value).items()
            return frozenset((plain(key), plain(each)) for key, each in pairs)
        case set() | frozenset():
            return frozenset(map(plain, cast("set[Any]", value)))
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return tuple(
                (field.name, plain(getattr(value, field.name)))
                for field in dataclasses.fields(value)
            )
        case _:
            return pickle.dumps(value, protocol=5)


def _text(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def _change(before: object, after: object, *, same: bool) -> str:
    if before is None:
        return ADDED
    if after is None:
        return REMOVED
    return SAME if same else CHANGED


def _check_own(snapshot: Snapshot) -> None:
    if provenance_of(snapshot.metadata) is None and snapshot.metadata.state_size:
        raise ConfigError(
            "The snapshot was written by Flink, whose state is not compared",
            where=snapshot.path,
            remedy="Make one of Tidegate's from each with 'tidegate migrate', and compare these.",
        )


def _states_of(snapshot: Snapshot, operator: OperatorInfo | None) -> dict[str, StateInfo]:
    if operator is None:
        return {}
    states = snapshot.states(operator)
    return {state.name: state for state in states if state.kind not in _IN_FLIGHT}


def _coordinator(snapshot: Snapshot, operator: OperatorInfo | None) -> bytes | None:
    state = None if operator is None else snapshot.content(operator).coordinator_state
    return None if state is None else state.data


def _files(snapshot: Snapshot) -> dict[str, int]:
    sizes: Counter[str] = Counter()
    for stream in streams(snapshot.metadata):
        place, handle = file_of(stream.handle), stream.handle
        if isinstance(handle, SegmentFileStateHandle):
            sizes[handle.file_path] += handle.state_size
        elif place is not None:
            sizes[place] = handle.state_size
    return dict(sizes)


def _reuse(before: Mapping[str, int], after: Mapping[str, int]) -> FileReuse:
    both = before.keys() & after.keys()
    only_before, only_after = before.keys() - both, after.keys() - both
    return FileReuse(
        len(both),
        sum(after[place] for place in both),
        len(only_before),
        sum(before[place] for place in only_before),
        len(only_after),
        sum(after[place] for place in only_after),
    )
