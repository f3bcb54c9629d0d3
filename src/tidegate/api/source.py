"""Sources: an enumerator on the driver hands splits to readers in the slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tidegate.api.dead_letters import DeadLetter
    from tidegate.api.output_tag import OutputTag
    from tidegate.errors import TidegateError
    from tidegate.model.elements import Batch
    from tidegate.model.ids import CheckpointId
    from tidegate.typeinfo.types import TypeInformation

Split = TypeVar("Split")
Split_contra = TypeVar("Split_contra", contravariant=True)


class ReaderContext(Protocol):
    """What a reader may ask of its slot."""

    @property
    def subtask(self) -> int:
        """Index of the subtask."""
        ...

    @property
    def parallelism(self) -> int:
        """Number of readers."""
        ...

    @property
    def rows(self) -> int:
        """Rows of a full row batch; with buffer debloating it may change from poll to poll."""
        ...

    @property
    def arrow_rows(self) -> int:
        """Rows of a full Arrow batch."""
        ...

    def processing_time(self) -> int:
        """Wall clock, milliseconds since 1970."""
        ...

    def run_blocking(self, call: Callable[[], object]) -> Awaitable[object]:
        """Run a call that blocks on the slot's pool."""
        ...

    def read_ahead(self, call: Callable[[], object], then: Callable[[object], None]) -> None:
        """Run a call on the pool; ``then`` gets its result on the loop; ``poll`` comes after."""
        ...

    def wake_at(self, monotonic_ms: int) -> None:
        """Poll again at that time of ``monotonic_ms``."""
        ...

    def monotonic_ms(self) -> int:
        """The slot's monotonic clock."""
        ...

    def skipped(self, rows: int) -> None:
        """Count rows that were skipped under the policy "skip"."""
        ...

    def dead_letters(self, tag: OutputTag[DeadLetter], letters: Sequence[DeadLetter]) -> None:
        """Pass on what cannot be read, to a side output; called within ``poll``."""
        ...


class SourceReader(Protocol[Split]):
    """Reads splits; called on the slot's loop, never waits."""

    def add_splits(self, splits: Sequence[Split]) -> None:
        """More splits to read; on restore, with the positions they had."""
        ...

    def no_more_splits(self) -> None:
        """All splits have been assigned."""
        ...

    def poll(self) -> Batch | None:
        """The next batch; None where there is none at present."""
        ...

    @property
    def finished(self) -> bool:
        """Whether everything assigned is read and nothing more will be."""
        ...

    @property
    def wants_splits(self) -> bool:
        """Whether the enumerator should be asked for more."""
        ...

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[Split]:
        """The splits not read to their end, with their positions, as part of that checkpoint."""
        ...

    def on_complete(self, checkpoint: CheckpointId) -> None:
        """The checkpoint is durable."""
        ...

    def close(self) -> None:
        """Free what is held. No call that blocks is under way any more."""
        ...


class EnumeratorContext(Protocol[Split_contra]):
    """What an enumerator may do; all on the driver's loop."""

    @property
    def parallelism(self) -> int:
        """Number of readers."""
        ...

    @property
    def staged(self) -> str | None:
        """The folder with what the source has had written for this run; else None."""
        ...

    def assign(self, subtask: int, splits: Sequence[Split_contra]) -> None:
        """Give splits to a reader that is ready."""
        ...

    def no_more_splits(self, subtask: int) -> None:
        """Tell a reader that it will get no more."""
        ...

    def run_blocking(self, call: Callable[[], object], then: Callable[[object], None]) -> None:
        """Run a call that blocks on the driver's pool; ``then`` gets its result."""
        ...

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Make a call after a delay."""
        ...

    def set_is_processing_backlog(self, is_processing_backlog: bool) -> None:
        """Say that records are old, and to be caught up with, or that they are fresh again.

        While any source says so, ``execution.checkpointing.interval-during-backlog`` counts.
        """
        ...

    def fail(self, error: TidegateError) -> None:
        """Fail the job."""
        ...


class SplitEnumerator(Protocol[Split_contra]):
    """Finds splits and decides who reads them."""

    def start(self) -> None:
        """Begin to look for splits."""
        ...

    def split_requested(self, subtask: int) -> None:
        """A reader wants more."""
        ...

    def add_back(self, subtask: int, splits: Sequence[Split_contra]) -> None:
        """A reader was reset and will ask anew; assign these again, where there are any."""
        ...

    def reader_ready(self, subtask: int) -> None:
        """A reader runs."""
        ...

    def snapshot(self, checkpoint: CheckpointId) -> bytes:
        """What is not assigned yet, and what is needed to go on looking."""
        ...

    def on_complete(self, checkpoint: CheckpointId) -> None:
        """The checkpoint is durable."""
        ...

    def close(self) -> None:
        """Free what is held."""
        ...


class Source(Protocol, Generic[Split]):
    """A picklable description of where records come from.

    Splits are picklable values; positions are part of them. It may have a method ``check``, which
    does what ``Operator.check`` does, and attributes ``staged`` (``api.staging.Staged``) and
    ``split_type``, the class of its splits: what another source has put away is refused by it.
    """

    @property
    def bounded(self) -> bool:
        """Whether it comes to an end by itself."""
        ...

    @property
    def produced_type(self) -> TypeInformation | None:
        """Type of the records, where it is known."""
        ...

    def enumerator(
        self, context: EnumeratorContext[Split], restored: bytes | None
    ) -> SplitEnumerator[Split]:
        """The driver-side half, from the state of a checkpoint or from nothing."""
        ...

    def reader(self, context: ReaderContext) -> SourceReader[Split]:
        """The slot-side half."""
        ...
