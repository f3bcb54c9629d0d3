"""State handles of the old subtasks of one operator, dealt out to new ones. Pure functions.

The rules are Flink's to the letter, so that a snapshot means the same to both: key groups go where
their range goes, elements of operator state go by the mode of their state.
Source: Flink, StateAssignmentOperation and RoundRobinOperatorStateRepartitioner; golden cases
operatorStateRedistribution and keyedRescale in golden-rules.jsonl of flinkformat's tests.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from flinkformat.handles import (
    ChangelogStateBackendHandle,
    ChangelogStateHandleStream,
    IncrementalRemoteKeyedStateHandle,
    InMemoryChangelogStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    OperatorStateHandle,
    OperatorStreamStateHandle,
    StateDistribution,
    StateMetaInfo,
)
from flinkformat.java_hash import hash_string
from flinkformat.key_groups import KeyGroupRange

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HASH_MAP_CAPACITY: Final = 16


def redistribute_keyed(
    old: Sequence[KeyedStateHandle | None], parallelism: int, max_parallelism: int
) -> list[tuple[KeyedStateHandle, ...]]:
    """Keyed state of each new subtask. old: by old subtask, None if it had none.

    With the same parallelism everybody keeps its own; else each gets every handle that has key
    groups of its range, cut to them where the kind of handle allows that.
    """
    if len(old) == parallelism:
        return [() if handle is None else (handle,) for handle in old]
    ranges = [KeyGroupRange.of(i, parallelism, max_parallelism) for i in range(parallelism)]
    handles = [handle for handle in old if handle is not None]
    return [
        tuple(part for handle in handles if (part := within(handle, key_groups)) is not None)
        for key_groups in ranges
    ]


def within(handle: KeyedStateHandle, key_groups: KeyGroupRange) -> KeyedStateHandle | None:
    """The part of a handle that lies in a range of key groups; None if there is none.

    The files of a backend's folder cannot be cut, so such a handle comes back whole, and the
    backend drops what it was not asked for. The same goes for the changes of a changelog, though
    their handle says which key groups are wanted.
    """
    common = handle.key_groups.intersection(key_groups)
    if common.is_empty:
        return None
    match handle:
        case KeyGroupsStateHandle() | KeyGroupsSavepointStateHandle():
            first = common.first - handle.key_groups.first
            offsets = handle.offsets[first : first + len(common)]
            return dataclasses.replace(handle, key_groups=common, offsets=offsets)
        case IncrementalRemoteKeyedStateHandle():
            return handle
        case ChangelogStateHandleStream() | InMemoryChangelogStateHandle():
            return dataclasses.replace(handle, key_groups=common)
        case ChangelogStateBackendHandle():
            materialized = (within(part, common) for part in handle.materialized)
            return dataclasses.replace(
                handle,
                key_groups=common,
                materialized=tuple(part for part in materialized if part is not None),
                non_materialized=tuple(
                    dataclasses.replace(part, key_groups=part.key_groups.intersection(common))
                    for part in handle.non_materialized
                    if not part.key_groups.intersection(common).is_empty
                ),
            )


def redistribute_operator(
    old: Sequence[OperatorStateHandle | None], parallelism: int
) -> list[tuple[OperatorStateHandle, ...]]:
    """Operator state of each new subtask. old: by old subtask, None if it had none.

    With the same parallelism everybody keeps its own, and what has to be known to all is added:
    union states, and broadcast states that some subtasks did not report. Otherwise split states
    are cut evenly, union states go to all, and of broadcast states each gets one copy.
    """
    deal = _Deal(old, parallelism)
    if len(old) == parallelism:
        deal.keep_own()
        deal.union()
        deal.broadcast(partial_only=True)
    else:
        deal.split()
        deal.union()
        deal.broadcast(partial_only=False)
    return deal.handles()


class _Deal:
    """One redistribution of operator state under way.

    Pieces of one old subtask that go to one new subtask become one handle. They are told apart by
    the old subtask rather than by the stream: two subtasks may have put away equal bytes.
    """

    def __init__(self, old: Sequence[OperatorStateHandle | None], parallelism: int) -> None:
        self._old = old
        self._parallelism = parallelism
        self._dealt: list[dict[int, dict[str, StateMetaInfo]]] = [{} for _ in range(parallelism)]

    def keep_own(self) -> None:
        for subtask, handle in enumerate(self._old):
            if handle is not None:
                self._dealt[subtask][subtask] = dict(handle.states)

    def split(self) -> None:
        """Elements in the order of the old subtasks, cut into pieces of equal length.

        Where it does not come out even the first get one more; "first" begins, for each next state,
        with the subtask behind the last one that did. So the order of states matters, and it is
        that of a Java hash map.
        """
        states = self._states(StateDistribution.SPLIT_DISTRIBUTE)
        start = 0
        for name in java_hash_map_order(list(states), newest_first=True):
            start = self._split_one(name, states[name], start)

    def _split_one(self, name: str, pieces: list[tuple[int, StateMetaInfo]], start: int) -> int:
        """Deals out one state; returns the subtask that the next state begins with."""
        base, extra = divmod(sum(len(info.offsets) for _, info in pieces), self._parallelism)
        source = _Elements(pieces)
        following = start
        for turn in range(self._parallelism):
            subtask = (turn + start) % self._parallelism
            if turn == extra:
                following = subtask
            for stream, offsets in source.take(base + (1 if turn < extra else 0)):
                info = StateMetaInfo(StateDistribution.SPLIT_DISTRIBUTE, offsets)
                self._add(subtask, stream, name, info)
        assert source.empty, "each element goes to one subtask"
        return following

    def union(self) -> None:
        for name, pieces in self._states(StateDistribution.UNION).items():
            for subtask in range(self._parallelism):
                for stream, info in pieces:
                    self._add(subtask, stream, name, info)

    def broadcast(self, *, partial_only: bool) -> None:
        for name, pieces in self._states(StateDistribution.BROADCAST).items():
            if partial_only and len(pieces) == len(self._old):
                continue
            for subtask in range(self._parallelism):
                stream, info = pieces[subtask % len(pieces)]
                self._add(subtask, stream, name, info)

    def handles(self) -> list[tuple[OperatorStateHandle, ...]]:
        return [
            tuple(self._handle(stream, states) for stream, states in dealt.items())
            for dealt in self._dealt
        ]

    def _handle(self, stream: int, states: dict[str, StateMetaInfo]) -> OperatorStateHandle:
        old = self._old[stream]
        assert old is not None, "a piece of no handle"
        return old if states == old.states else OperatorStreamStateHandle(states, old.delegate)

    def _add(self, subtask: int, stream: int, name: str, info: StateMetaInfo) -> None:
        self._dealt[subtask].setdefault(stream, {})[name] = info

    def _states(self, mode: StateDistribution) -> dict[str, list[tuple[int, StateMetaInfo]]]:
        """By name: old subtasks with such a state, and their elements."""
        found: dict[str, list[tuple[int, StateMetaInfo]]] = {}
        for subtask, handle in enumerate(self._old):
            if handle is None:
                continue
            for name in java_hash_map_order(list(handle.states), capacity=_loaded(handle)):
                info = handle.states[name]
                if info.mode is mode:
                    found.setdefault(name, []).append((subtask, info))
        return found


class _Elements:
    """The elements of one state, in the order of the old subtasks, taken from the front."""

    def __init__(self, pieces: list[tuple[int, StateMetaInfo]]) -> None:
        self._pieces = pieces
        self._piece = 0
        self._position = 0

    @property
    def empty(self) -> bool:
        return not any(info.offsets for _, info in self._pieces[self._piece :])

    def take(self, count: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The next `count`, by the subtask they come from; pieces without any are passed on."""
        while count > 0:
            stream, info = self._pieces[self._piece]
            taken = info.offsets[self._position : self._position + count]
            if len(info.offsets) - self._position > count:
                self._position += count
            else:
                self._piece += 1
                self._position = 0
            count -= len(taken)
            yield stream, taken


def _loaded(handle: OperatorStateHandle) -> int:
    """Capacity of the map into which Flink reads a handle's names."""
    size = len(handle.states)
    return size + 1 if size < 3 else -(-4 * size // 3)


def java_hash_map_order(
    names: list[str], *, capacity: int = HASH_MAP_CAPACITY, newest_first: bool = False
) -> list[str]:
    """The order in which a Java ``HashMap`` walks over these keys, put in one after the other.

    newest_first: they were put in by ``computeIfAbsent``, which puts a key in front of its bucket,
    and grows the table only when the next one comes. Buckets with eight keys and more are not told
    apart from others, though Java makes trees of them.
    """
    size = 1 << (capacity - 1).bit_length()
    full_at = len(names) - 1 if newest_first else len(names)
    while full_at > size * 3 // 4:
        size *= 2
    buckets: dict[int, list[str]] = {}
    for name in names:
        code = hash_string(name) & 0xFFFFFFFF
        bucket = buckets.setdefault((code ^ code >> 16) & size - 1, [])
        bucket.insert(0 if newest_first else len(bucket), name)
    return [name for index in sorted(buckets) for name in buckets[index]]
