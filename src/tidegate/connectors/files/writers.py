"""The writers of a file sink: rows are gathered on the loop and written on the pool."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidegate.api.rows.batches import as_rows, batch_as_arrow
from tidegate.api.sink import Prepared
from tidegate.connectors.files.parts import PartCommittable, hidden
from tidegate.errors import BadRecord, StorageFailed
from tidegate.model.elements import ArrowBatch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tidegate.api.sink import WriterContext
    from tidegate.connectors.files.encoders import Encoding, LinesEncoding, PartEncoder
    from tidegate.connectors.files.parts import PartNames
    from tidegate.model.elements import Batch
    from tidegate.model.ids import CheckpointId
    from tidegate.storage.store import Store, Writer

GROUP_ROWS: Final = 65_536
GROUP_BYTES: Final = 16 << 20


class PartRolling:
    """Parts of one attempt: opens and ends them, and runs blocking calls in order on the pool.

    bucket_at: the folder below the store's root that parts go to at a time; empty for none.
    """

    def __init__(
        self,
        context: WriterContext,
        store: Store,
        names: PartNames,
        part_bytes: int,
        bucket_at: Callable[[int], str],
    ) -> None:
        self._bucket_at = bucket_at
        self._bucket = bucket_at(context.processing_time())
        self._context = context
        self._store = store
        self._names = names
        self._part_bytes = part_bytes
        self._ended: list[bytes] = []
        self._begun: list[Part] = []
        self._made = 0
        self._last: asyncio.Future[None] | None = None
        self._swept = False
        if not context.checkpointing and context.restored_checkpoint is None:
            self.sweep()

    def to_bucket_of_now(self, end_part: Callable[[], None]) -> None:
        """Before rows are taken, ends the current part if they belong to another folder."""
        bucket = self._bucket_at(self._context.processing_time())
        if bucket != self._bucket:
            end_part()
            self._bucket = bucket

    def begin(self, encoding: Encoding | LinesEncoding, schema: pa.Schema | None = None) -> Part:
        """Begins the next part, which is deleted at the end unless it has become durable."""
        self._made += 1
        name = self._names.part(self._made, self._bucket)
        part = Part(name, lambda: self._store.open_new(hidden(name)), encoding, schema)
        self._begun.append(part)
        return part

    def submit(
        self, call: Callable[[], object], then: Callable[[], object] = lambda: None
    ) -> Awaitable[object] | None:
        """Runs a call on the pool after earlier ones; returns an awaitable if one is under way.

        then: called on the loop after it. Its failure is the subtask's, and what comes after it is
        not run.
        """
        before = self._last
        self._last = asyncio.get_running_loop().create_future()
        self._context.start(self._run(before, call, then, self._last))
        return before if before is not None and not before.done() else None

    async def _run(
        self,
        before: asyncio.Future[None] | None,
        call: Callable[[], object],
        then: Callable[[], object],
        done: asyncio.Future[None],
    ) -> None:
        if before is not None:
            await asyncio.shield(before)
        await self._context.run_blocking(call)
        then()
        done.set_result(None)

    def is_full(self, part: Part | Columns | Lines) -> bool:
        """True if a part, or what is gathered for one, has the size of a part."""
        return part.bytes >= self._part_bytes

    def end(self, part: Part) -> None:
        self.submit(part.close, lambda: self._begun.remove(part))
        self._ended.append(PartCommittable(self._store.root, part.name, part.rows).to_bytes())

    def prepared(self) -> Prepared:
        """Parts that ended since the last call."""
        committables, self._ended = self._ended, []
        return Prepared(committables, self._last if committables else None)

    def sweep(self) -> None:
        """Deletes, once, leftovers of earlier attempts."""
        if not self._swept:
            self._swept = True
            self._context.start(self._sweep())

    async def _sweep(self) -> None:
        await self._context.run_blocking(self._delete_left_behind)

    def _delete_left_behind(self) -> None:
        try:
            names = [info.path for info in self._store.list()]
            self._store.delete(list(self._names.left_behind(names, self._context.parallelism)))
        except StorageFailed:
            # Litter harms nobody; the next attempt sweeps again.
            return

    @property
    def place(self) -> str:
        return f"operator '{self._context.operator}', {self._store.root}"

    def close(self) -> None:
        """Deletes parts that were not reported as durable; none is being written any more."""
        for part in self._begun:
            part.abort()
        try:
            # Some may be closed without our knowing yet; aborting those has no effect.
            self._store.delete([hidden(part.name) for part in self._begun])
        except StorageFailed:
            return  # swept by the next attempt


class PartWriter:
    """Gathers the rows of one subtask, and writes them to parts a group at a time."""

    def __init__(self, rolling: PartRolling, gathered: Columns | Lines) -> None:
        self._rolling = rolling
        self._gathered = gathered
        self._part: Part | None = None

    def write(self, batch: Batch) -> Awaitable[object] | None:
        self._rolling.to_bucket_of_now(self._end_part)
        self._gathered.add(batch)
        full = self._gathered.is_group or self._rolling.is_full(self._gathered)
        return self._flush() if full else None

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        # A part that went on behind the barrier could not be renamed when the checkpoint is
        # complete, so each checkpoint ends it.
        self._end_part()
        return self._rolling.prepared()

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[bytes]:
        return ()

    def on_complete(self, checkpoint: CheckpointId) -> None:
        # Everything that was restored is committed now, so what is hidden still is litter.
        self._rolling.sweep()

    def close(self) -> None:
        self._rolling.close()

    def _flush(self) -> Awaitable[object] | None:
        gathered = self._gathered
        if not gathered.pieces:
            return None
        data, schema = gathered.joined(None if self._part is None else self._part.schema)
        if self._part is not None and self._part.schema != schema:
            self._end()
        if self._part is None:
            self._part = self._rolling.begin(gathered.encoding, schema)
        part = self._part
        part.rows += gathered.rows
        part.bytes += gathered.bytes
        gathered.clear()
        waiting = self._rolling.submit(lambda: part.write(data))
        if self._rolling.is_full(part):
            self._end()
        return waiting

    def _end_part(self) -> None:
        self._flush()
        self._end()

    def _end(self) -> None:
        if self._part is not None:
            self._rolling.end(self._part)
            self._part = None


class Columns:
    """Rows gathered as columns, for Parquet and CSV. schema: that is declared, serialised."""

    def __init__(self, encoding: Encoding, schema: bytes | None, place: str) -> None:
        self.encoding = encoding
        self._declared = None if schema is None else pa.ipc.read_schema(pa.py_buffer(schema))
        self._place = place
        self.clear()

    def clear(self) -> None:
        self.pieces: list[pa.RecordBatch] = []
        self.rows = 0
        self.bytes = 0

    def add(self, batch: Batch) -> None:
        if not isinstance(batch, ArrowBatch):
            columns = batch_as_arrow(batch, self._declared)
        elif self._declared is None:
            columns = batch.batch
        else:
            columns = cast_batch(batch.batch, self._declared)
        self.pieces.append(columns)
        self.rows += columns.num_rows
        self.bytes += columns.nbytes

    @property
    def is_group(self) -> bool:
        return self.rows >= GROUP_ROWS or self.bytes >= GROUP_BYTES

    def joined(self, schema: pa.Schema | None) -> tuple[pa.Table, pa.Schema]:
        """All rows under one schema: the one given, the part's, if they fit it."""
        tables = [pa.Table.from_batches([batch]) for batch in self.pieces]
        if schema is not None:
            tables.insert(0, schema.empty_table())
        try:
            table = pa.concat_tables(tables, promote_options="permissive")
        except pa.ArrowException as error:
            raise BadRecord(
                f"rows of one part have columns of types that do not go together: {error}",
                where=self._place,
                remedy="Give the sink a schema, or make the values of one type.",
            ) from error
        return table, table.schema


