"""A state that is written by many tasks: each encodes its rows, one makes the savepoint of all.

A task hands over a file of blocks in the folder of the future savepoint, or the blocks themselves
if they are few. The savepoint is there once it is committed; a task that fails, or that runs twice,
leaves a file at most, which goes with the commit or with the folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.snapshots.reading.keyed_streams import BlockStream
from tidegate.snapshots.writing.writer import SavepointWriter, check_empty, discard_folder
from tidegate.storage import paths
from tidegate.storage.state_files import StateFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from flinkformat.handles import KeyGroupsStateHandle
    from tidegate.snapshots.reading.declarations import StateDeclaration
    from tidegate.snapshots.rows import StateForm
    from tidegate.state.format.blocks import Block
    from tidegate.typeinfo.types import TypeInformation


@dataclass(frozen=True, slots=True)
class StatePut:
    """Destination of rows; arguments as of `SavepointWriter`.

    target: the new folder. base: what the savepoint begins with; None for nothing.
    """

    target: str
    base: str | None
    operator: str
    state: str | StateDeclaration
    key_type: TypeInformation | None
    namespace_type: TypeInformation | None
    replace: bool
    max_parallelism: int
    parallelism: int

    def check(self) -> None:
        """Raises ConfigError if the folder is not empty, or the state can't be written."""
        check_empty(paths.absolute(self.target))
        with self._begun() as writer:
            self._form_in(writer)

    def part(self, batches: Iterable[pa.RecordBatch]) -> KeyGroupsStateHandle | None:
        """Encodes the rows of one task. Raises what `SavepointWriter.put_state` raises."""
        with self._begun() as writer:
            form = self._form_in(writer)
            spool = writer.encoded(self.operator, form, batches)
            try:
                return writer.part(self.operator, form, spool, paths.absolute(self.target))
            finally:
                spool.close()

    def commit(self, parts: Sequence[KeyGroupsStateHandle]) -> str:
        """Makes the savepoint of all parts; returns its path. Raises as `SavepointWriter.write`."""
        with self._begun() as writer:
            form = self._form_in(writer)
            writer.put_blocks(self.operator, form, _Parts(parts), replace=self.replace)
            return writer.write_over_parts(paths.absolute(self.target))

    def abort(self) -> None:
        discard_folder(paths.absolute(self.target))

    def _begun(self) -> SavepointWriter:
        if self.base is not None:
            return SavepointWriter.from_existing(self.base, parallelism=self.parallelism)
        return SavepointWriter.new_savepoint(
            max_parallelism=self.max_parallelism, parallelism=self.parallelism
        )

    def _form_in(self, writer: SavepointWriter) -> StateForm:
        return writer.form(
            self.operator, self.state, key_type=self.key_type, namespace_type=self.namespace_type
        )


class _Parts:
    def __init__(self, parts: Sequence[KeyGroupsStateHandle]) -> None:
        files = StateFiles()
        self._streams = [BlockStream(part, files, "rows of a task") for part in parts]

    def blocks(self, group: int) -> Iterator[Block]:
        for stream in self._streams:
            for _, blocks in stream.sections((group,)):
                yield from blocks
