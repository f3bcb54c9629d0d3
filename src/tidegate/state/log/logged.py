"""Logs keyed state in memory, and makes bases of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.model.ids import CheckpointId
from tidegate.state.heap.keyed import WholeStream, block_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tidegate.state.heap.keyed import KeyedSnapshot, KeyedStates, Registered
    from tidegate.state.heap.pieces import Missing, Present
    from tidegate.state.log.log_parts import Append, Base
    from tidegate.storage.places import Place


class LoggedHeap:
    """Rows in memory as a log asks for them, a `LoggedRows`. append: adds to the log."""

    def __init__(self, states: KeyedStates, append: Append) -> None:
        self._states = states
        self._append = append

    @property
    def undrained(self) -> int:
        return sum(state.table.undrained for state in self._states.registered)

    @property
    def key_type(self) -> bytes | None:
        return self._states.key_type

    def drain(self, rows: int) -> None:
        for state in self._states.registered:
            for group in self._states.scope.key_groups:
                if rows <= 0:
                    return
                pieces = state.table.drain(group, rows, state.kept)
                try:
                    rows -= self._log(state, group, pieces)
                except BaseException:
                    state.table.undrain(group, pieces)
                    raise

    def cut(self, sealed: Callable[[], None]) -> Tail:
        cut = [(state, state.table.cut()) for state in self._states.registered]
        return Tail(self, [(state, groups) for state, groups in cut if groups], sealed)

    def tail(
        self, cut: list[tuple[Registered, list[int]]], rows: Callable[[], int]
    ) -> Iterator[int]:
        """Logs entries set aside, step by step; yields their number."""
        for state, groups in cut:
            for group in groups:
                for piece in state.table.tail(group, rows, state.kept):
                    yield self._log(state, group, [piece])

    def whole(self, checkpoint: CheckpointId, number: CheckpointId) -> KeyedSnapshot:
        del number
        return self._states.snapshot(WholeStream.of(self._states.scope, checkpoint), None)

    def base(self, base: Base, place: Place) -> KeyedSnapshot:
        groups, number = self._states.scope.key_groups, CheckpointId(base.number)
        return self._states.base(WholeStream(groups, number, place.new_name(), None))

    def _log(self, state: Registered, group: int, pieces: Iterable[Present | Missing]) -> int:
        count = 0
        for piece in pieces:
            keys = self._states.keys_of(state, piece.keys[0])
            block = block_of(piece, 0, state, keys, self._states.scope.where)
            self._append(
                group, state.header, block.kind, block.rows, bytes(block.keys), bytes(block.values)
            )
            count += block.rows
        return count


class Tail:
    """Entries written before a barrier and not logged yet; a `protocols.Pending`."""

    waiting = 0

    def __init__(
        self,
        rows: LoggedHeap,
        cut: list[tuple[Registered, list[int]]],
        sealed: Callable[[], None],
    ) -> None:
        self._rows = rows
        self._cut = cut
        self._sealed = sealed

    def steps(self, rows: Callable[[], int]) -> Iterator[int]:
        yield from self._rows.tail(self._cut, rows)
        self._sealed()

    def thaw(self) -> None:
        """Entries that are not logged yet count as written after the barrier."""
        for state, _ in self._cut:
            state.table.thaw()

    def write(self, place: Place) -> None:
        """The log writes its entries."""

    def upload(self, place: Place) -> None:
        """The log writes its entries."""

    def acknowledged(self) -> None:
        """The log is told by its own snapshot."""

    def cancel(self) -> None:
        """The log keeps what it has."""
