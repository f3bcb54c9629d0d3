"""A state that is written by many tasks: each encodes its rows, one makes the savepoint of all.

A task hands over a file of blocks in the folder of the future savepoint, or the blocks themselves
if they are few. The savepoint is there once it is committed; a task that fails, or that runs twice,
leaves a file at most, which goes with the commit or with the folder. The types of a new state can
be told in an option of a data source.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, cast

from flinkformat.frozen import frozen
from tidegate.errors import ConfigError, FormatError
from tidegate.snapshots.reading.keyed_streams import BlockStream
from tidegate.snapshots.rows import StateDeclaration, StateKind
from tidegate.snapshots.writing.writer import SavepointWriter, check_empty, discard_folder
from tidegate.storage import paths
from tidegate.storage.state_files import StateFiles
from tidegate.typeinfo.arrow import has_records
from tidegate.typeinfo.descriptions import describe, type_described
from tidegate.typeinfo.evolution import with_classes
from tidegate.typeinfo.serializers import SerializerSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from flinkformat.handles import KeyGroupsStateHandle
    from tidegate.snapshots.rows import StateForm
    from tidegate.state.format.blocks import Block
    from tidegate.typeinfo.types import TypeInformation

_NO_DECLARATION: Final = (
    FormatError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,
)


@frozen
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


@frozen
class DeclaredTypes:
    """A state with the types beside it; None if they are not declared."""

    state: StateDeclaration
    key_type: TypeInformation | None
    namespace_type: TypeInformation | None

    def to_text(self) -> str:
        """The types as JSON. Raises ConfigError for pickled records, which need a class."""
        state = self.state
        if state.serializer.name == "pickle" and has_records(state.serializer.type_info):
            raise ConfigError(
                f"The state '{state.name}' holds pickled records, which need their class",
                where=f"state '{state.name}'",
                remedy="Declare the types of all their fields, or use SavepointWriter.",
            )
        return json.dumps(
            {
                "kind": state.kind.value,
                "serializer": state.serializer.to_json(),
                "expires": state.expires,
                "key": _described(self.key_type),
                "namespace": _described(self.namespace_type),
            },
            separators=(",", ":"),
        )

    @staticmethod
    def from_text(name: str, text: str) -> DeclaredTypes:
        """Parses the JSON. Raises ConfigError for any other text."""
        try:
            found = cast("dict[str, object]", json.loads(text))
            serializer = SerializerSnapshot.from_json(
                cast("dict[str, object]", found["serializer"])
            )
            state = StateDeclaration(
                name, StateKind(found["kind"]), serializer, bool(found["expires"])
            )
            state.values()  # raises for a serializer that cannot write its type
            return DeclaredTypes(state, _type(found["key"]), _type(found["namespace"]))
        except _NO_DECLARATION as error:
            raise ConfigError(
                "The option 'descriptor' declares no state",
                where=f"state '{name}'",
                remedy="Pass the result of state_options(descriptor).",
            ) from error


def _described(type_info: TypeInformation | None) -> object:
    return None if type_info is None else describe(type_info)


def _type(described: object) -> TypeInformation | None:
    return None if described is None else with_classes(type_described(described))