class Lines:
    """Rows gathered as their bytes, such as lines of JSON."""

    def __init__(self, encoding: LinesEncoding) -> None:
        self.encoding = encoding
        self.clear()

    def clear(self) -> None:
        self.pieces: list[bytes] = []
        self.rows = 0
        self.bytes = 0

    def add(self, batch: Batch) -> None:
        values = as_rows(batch).values
        lines = self.encoding.lines(values)
        self.pieces.append(lines)
        self.rows += len(values)
        self.bytes += len(lines)

    @property
    def is_group(self) -> bool:
        return self.bytes >= GROUP_BYTES // 4

    def joined(self, schema: None) -> tuple[bytes, None]:
        return b"".join(self.pieces), None


class Part:
    """A part under way. ``write`` and ``close`` block, and are called one after another.

    schema: of all its rows; None for lines.
    """

    def __init__(
        self,
        name: str,
        open_file: Callable[[], Writer],
        encoding: Encoding | LinesEncoding,
        schema: pa.Schema | None,
    ) -> None:
        self.name = name
        self.rows = 0
        self.bytes = 0
        self.schema = schema
        self._open_file = open_file
        self._encoding = encoding
        self._file: Writer | None = None
        self._encoder: PartEncoder | Writer | None = None

    def write(self, rows: Any) -> None:
        """Adds rows: a table, or the bytes of lines."""
        if self._file is None:
            self._file = self._open_file()
        try:
            if self._encoder is None:
                self._encoder = self._encoding.encoder(self._file, self.schema)
            self._encoder.write(rows)
        except pa.ArrowException as error:
            raise BadRecord(
                f"rows cannot be written as {self._encoding.suffix.removeprefix('.')}: {error}",
                where=self.name,
                remedy="Map the rows to values that such a file can hold.",
            ) from error

    def close(self) -> None:
        assert self._encoder is not None, "a part is begun with its first rows"
        self._encoder.close()

    def abort(self) -> None:
        abort_file(self._encoder)
        abort_file(self._file)


def abort_file(file: Writer | PartEncoder | None) -> None:
    """Abandons a file; one that cannot be deleted now is swept later."""
    if file is not None:
        try:
            file.abort()
        except StorageFailed:
            return


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch under a declared schema. Raises BadRecord if it does not fit."""
    if batch.schema.equals(schema):
        return batch
    remedy = f"The sink has {', '.join(map(str, schema))}.".replace("\n", " ")
    if unknown := [name for name in batch.schema.names if name not in schema.names]:
        raise BadRecord(
            f"a batch has columns that the sink's schema does not: {', '.join(unknown)}",
            remedy=remedy,
        )
    try:
        return batch.select(schema.names).cast(schema)
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise BadRecord(
            f"a batch does not fit the sink's schema: {error}", remedy=remedy
        ) from error
