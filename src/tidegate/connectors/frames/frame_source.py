"""``FrameSource``: rows that are written to Parquet once, before the job runs, and read from there.

A query may give other rows, or the same in another order, when it is run again; files do not. So
readers keep positions in files. The enumerator keeps in each checkpoint which folder they are in:
a run that starts from it reads on there, whatever has been written for itself.

A batch on Spark needs no positions: there tasks are given the rows, and there is no folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from tidegate.api import ship
from tidegate.connectors.files.enumerator import FileEnumerator
from tidegate.connectors.files.file_reader import FileReader
from tidegate.connectors.files.parquet import ParquetFormat
from tidegate.connectors.files.splits import FileSplit
from tidegate.errors import RestoreRefused
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.api.source import EnumeratorContext, ReaderContext, Staged
    from tidegate.model.ids import CheckpointId

_FORMAT = ParquetFormat()

IN_PLACE: Final = ""
"""Stands for a folder where tasks are given the rows themselves."""


@frozen
class FrameSource:
    """Staged Parquet files, as Arrow batches; dicts in functions of rows.

    staged: writes it; stays in the driver, so it is None in what is shipped.
    """

    staged: Staged | None

    bounded = True
    split_type = FileSplit
    produced_type = None

    def __reduce__(self) -> tuple[object, ...]:
        return FrameSource, (None,)

    def enumerator(
        self, context: EnumeratorContext[FileSplit], restored: bytes | None
    ) -> FrameEnumerator | InPlaceEnumerator:
        if restored is None and context.staged == IN_PLACE:
            return InPlaceEnumerator(context)
        return FrameEnumerator(context, restored)

    def reader(self, context: ReaderContext) -> FileReader:
        return FileReader(context, Stores(), _FORMAT, arrow=True, rate=None)


@frozen
class FrameState:
    """State of the enumerator. folder: of the files. files: state of the one that cuts them."""

    folder: str
    files: bytes


class FrameEnumerator:
    """A `FileEnumerator` over the folder that was written for this job, in this run or before."""

    def __init__(self, context: EnumeratorContext[FileSplit], restored: bytes | None) -> None:
        self._context = context
        state = None
        if restored is not None:
            state = ship.restored(FrameState, restored, name="a DataFrame source")
        folder = context.staged if state is None else state.folder
        assert folder is not None, "it was staged before the job began"
        self._folder = folder
        self._is_restored = state is not None
        files = None if state is None or folder == IN_PLACE else state.files
        self._files = FileEnumerator(context, Stores(), (folder,), _FORMAT, None, files)
        self.split_requested = self._files.split_requested
        self.add_back = self._files.add_back
        self.reader_ready = self._files.reader_ready
        self.on_complete = self._files.on_complete
        self.close = self._files.close

    def start(self) -> None:
        if self._is_restored:
            self._context.run_blocking(self._look, lambda _: self._files.start())
        else:
            self._files.start()

    def snapshot(self, checkpoint: CheckpointId) -> bytes:
        state = FrameState(self._folder, self._files.snapshot(checkpoint))
        return ship.dumps(state, name="frame enumerator")

    def _look(self) -> None:
        if self._folder == IN_PLACE:
            raise RestoreRefused(
                "The batch that left this snapshot has read its DataFrame to the end, and no more "
                "of it is to come",
                where="from_spark",
                remedy="Give the source of this job another uid, and allow that the state of the "
                "former is dropped (--allow-non-restored-state).",
            )
        if not Stores().open(self._folder).is_folder(""):
            raise RestoreRefused(
                "The files that the DataFrame was written to for an earlier run are gone",
                where=self._folder,
                remedy="They are deleted when a job has ended and keeps no checkpoint. Start anew, "
                "or keep checkpoints at the end: "
                "execution.checkpointing.externalized-checkpoint-retention.",
            )


class InPlaceEnumerator:
    """Has nothing to deal out: each reader is given its rows by the task that it runs in."""

    def __init__(self, context: EnumeratorContext[FileSplit]) -> None:
        self._context = context

    def start(self) -> None: ...

    def split_requested(self, subtask: int) -> None:
        self._context.no_more_splits(subtask)

    def add_back(self, subtask: int, splits: Sequence[FileSplit]) -> None:
        raise AssertionError("no splits were dealt out")

    def reader_ready(self, subtask: int) -> None: ...

    def snapshot(self, checkpoint: CheckpointId) -> bytes:
        return ship.dumps(FrameState(IN_PLACE, b""), name="frame enumerator")

    def on_complete(self, checkpoint: CheckpointId) -> None: ...

    def close(self) -> None: ...
