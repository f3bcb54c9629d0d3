"""A snapshot between its quick part and its acknowledgement: encoded in slices, then written."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, cast

from flinkformat.handles import KeyGroupsStateHandle, OperatorStreamStateHandle, StateMetaInfo
from flinkformat.snapshots import EMPTY, SubtaskState
from tidegate.state.format.blocks import COLUMNS, Block, KeyedStreamWriter, element_bytes
from tidegate.state.format.headers import KeyedHeader, OperatorHeader, header_bytes
from tidegate.state.log.changelog import COLUMNS_ID
from tidegate.storage.checkpoints import CheckpointScope

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from flinkformat.handles import IncrementalRemoteKeyedStateHandle, KeyedStateHandle
    from flinkformat.key_groups import KeyGroupRange
    from tidegate.clock import Clock
    from tidegate.model.ids import CheckpointId, OperatorId
    from tidegate.state.columns.columnar import ColumnsSnapshot
    from tidegate.state.disk.rocksdb import PendingFolder
    from tidegate.state.heap.increments import PendingSections
    from tidegate.state.heap.keyed import KeyedSnapshot
    from tidegate.state.log.changelog import PendingLog
    from tidegate.state.log.logged import Tail
    from tidegate.state.user.operator_state import OperatorSnapshot
    from tidegate.storage.places import CheckpointPlace
    from tidegate.storage.streams import CheckpointStateOutputStream, StatePlace

_ROWS_AT_FIRST: Final = 256
_ROWS_MIN: Final = 32
_ROWS_MAX: Final = 1 << 11
"""So many objects a core's cache holds from the first touch to the last: 280 ns an entry of 90
bytes, where 65,536 at a time take 380."""


class PendingSnapshot:
    """One operator's snapshot after its quick part.

    `encode` is called on the loop until it gives True, then `upload` once, off the loop, and after
    that `acknowledged`; in between `write` may write what is `waiting`, off the loop and once at a
    time; `cancel` at any time, on the loop. compress: parts are written as it makes them; None as
    they are. sections: names key groups that did not change; None if all are written. log: what
    of keyed rows counts is in it; tail: what has still to get there, of rows in memory.
    """

    def __init__(
        self,
        checkpoint: CheckpointId,
        operator: OperatorId,
        key_groups: KeyGroupRange,
        max_parallelism: int,
        clock: Clock,
        keyed: KeyedSnapshot | None,
        columns: ColumnsSnapshot | None,
        operator_states: OperatorSnapshot | None,
        folder: PendingFolder | None = None,
        compress: Callable[[bytes], bytes] | None = None,
        sections: PendingSections | None = None,
        log: PendingLog | None = None,
        tail: Tail | None = None,
    ) -> None:
        self._checkpoint = checkpoint
        self._operator = operator
        self._key_groups = key_groups
        self._max_parallelism = max_parallelism
        self._clock = clock
        self._keyed = keyed
        self._columns = columns
        self._operator_states = operator_states
        self._folder = folder
        self._compress = compress
        self._sections = sections
        self._log = log
        self._tail = tail
        self._pace = _Pace()
        self._steps = self._all_steps()
        self._encoded = False
        self._cancelled = False
        self._failure: Exception | None = None
        self._rows_alone = folder is None and log is None and columns is None
        self._stream: CheckpointStateOutputStream | None = None
        self._rows: KeyedStreamWriter | None = None

    @property
    def waiting(self) -> int:
        """Bytes that `write` would write: of key groups of which nothing is left to be encoded.

        0 if all is encoded, and where rows share their stream with something that comes last.
        """
        keyed = self._keyed
        if keyed is None or self.is_encoded or not self._rows_alone:
            return 0
        return keyed.waiting

    @property
    def is_encoded(self) -> bool:
        return self._encoded or self._cancelled or self._failure is not None

    def encode(self, budget_ms: float) -> bool:
        """Encode for about that long; True once all is encoded.

        A slice is longer by a small piece at most, unless a single entry takes longer.
        """
        if self._failure is not None:
            raise self._failure
        if self._encoded or self._cancelled:
            return True
        began = self._clock.precise_s()
        deadline = began + budget_ms / 1000
        try:
            while (rows := next(self._steps, None)) is not None:
                ended = self._clock.precise_s()
                self._pace.took(rows, ended - began)
                if ended >= deadline:
                    return False
                self._pace.aim(deadline - ended)
                began = ended
        except Exception as error:
            self._failure = error
            self._thaw()
            raise
        self._encoded = True
        return True

    def finish(self) -> None:
        """Encodes the rest; the next `encode` or `upload` raises a failure."""
        try:
            self.encode(math.inf)
        except Exception as error:
            assert error is self._failure

    def write(self, place: CheckpointPlace) -> None:
        """Write what is waiting. Blocking. Raises StorageFailed; what was written is the place's.

        Without it all that is encoded stays in memory until the `upload`.
        """
        keyed = self._keyed
        if keyed is None:
            return
        if self._stream is None:
            scope = CheckpointScope.EXCLUSIVE if self._sections is None else CheckpointScope.SHARED
            self._stream = place.stream(scope, merged=False)
            self._rows = self._keyed_stream(self._stream.write, keyed, None)
        assert self._rows is not None, "it was opened with the stream"
        for group, blocks in keyed.taken():
            self._rows.add(group, blocks)

    def upload(self, place: StatePlace) -> SubtaskState:
        """Write what was encoded, a stream each for keyed and for operator state.

        Blocking, off the loop. Raises StorageFailed, and then leaves no stream open.
        """
        if self._failure is not None:
            raise self._failure
        if self._cancelled:
            return EMPTY
        assert self._encoded, "a snapshot is uploaded after it was encoded"
        columns, states = self._columns, self._operator_states
        try:
            return SubtaskState(
                managed_keyed=self._upload_keyed(place),
                managed_operator=None if states is None else self._upload_operator(states, place),
            )
        finally:
            if columns is not None:
                columns.release()
            self._keyed = self._columns = self._operator_states = None

    def acknowledged(self) -> None:
        if self._log is not None:
            self._log.acknowledged()

    def cancel(self) -> None:
        """Frees everything kept for the snapshot. A running upload continues."""
        if not self.is_encoded:
            self._thaw()
        self._cancelled = True
        if self._folder is not None:
            self._folder.cancel()
        self._keyed = self._columns = self._operator_states = None

    def _thaw(self) -> None:
        self._steps.close()
        if self._keyed is not None:
            self._keyed.cancel()
        if self._tail is not None:
            self._tail.cancel()
        if self._columns is not None:
            self._columns.release()

    def _all_steps(self) -> Generator[int, None, None]:
        if self._operator_states is not None:
            yield from self._operator_states.steps(self._pace.rows)
        if self._keyed is not None:
            yield from self._keyed.steps(self._pace.rows)
        if self._tail is not None:
            yield from self._tail.steps(self._pace.rows)
        if self._folder is not None:
            while (rows := self._folder.step()) is not None:
                yield rows
        elif self._log is not None:
            self._log.seal()
        if self._columns is not None:
            yield from self._columns.steps()  # last, for they teach the pace of copying

    def _upload_keyed(self, place: StatePlace) -> KeyedStateHandle | None:
        if self._log is None:
            return self._upload_all(place, self._columns)
        if self._folder is not None and not self._log.is_full:
            self._folder.settle()
        checkpoint_place = cast("CheckpointPlace", place)
        columns = None if self._columns is None else self._upload_columns(checkpoint_place)
        return self._log.upload(
            checkpoint_place, lambda base: self._upload_all(base, None), columns
        )

    def _upload_columns(self, place: CheckpointPlace) -> KeyGroupsStateHandle:
        with place.stream(CheckpointScope.SHARED, merged=False) as stream:
            offsets = self._write_keyed(stream.write, None, self._columns)
            handle = stream.close_and_get_handle()
        name = f"{COLUMNS_ID}{self._operator.hex()}-{self._checkpoint}"
        return KeyGroupsStateHandle(self._key_groups, offsets, handle, name)

    def _upload_all(
        self, place: StatePlace, columns: ColumnsSnapshot | None
    ) -> KeyedStateHandle | None:
        keyed = self._keyed
        if self._folder is None:
            if keyed is None and columns is None:
                return None
            if self._sections is not None:
                assert keyed is not None and columns is None, "only rows are named again"
                return self._upload_sections(cast("CheckpointPlace", place), keyed, self._sections)
            with self._stream or place.stream() as stream:
                offsets = self._write_keyed(stream.write, keyed, columns)
                handle = stream.close_and_get_handle()
            groups = self._key_groups
            name = f"{self._operator.hex()}-{self._checkpoint}-{groups.first}-{groups.last}"
            return KeyGroupsStateHandle(groups, offsets, handle, name)
        if self._folder.is_canonical:
            beside = None if columns is None else (columns.header, _column_blocks(columns))
            return self._folder.upload_canonical(place, beside, self._compress)
        written: list[bytes] = []
        if columns is not None:
            self._write_keyed(written.append, None, columns)
        return self._folder.upload(cast("CheckpointPlace", place), b"".join(written))

    def _upload_sections(
        self, place: CheckpointPlace, keyed: KeyedSnapshot, sections: PendingSections
    ) -> IncrementalRemoteKeyedStateHandle:
        stream = self._stream
        if stream is None and any(keyed.blocks.values()):
            stream = place.stream(CheckpointScope.SHARED, merged=False)
        return sections.upload(place, stream, lambda write: self._write_keyed(write, keyed, None))

    def _write_keyed(
        self,
        write: Callable[[bytes], None],
        keyed: KeyedSnapshot | None,
        columns: ColumnsSnapshot | None,
    ) -> tuple[int, ...]:
        stream = self._rows or self._keyed_stream(write, keyed, columns)
        rows = {} if keyed is None else keyed.blocks
        batches = {} if columns is None else _column_blocks(columns)
        for group in self._key_groups:
            stream.add(group, [*rows.get(group, ()), *batches.get(group, ())])
        return stream.offsets

    def _keyed_stream(
        self,
        write: Callable[[bytes], None],
        keyed: KeyedSnapshot | None,
        columns: ColumnsSnapshot | None,
    ) -> KeyedStreamWriter:
        header = KeyedHeader(
            operator=self._operator,
            checkpoint=self._checkpoint,
            max_parallelism=self._max_parallelism,
            key=None if keyed is None else keyed.key,
            states=[] if keyed is None else keyed.headers,
            columns=None if columns is None else columns.header,
        )
        return KeyedStreamWriter(write, header, self._key_groups, self._compress)

    def _upload_operator(
        self,
        states: OperatorSnapshot,
        place: StatePlace,
    ) -> OperatorStreamStateHandle:
        header = OperatorHeader(self._operator, self._checkpoint, states.headers)
        metas: dict[str, StateMetaInfo] = {}
        with place.stream() as stream:
            stream.write(header_bytes(header))
            for name, mode, elements in states.encoded:
                offsets: list[int] = []
                for each in elements:
                    offsets.append(stream.position)
                    stream.write(element_bytes(each, self._compress))
                before = metas[name].offsets if name in metas else ()
                metas[name] = StateMetaInfo(mode, (*before, *offsets))
            handle = stream.close_and_get_handle()
        return OperatorStreamStateHandle(metas, handle)


def _column_blocks(columns: ColumnsSnapshot) -> dict[int, list[Block]]:
    return {
        group: [Block(COLUMNS, 0, rows, b"", section)]
        for group, rows, section in columns.sections()
    }


class _Pace:
    """Number of entries for each step, so that it fits into the remaining time."""

    def __init__(self) -> None:
        self._rows = _ROWS_AT_FIRST
        self._row_s = 0.0

    def rows(self) -> int:
        """Number of entries for the next step."""
        return self._rows

    def aim(self, left_s: float) -> None:
        """Sets the time that the next step should take."""
        if self._row_s > 0.0:
            fit = left_s / self._row_s
            self._rows = int(min(max(fit, _ROWS_MIN), _ROWS_MAX))

    def took(self, rows: int, seconds: float) -> None:
        """Learns from a step's duration."""
        each = seconds / max(rows, 1)
        self._row_s = each if self._row_s == 0.0 else (self._row_s + each) / 2
