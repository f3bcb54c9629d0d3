"""Sessions that fire at their end: a list of each key's sessions, without timers.

Most records go on with the latest session of their key, which costs one look at the key's state and
one write. When a session is due stands in a heap, which is not state: where the session has grown
meanwhile, it goes there again, so that nothing is taken back.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from itertools import repeat
from typing import TYPE_CHECKING, Any, cast

from tidegate.api.state import ValueStateDescriptor
from tidegate.api.windows import TimeWindow
from tidegate.operators.failures import raise_user_code_failed
from tidegate.operators.keys import keys_of
from tidegate.operators.windows.firing import (
    CONTENTS,
    HeapFiringOperator,
    WindowContents,
    WindowPlan,
    event_times,
)
from tidegate.typeinfo.types import BOOLEAN, LONG, ListTypeInfo, TupleTypeInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidegate.api.operator import OperatorContext, Output, Steps
    from tidegate.api.state import ValueState
    from tidegate.api.windows.assigners import SessionWindows
    from tidegate.model.elements import Batch, RowBatch
    from tidegate.typeinfo.types import TypeInformation

Session = tuple[int, int, int, bool, Any]
"""Start, end (exclusive), number in the heap, whether it is to fire, what it holds."""


class SessionOperator(HeapFiringOperator):
    """Session windows. plan: with the assigner's own trigger."""

    def __init__(self, plan: WindowPlan, key_type: TypeInformation | None = None) -> None:
        super().__init__(plan, key_type)
        self._gap_ms = cast("SessionWindows", plan.assigner).gap_ms

    def open(self, context: OperatorContext) -> None:
        self._open(context, WindowContents(self._plan, context))
        kept, whole = self._contents.type, None
        if kept is not None:
            whole = ListTypeInfo(TupleTypeInfo([LONG, LONG, LONG, BOOLEAN, kept]))
        state = context.state.keyed_state(ValueStateDescriptor(CONTENTS, whole))
        self._sessions = cast("ValueState[list[Session]]", state)
        # When a session is due at the earliest, its number, key group and key.
        self._due: list[tuple[int, int, int, object]] = [
            (self._due_ms(session), session[2], group, key)
            for group, key, sessions in context.state.scan(CONTENTS)
            for session in cast("list[Session]", sessions)
        ]
        heapify(self._due)
        self._count = max((number for _, number, _, _ in self._due), default=0)
        self._set_alarm()
        self._prepare(context)

    def _due_ms(self, session: Session) -> int:
        return session[1] - 1 + (0 if session[3] else self._plan.lateness_ms)

    # --- records ---

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        rows = self._rows(batch, port)
        stamps: Iterable[int] = ()
        if self._event_time and rows.values:
            stamps = event_times(rows, self._name)
        elif rows.values:
            # A clock that was put back makes nobody late.
            stamps = repeat(max(self._context.time.processing_time(), self._time_ms + 1))
        return self._emit(self._added(rows, stamps, out), out)

    def _added(self, rows: RowBatch, stamps: Iterable[int], out: Output) -> Iterator[object]:
        cell, gap_ms, add = self._cell, self._gap_ms, self._contents.add
        checked = self._contents.checked
        read, write = self._sessions.value, self._sessions.update
        keys, groups = keys_of(rows)
        late = list[object](), list[int]()
        value: object = None
        try:
            for value, key, group, stamp in zip(rows.values, keys, groups, stamps, strict=False):
                cell.key, cell.group = key, group
                ends = stamp + gap_ms(value)
                sessions = read()
                if sessions:
                    start, end, number, waits, kept = sessions[-1]
                    if waits and start <= stamp <= end:
                        if ends < end:
                            ends = end
                        kept = add(value, kept)
                        if kept is None:
                            checked(kept)
                        sessions[-1] = (start, ends, number, True, kept)
                        write(sessions)
                        continue
                session = self._joined(sessions or [], stamp, ends, value)
                if session is None:
                    late[0].append(value)
                    late[1].append(stamp)
                elif not session[3]:
                    yield from self._results(session)
        except BaseException as error:
            raise_user_code_failed(error, operator=self._name, row=value)
        self._late.take(*late, out)
        self._set_alarm()

    def _joined(
        self, sessions: list[Session], start: int, end: int, value: object
    ) -> Session | None:
        """The session of the current key that a record makes, goes on with, or joins others to.

        None if it is over already.
        """
        contents = self._contents
        before = [each for each in sessions if each[1] < start]
        after = [each for each in sessions if each[0] > end]
        parts = sessions[len(before) : len(sessions) - len(after)]
        kept, number = contents.create_accumulator(), 0
        if parts:
            start, end = min(start, parts[0][0]), max(end, parts[-1][1])
            kept = parts[0][4]
            for part in parts[1:]:
                kept = contents.merge(kept, part[4])
        elif end - 1 + self._plan.lateness_ms <= self._time_ms:
            return None
        waits = end - 1 > self._time_ms
        if parts and (parts[0][3] or not waits):
            number = parts[0][2]
        session = (start, end, number, waits, contents.checked(contents.add(value, kept)))
        if not number:
            session = self._noted(session)
        self._sessions.update([*before, session, *after])
        return session

    def _noted(self, session: Session) -> Session:
        self._count += 1
        start, end, _, waits, kept = session
        noted = (start, end, self._count, waits, kept)
        self._await(noted)
        return noted

    def _await(self, session: Session) -> None:
        due_ms, cell = self._due_ms(session), self._cell
        heappush(self._due, (due_ms, session[2], cell.group, cell.key))

    # --- time ---

    def _due_results(self) -> Iterator[object]:
        """Fires or drops sessions that are due, unless they have grown."""
        due, cell, read, is_over = self._due, self._cell, self._sessions.value, self._piece.is_over
        lateness_ms = self._plan.lateness_ms
        while due and due[0][0] <= self._time_ms:
            due_ms, number, group, key = due[0]
            cell.key, cell.group = key, group
            sessions = read() or []
            for at, session in enumerate(sessions):
                if session[2] == number:
                    now_ms = session[1] - 1 + (0 if session[3] else lateness_ms)
                    if now_ms > due_ms:
                        heapreplace(due, (now_ms, number, group, key))
                        break
                    heappop(due)
                    yield from self._over(sessions, at)
                    break
            else:
                heappop(due)  # it has become part of another
            if is_over():
                break
        self._set_alarm()

    def _over(self, sessions: list[Session], at: int) -> Iterator[object]:
        """Fires or drops a session whose time has come."""
        start, end, number, waits, kept = session = sessions[at]
        if waits:
            yield from self._results(session)
        if waits and self._plan.lateness_ms:
            sessions[at] = (start, end, number, False, kept)
            self._await(sessions[at])
            self._sessions.update(sessions)
        else:
            del sessions[at]
            self._sessions.update(sessions or None)
            self._clear(TimeWindow(start, end))

    def _results(self, session: Session) -> Iterable[object]:
        return self._evaluated(TimeWindow(session[0], session[1]), session[4])
