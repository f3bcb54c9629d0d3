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
    """Services of the slot for a reader."""

    @property
    def subtask(self) -> int:
        """Index of the subtask, from 0."""
        ...

    @property
    def parallelism(self) -> int:
        """Number of the source's readers."""
        ...

    @property
    def rows(self) -> int:
        """Rows of a full row batch; with buffer debloating it may change from poll to poll."""
        ...

    @property
    def arrow_rows(self) -> int:
        """Rows of a full Arrow batch."""
        ...

    @property
    def repeatable(self) -> bool:
        """True if a reader that is made anew has to give the same records in the same order."""
        ...

    def processing_time(self) -> int:
        """Wall clock, milliseconds since 1970."""
        ...

    def run_blocking(self, call: Callable[[], object]) -> Awaitable[object]:
        """Runs a blocking call on the slot's pool."""
        ...

    def read_ahead(self, call: Callable[[], object], then: Callable[[object], None]) -> None:
        """Runs a call on a thread, passes its result to ``then`` on the loop, then polls.

        The threads are the reader's own, at most two: calls may wait as long as they like.
        """
        ...

    def wake_at(self, monotonic_ms: int) -> None:
        """Asks for a poll at a time of ``monotonic_ms``."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds of the slot's monotonic clock."""
        ...

    def skipped(self, rows: int) -> None:
        """Counts rows that were skipped under the policy "skip"."""
        ...

    def dead_letters(self, tag: OutputTag[DeadLetter], letters: Sequence[DeadLetter]) -> None:
        """Emits unreadable input to a side output; called within ``poll``."""
        ...


class SourceReader(Protocol[Split]):
    """Reads splits; called on the slot's loop, never waits."""

    def add_splits(self, splits: Sequence[Split]) -> None:
        """Adds splits to read; after a restore, with their positions."""
        ...

    def no_more_splits(self) -> None:
        """Tells the reader that all splits have been assigned."""
        ...

    def poll(self) -> Batch | None:
        """The next batch; None if there is none at present."""
        ...

    @property
    def finished(self) -> bool:
        """True if all assigned splits are read and no more will come."""
        ...

    @property
    def wants_splits(self) -> bool:
        """True if the enumerator should be asked for more splits."""
        ...

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[Split]:
        """Unfinished splits with their positions, as part of that checkpoint."""
        ...

    def on_complete(self, checkpoint: CheckpointId) -> None:
        """The checkpoint is durable."""
        ...

    def close(self) -> None:
        """Frees resources. No blocking call is under way any more."""
        ...


class EnumeratorContext(Protocol[Split_contra]):
    """Services of the driver for an enumerator; called on the driver's loop."""

    @property
    def parallelism(self) -> int:
        """Number of the source's readers."""
        ...

    @property
    def staged(self) -> str | None:
        """Folder of the data written for the source in this run; else None."""
        ...

    @property
    def goes_on(self) -> bool:
        """True if the job ends with a savepoint, so that another reads on behind the end."""
        ...

    def assign(self, subtask: int, splits: Sequence[Split_contra]) -> None:
        """Gives splits to a reader that is ready."""
        ...

    def no_more_splits(self, subtask: int) -> None:
        """Tells a reader that it will get no more splits."""
        ...

    def run_blocking(self, call: Callable[[], object], then: Callable[[object], None]) -> None:
        """Runs a blocking call on the driver's pool; ``then`` gets its result."""
        ...

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Makes a call on the driver's loop after a delay."""
        ...

    def set_is_processing_backlog(self, is_processing_backlog: bool) -> None:
        """Says whether records are an old backlog to catch up with, or fresh.

        While any source says so, ``execution.checkpointing.interval-during-backlog`` counts.
        """
        ...

    def fail(self, error: TidegateError) -> None:
        """Fails the job with this error."""
        ...


class SplitEnumerator(Protocol[Split_contra]):
    """Finds splits and assigns them to readers."""

    def start(self) -> None:
        """Starts to look for splits."""
        ...

    def split_requested(self, subtask: int) -> None:
        """Called when a reader wants more splits."""
        ...

    def add_back(self, subtask: int, splits: Sequence[Split_contra]) -> None:
        """Takes splits back from a reader that was reset; assign them again when it asks."""
        ...

    def reader_ready(self, subtask: int) -> None:
        """Called when a reader runs and can get splits."""
        ...

    def snapshot(self, checkpoint: CheckpointId) -> bytes:
        """State for a checkpoint: unassigned splits, and what is needed to find more."""
        ...

    def on_complete(self, checkpoint: CheckpointId) -> None:
        """The checkpoint is durable."""
        ...

    def close(self) -> None:
        """Frees the enumerator's resources."""
        ...


class Source(Protocol, Generic[Split]):
    """A picklable description of an origin of records.

    Splits are picklable values; positions are part of them. It may have a method ``check``, which
    does what ``Operator.check`` does, and attributes ``staged`` (``Staged``) and
    ``split_type``, the class of its splits: what another source has put away is refused by it.
    """

    @property
    def bounded(self) -> bool:
        """True if the source ends by itself."""
        ...

    @property
    def produced_type(self) -> TypeInformation | None:
        """Type of the records, if known."""
        ...

    def enumerator(
        self, context: EnumeratorContext[Split], restored: bytes | None
    ) -> SplitEnumerator[Split]:
        """Makes the driver-side half, from the state of a checkpoint or from nothing."""
        ...

    def reader(self, context: ReaderContext) -> SourceReader[Split]:
        """Makes the slot-side half."""
        ...


class Staged(Protocol):
    """Files that are written once, before the job runs, for a source to read.

    A source that has some gives it as an attribute ``staged``; it lives in the driver as it is and
    is not shipped. The driver writes before it asks for slots, since these may take all that could
    write, tells the enumerator the place (``EnumeratorContext.staged``), and deletes the files when
    the job has ended for good and no checkpoint of it is kept.
    """

    def root(self, checkpoints: str | None) -> str:
        """Folder to write below. checkpoints: the job's checkpoint folder, if it has one.

        Raises ConfigError if there is none that all could reach.
        """
        ...

    def write(self, folder: str) -> None:
        """Writes the files into a new folder; blocks until done.

        Raises TidegateError if that fails, or was cancelled.
        """
        ...

    def cancel(self) -> None:
        """Ends a ``write`` that runs on another thread; may be called repeatedly."""
        ...
