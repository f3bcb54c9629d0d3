"""``FrameSource``: rows that are written to Parquet once, before the job runs, and read from there.

A query may give other rows, or the same in another order, when it is run again; files do not. So
readers keep positions in files. The enumerator keeps in each checkpoint which folder they are in:
a run that starts from it reads on there, whatever has been written for itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.api import ship
from tidegate.connectors.files.enumerator import FileEnumerator
from tidegate.connectors.files.file_reader import FileReader
from tidegate.connectors.files.parquet import ParquetFormat
from tidegate.connectors.files.splits import FileSplit
from tidegate.errors import RestoreRefused
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from tidegate.api.source import EnumeratorContext, ReaderContext, Staged
    from tidegate.model.ids import CheckpointId

_FORMAT = ParquetFormat()


@dataclass(frozen=True, slots=True)
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
    ) -> FrameEnumerator:
        return FrameEnumerator(context, restored)

    def reader(self, context: ReaderContext) -> FileReader:
        return FileReader(context, Stores(), _FORMAT, arrow=True, rate=None)


@dataclass(frozen=True, slots=True)
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
        files = None if state is None else state.files
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
        if not Stores().open(self._folder).is_folder(""):
            raise RestoreRefused(
                "The files that the DataFrame was written to for an earlier run are gone",
                where=self._folder,
                remedy="They are deleted when a job has ended and keeps no checkpoint. Start anew, "
                "or keep checkpoints at the end: "
                "execution.checkpointing.externalized-checkpoint-retention.",
            )
