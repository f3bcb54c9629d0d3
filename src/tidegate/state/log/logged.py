"""Logs keyed state in memory, and makes bases of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flinkformat.handles import KeyGroupsStateHandle
from tidegate.model.ids import CheckpointId
from tidegate.state.format.blocks import KeyedStreamWriter
from tidegate.state.format.headers import KeyedHeader
from tidegate.state.heap.keyed import as_restored, block_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from flinkformat.key_groups import KeyGroupRange
    from tidegate.clock import Clock
    from tidegate.model.ids import OperatorId
    from tidegate.state.format.blocks import Block
    from tidegate.state.heap.hashmap import Missing, Present
    from tidegate.state.heap.keyed import KeyedStates, Registered
    from tidegate.state.log.changelog import Base, ChangeLog
    from tidegate.state.log.log_parts import Append, LogPlace
    from tidegate.storage.streams import CheckpointStateOutputStream

_ROWS_A_STEP: Final = 512


class LoggedStates:
    """Drains the states of an operator into a log. append: as `changelog.ChangeLog.append`.

    where: names the operator in errors.
    """

    def __init__(self, states: KeyedStates, append: Append, where: str) -> None:
        self._states = states
        self._append = append
        self._where = where

    @property
    def undrained(self) -> int:
        return sum(state.table.undrained for state in self._states.registered)

    @property
    def key_type(self) -> bytes | None:
        return self._states.key_type

    def drain(self, rows: int) -> None:
        """Logs this many entries, in their current form. Raises UserError."""
        for state in self._states.registered:
            for group in self._states.key_groups:
                if rows <= 0:
                    return
                pieces = state.table.drain(group, rows, state.kept)
                try:
                    rows -= self._log(state, group, pieces)
                except BaseException:
                    state.table.undrain(group, pieces)
                    raise

    def cut(self) -> Tail:
        """Sets aside the rest, to be logged in its current form."""
        cut = [(state, state.table.cut()) for state in self._states.registered]
        return Tail(self, [(state, groups) for state, groups in cut if groups])

    def tail(
        self, cut: list[tuple[Registered, list[int]]], rows: Callable[[], int]
    ) -> Iterator[int]:
        """Logs entries set aside, step by step; yields their number."""
        for state, groups in cut:
            for group in groups:
                for piece in state.table.tail(group, rows, state.kept):
                    yield self._log(state, group, [piece])

    def base(
        self,
        log: ChangeLog,
        base: Base,
        place: LogPlace,
        operator: OperatorId,
        max_parallelism: int,
        clock: Clock,
    ) -> StreamedBase:
        """All entries, each as of its encoding, written in the background."""
        number = CheckpointId(base.number)
        rows = _AllRows(self._states, operator, number, max_parallelism, self._where)
        return StreamedBase(log, base, place, self._states.key_groups, rows, clock)

    def _log(self, state: Registered, group: int, pieces: Iterable[Present | Missing]) -> int:
        count = 0
        for piece in pieces:
            keys = self._states.keys_of(state, piece.keys[0])
            block = block_of(piece, 0, state, keys, self._where)
            self._append(
                group, state.header, block.kind, block.rows, bytes(block.keys), bytes(block.values)
            )
            count += block.rows
        return count


class Tail:
    """Entries written before a barrier and not logged yet."""

    def __init__(self, states: LoggedStates, cut: list[tuple[Registered, list[int]]]) -> None:
        self._states = states
        self._cut = cut

    def steps(self, rows: Callable[[], int]) -> Iterator[int]:
        """Logs step by step; a step logs `rows` entries and yields their number."""
        return self._states.tail(self._cut, rows)

    def cancel(self) -> None:
        """Counts unlogged entries as written after the barrier."""
        for state, _ in self._cut:
            state.table.thaw()


class _AllRows:
    """All keyed rows by key group, while writes go on."""

    def __init__(
        self,
        states: KeyedStates,
        operator: OperatorId,
        checkpoint: CheckpointId,
        max_parallelism: int,
        where: str,
    ) -> None:
        self._states = states
        self._live = states.registered
        left = states.unclaimed
        self._left = as_restored(left, len(self._live))
        self._where = where
        headers = [each.header for each in (*self._live, *left)]
        key = self._learned_key()
        self.header = KeyedHeader(operator, checkpoint, max_parallelism, key, headers, None)

    def sections(self) -> Iterator[tuple[int, list[Block]] | None]:
        """Each encoded key group; None ends a step. Drawn on the loop."""
        for group in self._states.key_groups:
            blocks: list[Block] = []
            for index, state in enumerate(self._live):
                for piece in state.table.current(group, lambda: _ROWS_A_STEP, state.kept):
                    keys = self._states.keys_of(state, piece.keys[0])
                    blocks.append(block_of(piece, index, state, keys, self._where))
                    yield None
            yield group, blocks + self._left.get(group, [])

    def _learned_key(self) -> bytes | None:
        for state in self._live:
            for _, key, _ in state.table.scan():
                self._states.keys_of(state, key)
                break
        return self._states.key_type


class StreamedBase:
    """All keyed rows on their way into a base; a `log_parts.Materialization`."""

    def __init__(
        self,
        log: ChangeLog,
        base: Base,
        place: LogPlace,
        key_groups: KeyGroupRange,
        rows: _AllRows,
        clock: Clock,
    ) -> None:
        self._log = log
        self._base = base
        self._place = place
        self._key_groups = key_groups
        self._header = rows.header
        self._sections = rows.sections()
        self._clock = clock
        self._encoded: list[tuple[int, list[Block]]] = []
        self._whole = False
        self._stream: CheckpointStateOutputStream | None = None
        self._rows: KeyedStreamWriter | None = None
        self.waiting = 0

    def encode(self, budget_ms: float) -> bool:
        deadline = self._clock.precise_s() + budget_ms / 1000
        for section in self._sections:
            if section is not None:
                self._encoded.append(section)
                self.waiting += sum(block.size for block in section[1])
            elif self._clock.precise_s() >= deadline:
                return False
        self._whole = True
        return True

    def write(self) -> None:
        """Writes encoded bytes. After StorageFailed no stream is open."""
        encoded, self._encoded, self.waiting = self._encoded, [], 0
        stream = self._stream = self._stream or self._place.stream()
        try:
            rows = self._rows = self._rows or KeyedStreamWriter(
                stream.write, self._header, self._key_groups
            )
            for group, blocks in encoded:
                rows.add(group, blocks)
            if self._whole:
                handle = stream.close_and_get_handle()
                name = self._place.new_name()
                self._log.durable(
                    self._base,
                    KeyGroupsStateHandle(self._key_groups, rows.offsets, handle, name),
                    self._place,
                )
        except BaseException:
            self.give_up()
            raise

    def give_up(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def take(self) -> None:
        self._log.take(self._base)
