"""Elements of a channel, in order: batches of records, and the marks between them.

A batch never spans a barrier or a watermark. Batches are read-only once emitted: whoever wants to
change one makes a new one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from flinkformat.frozen import frozen

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from tidegate.model.ids import CheckpointId

MIN_TIMESTAMP_MS = -(2**63)
MAX_WATERMARK_MS = 2**63 - 1


@dataclass(slots=True)
class RowBatch:
    """Python values in one piece; 1 to 4 thousand rows is the right size.

    timestamps_ms: event times, one a row, or None if the rows have none. keys, key_groups: what
    the key exchange in front of a keyed operator found, one a row; None on other edges.
    kinds: Flink's RowKind is part of a Row value, so there is no column for it.
    """

    values: list[object]
    timestamps_ms: list[int] | None = None
    keys: list[object] | None = None
    key_groups: list[int] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def piece(self, start: int, stop: int) -> RowBatch:
        """Rows start (inclusive) to stop (exclusive)."""
        return RowBatch(
            self.values[start:stop],
            None if self.timestamps_ms is None else self.timestamps_ms[start:stop],
            None if self.keys is None else self.keys[start:stop],
            None if self.key_groups is None else self.key_groups[start:stop],
        )


@dataclass(slots=True)
class ArrowBatch:
    """Rows as Arrow columns; about 64 thousand rows is the right size.

    timestamps_ms: int64 array of event times, one a row, or None. key_column, key_groups: set on a
    keyed edge: the column's name and an int array of the rows' key groups.
    """

    batch: pa.RecordBatch
    timestamps_ms: np.ndarray | None = None
    key_column: str | None = None
    key_groups: np.ndarray | None = None

    def __len__(self) -> int:
        return self.batch.num_rows

    def piece(self, start: int, stop: int) -> ArrowBatch:
        """Rows start (inclusive) to stop (exclusive), without copying."""
        return ArrowBatch(
            self.batch.slice(start, stop - start),
            None if self.timestamps_ms is None else self.timestamps_ms[start:stop],
            self.key_column,
            None if self.key_groups is None else self.key_groups[start:stop],
        )


Batch = RowBatch | ArrowBatch


@frozen
class Watermark:
    """No row with an event time at or before ``ms`` will come any more."""

    ms: int


@frozen
class WatermarkStatus:
    """Tells a reader that a channel is idle, so that its watermark doesn't count, or active."""

    idle: bool


class AlignmentType(Enum):
    """How a barrier is aligned; Flink's ``CheckpointOptions.AlignmentType``."""

    AT_LEAST_ONCE = "AT_LEAST_ONCE"
    ALIGNED = "ALIGNED"
    UNALIGNED = "UNALIGNED"
    FORCED_ALIGNED = "FORCED_ALIGNED"


class SnapshotKind(Enum):
    """Kind of snapshot that a trigger asks for; Flink's snapshot types."""

    CHECKPOINT = "Checkpoint"
    FULL_CHECKPOINT = "Full Checkpoint"
    SAVEPOINT = "Savepoint"
    SUSPEND = "Suspend Savepoint"
    TERMINATE = "Terminate Savepoint"

    @property
    def is_savepoint(self) -> bool:
        """True if the user owns the result."""
        return self not in (SnapshotKind.CHECKPOINT, SnapshotKind.FULL_CHECKPOINT)

    @property
    def is_synchronous(self) -> bool:
        """True if the job stops with it."""
        return self in (SnapshotKind.SUSPEND, SnapshotKind.TERMINATE)


@frozen
class CheckpointOptions:
    """How one checkpoint is to be taken.

    target: directory of a savepoint, None for the checkpoint's default place. aligned_timeout_ms:
    age of the checkpoint at which alignment turns unaligned; None for never. canonical: it is a
    savepoint that every state backend can read.
    """

    kind: SnapshotKind = SnapshotKind.CHECKPOINT
    alignment: AlignmentType = AlignmentType.ALIGNED
    aligned_timeout_ms: int | None = None
    target: str | None = None
    canonical: bool = False

    def __post_init__(self) -> None:
        savepoint, timeout_ms = self.kind.is_savepoint, self.aligned_timeout_ms
        assert timeout_ms is None or timeout_ms >= 0, "alignment has a time or none"
        assert savepoint or not self.canonical, "checkpoints are written by their backend"
        # It would be read at any parallelism, by any release: in-flight data have no place in it.
        assert not (savepoint and self.may_overtake), "a savepoint's barriers overtake nothing"

    @property
    def is_unaligned(self) -> bool:
        """True if the barrier overtakes data."""
        return self.alignment is AlignmentType.UNALIGNED

    @property
    def is_timeoutable(self) -> bool:
        """True if the barrier is aligned and may still become unaligned."""
        return self.alignment is AlignmentType.ALIGNED and self.aligned_timeout_ms is not None

    @property
    def may_overtake(self) -> bool:
        """True if the checkpoint's barrier may overtake data at some subtask of the job."""
        forced = self.alignment is AlignmentType.FORCED_ALIGNED
        return self.is_unaligned or self.is_timeoutable or forced

    def turned_unaligned(self) -> CheckpointOptions:
        """Options of the barrier once its time to align is over."""
        assert self.may_overtake, "an aligned barrier without a time stays aligned"
        return replace(self, alignment=AlignmentType.UNALIGNED)

    def forced_aligned(self) -> CheckpointOptions:
        """Options on an edge where no barrier may overtake; an aligned barrier's are unchanged."""
        if self.may_overtake:
            return replace(self, alignment=AlignmentType.FORCED_ALIGNED)
        return self

    def unforced(self) -> CheckpointOptions:
        """Options as they were before ``forced_aligned``."""
        if self.alignment is not AlignmentType.FORCED_ALIGNED:
            return self
        timed = self.aligned_timeout_ms is not None
        return replace(self, alignment=AlignmentType.ALIGNED if timed else AlignmentType.UNALIGNED)


@frozen
class Barrier:
    """Checkpoint ``checkpoint`` cuts the stream here. triggered_ms: wall clock of the trigger."""

    checkpoint: CheckpointId
    triggered_ms: int
    options: CheckpointOptions

    def under(self, options: CheckpointOptions) -> Barrier:
        assert options.kind is self.options.kind, "only the alignment changes on the way"
        return self if options == self.options else replace(self, options=options)


@frozen
class BarrierAnnouncement:
    """A barrier that may turn unaligned is on its way; sent ahead of the data before it."""

    barrier: Barrier


@frozen
class CancelBarrier:
    """No barrier of this checkpoint will come: give it up."""

    checkpoint: CheckpointId


@frozen
class EndOfData:
    """No more rows will come, and event time is at its end."""


@frozen
class EndOfPartition:
    """Nothing more will come; the channel is over."""


@frozen
class OperatorEvent:
    """A message between an operator and its coordinator. payload: any picklable value.

    confirms: it changes nothing that snapshots hold, and the subtask may be waiting for it; so a
    closed gateway lets it through.
    """

    payload: object
    confirms: bool = False


Mark = (
    Watermark
    | WatermarkStatus
    | Barrier
    | BarrierAnnouncement
    | CancelBarrier
    | EndOfData
    | EndOfPartition
)
Element = Batch | Mark
