"""Timers of keys: a keyed state that says which there are, and a heap that says which is next.

A timer is an entry of a state whose namespace is its time (and the namespace of the operator, such
as a window), so that timers are part of snapshots, restored and spread by key group like any other
state. The heap is rebuilt from it. It keeps what was deleted until that would be due, or until
that is most of it.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, cast

from tidegate.api.state import ValueState, ValueStateDescriptor
from tidegate.errors import UserError
from tidegate.model.elements import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from tidegate.typeinfo.types import BOOLEAN, LONG, TupleTypeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate.api.operator import OperatorStates
    from tidegate.typeinfo.types import TypeInformation

TIMERS: Final = "_timer_state/"
"""How the names of states begin that hold timers; they are those of Flink's timer services."""

_DELETED_MIN: Final = 64

Pair = tuple[object, object]


def beside_time(namespace: TypeInformation | None) -> TypeInformation | None:
    """Type beside key and time of timers, such as a window, from their state's namespace."""
    return namespace.children[1] if isinstance(namespace, TupleTypeInfo) else None


class KeyedTimers:
    """All timers of one name in one subtask, for the current key. alarm: of processing time."""

    def __init__(
        self,
        states: OperatorStates,
        name: str,
        namespace: TypeInformation | None,
        alarm: Callable[[int], None],
    ) -> None:
        self.event = TimerQueue(states, f"{TIMERS}event_{name}", namespace)
        self.processing = TimerQueue(states, f"{TIMERS}processing_{name}", namespace, alarm)


class TimerQueue:
    """The timers of one time domain.

    namespace: type of what a timer has beside its key and time, if anything. alarm: called with the
    time of the next timer when that has become another, and by `due`, before its last and at its
    end.
    """

    def __init__(
        self,
        states: OperatorStates,
        state: str,
        namespace: TypeInformation | None,
        alarm: Callable[[int], None] | None = None,
    ) -> None:
        self._cell = states.cell
        self._pairs = states.pair_cell
        self._plain = namespace is None
        self._alarm = alarm
        self._deleted = 0
        spaces = LONG if namespace is None else TupleTypeInfo([LONG, namespace])
        descriptor = ValueStateDescriptor(state, BOOLEAN)
        held = cast("ValueState[bool]", states.keyed_state(descriptor, spaces))
        self._value, self._update, self._clear = held.value, held.update, held.clear
        # Equal times are due in the order of their numbers.
        self._heap: list[tuple[int, int, int, Pair]] = []
        for number, (group, key, _) in enumerate(states.scan(state)):
            pair = cast("Pair", key)
            self._heap.append((self._time_of(pair), number, group, pair))
        heapify(self._heap)
        self._count = len(self._heap)
        self._raise_alarm()

    @property
    def next_ms(self) -> int | None:
        """Time of the next timer, which may be deleted already; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        """Number of timers, including deleted ones that are still stored."""
        return len(self._heap)

    @property
    def waiting(self) -> int:
        """Number of timers that will fire."""
        return len(self._heap) - self._deleted

    def register(self, ms: int, namespace: object = None) -> None:
        """Set a timer of the current key, once for each time and namespace.

        Raises UserError if there is no current key, or for what is no time.
        """
        pair = self._stand_on(ms, namespace)
        if self._value() is None:
            self._update(True)
            heappush(self._heap, (ms, self._count, self._cell.group, pair))
            self._count += 1
            if self._alarm is not None and self._heap[0][3] is pair:
                self._alarm(ms)

    def delete(self, ms: int, namespace: object = None) -> None:
        """Deletes a timer of the current key; without effect if there is none."""
        self._stand_on(ms, namespace)
        if self._value() is not None:
            self._clear()
            self._deleted += 1
            if self._deleted > max(_DELETED_MIN, len(self._heap) // 2):
                self._forget_deleted()

    def due(self, until_ms: int) -> Iterator[tuple[int, object]]:
        """Take out what is due, time and namespace; the current key is that of the timer.

        Timers that are set meanwhile and are due come too.
        """
        heap, cell, pairs = self._heap, self._cell, self._pairs
        while heap and heap[0][0] <= until_ms:
            ms, _, group, pair = heappop(heap)
            pairs.key, pairs.group = pair, group
            if self._value() is None:
                self._deleted = max(0, self._deleted - 1)
                continue
            self._clear()
            cell.key, cell.group = pair[0], group
            if heap and heap[0][0] > until_ms:
                self._raise_alarm()  # whoever works in pieces may leave off here
            yield ms, None if self._plain else cast("Pair", pair[1])[1]
        self._raise_alarm()

    def _stand_on(self, ms: int, namespace: object) -> Pair:
        if type(ms) is not int or not MIN_TIMESTAMP_MS <= ms <= MAX_WATERMARK_MS:
            raise UserError(
                f"A timer cannot be set for {ms!r}",
                where=f"key {self._cell.key!r}",
                remedy="Give milliseconds as an int of 64 bits; int(...) makes one of a float.",
            )
        pair = (self._cell.key, ms if self._plain else (ms, namespace))
        self._pairs.key, self._pairs.group = pair, self._cell.group
        return pair

    def _time_of(self, pair: Pair) -> int:
        return cast("int", pair[1] if self._plain else cast("Pair", pair[1])[0])

    def _forget_deleted(self) -> None:
        pairs, kept = self._pairs, list[tuple[int, int, int, Pair]]()
        for timer in self._heap:
            _, _, pairs.group, pairs.key = timer
            if self._value() is not None:
                kept.append(timer)
        heapify(kept)
        self._heap[:] = kept
        self._deleted = 0

    def _raise_alarm(self) -> None:
        if self._alarm is not None and self._heap:
            self._alarm(self._heap[0][0])
