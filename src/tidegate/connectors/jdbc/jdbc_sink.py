"""``JdbcSink``: rows into a table of a database, at least once.

Rows are kept until there is a batch of them, and all that stand ahead of a barrier are in the
database before that checkpoint is complete. After a restore what came behind it is written again:
where the statement is an upsert, the table ends up as if each row had been written once.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from flinkformat.frozen import frozen
from flinkformat.row import values_of_row
from tidegate.api.rows.batches import as_rows
from tidegate.api.sink import Prepared
from tidegate.connectors.jdbc.databases import WHERE, Session, database_of, line_of, placeholders
from tidegate.connectors.jdbc.options import JdbcExecutionOptions
from tidegate.connectors.schemas.messages import row_type_of
from tidegate.errors import BadRecord, ConfigError, StorageFailed
from tidegate.model.topology import Delivery, DeliveryGuarantee
from tidegate.typeinfo.convert import Converter, Misfit
from tidegate.typeinfo.types import BYTES, INSTANT, BasicTypeInfo, RowTypeInfo, SqlTimeTypeInfo

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from tidegate.api.sink import WriterContext
    from tidegate.connectors.jdbc.databases import Connection
    from tidegate.connectors.jdbc.options import JdbcConnectionOptions
    from tidegate.model.elements import Batch, RowBatch
    from tidegate.model.ids import CheckpointId
    from tidegate.typeinfo.types import TypeInformation

_BACKOFF_S: Final = 1.0
"""What a retry waits for each try before it, in seconds."""

_UPSERTS: Final = "a row that is written twice counts once where the statement is an upsert"

_TABLE: Final = re.compile(r"\b(?:INTO|UPDATE|FROM|TABLE)\s+([^\s(;]+)", re.IGNORECASE)


@frozen
class JdbcSink:
    """Runs a statement of a database for each row; made by ``sink``."""

    sql: str
    type_info: RowTypeInfo
    connection: JdbcConnectionOptions
    execution: JdbcExecutionOptions

    @staticmethod
    def sink(
        sql: str,
        type_info: TypeInformation,
        jdbc_connection_options: JdbcConnectionOptions,
        jdbc_execution_options: JdbcExecutionOptions | None = None,
    ) -> JdbcSink:
        """A sink that runs a statement for each row, with its fields for the question marks.

        type_info: of the rows, ``Types.ROW_NAMED`` or ``Types.ROW``; tuples are taken too. Raises
        ConfigError for fields that no column takes, and where they are not as many as the marks.

        >>> JdbcSink.sink("INSERT INTO totals VALUES (?, ?)", row_type, options)
        """
        return JdbcSink(
            sql,
            _checked(sql, type_info),
            jdbc_connection_options,
            jdbc_execution_options or JdbcExecutionOptions.defaults(),
        )

    @property
    def delivery(self) -> Delivery:
        """Rows behind the last checkpoint are written again."""
        return Delivery(DeliveryGuarantee.AT_LEAST_ONCE, (_UPSERTS,))

    def check(self) -> None:
        """Connects. Raises ConfigError for a missing driver or a failure."""
        database = database_of(self.connection.url)
        database.require()
        try:
            with closing(self._connect()):
                pass
        except Exception as error:
            raise ConfigError(
                f"The database cannot be reached: {type(error).__name__}: {line_of(error)}",
                where=WHERE,
                remedy="Check the URL, the user, and that the database is there and can be "
                "written.",
            ) from error

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> JdbcWriter:
        database_of(self.connection.url).require()
        return JdbcWriter(context, self)

    def committer(self) -> None:
        return

    def session(self, where: str) -> Session:
        """Makes the session that runs the statement. where: for messages."""
        table = _TABLE.search(self.sql)
        named = f"{where}, table '{table.group(1)}'" if table else f"{where}, {self.sql!r}"
        return Session(database_of(self.connection.url), self._connect, self.sql, named)

    def _connect(self) -> Connection:
        options = self.connection
        return database_of(options.url).connect(options.url, options.user, options.password)


def _checked(sql: str, type_info: TypeInformation) -> RowTypeInfo:
    row_type = row_type_of(type_info, WHERE)
    fields = zip(row_type.field_names, row_type.field_types, strict=True)
    if unfit := [f"'{name}' ({of})" for name, of in fields if not _is_of_a_column(of)]:
        raise ConfigError(
            f"No column of a database takes the fields {', '.join(unfit)}",
            where=WHERE,
            remedy="Declare numbers, text, truth values, bytes, dates or times, and map to them.",
        )
    marks, count = placeholders(sql), len(row_type.field_names)
    if marks != count:
        raise ConfigError(
            f"The statement has {marks} question marks, and the rows have {count} fields: {sql}",
            where=WHERE,
            remedy="Write one for each field, in the order of the fields.",
        )
    return row_type


def _is_of_a_column(of: TypeInformation) -> bool:
    return of == BYTES or (isinstance(of, BasicTypeInfo | SqlTimeTypeInfo) and of != INSTANT)


class JdbcWriter:
    """Keeps rows, and writes them a batch at a time, in their order."""

    def __init__(self, context: WriterContext, sink: JdbcSink) -> None:
        self._context = context
        self._where = f"operator '{context.operator}'"
        self._type = sink.type_info
        self._converter = Converter(sink.type_info)
        self._options = sink.execution
        self._session = sink.session(self._where)
        self._kept: list[tuple[object, ...]] = []
        self._writing = asyncio.Lock()
        self._timed = False
        self._is_due = asyncio.Event()

    def write(self, batch: Batch) -> Awaitable[object] | None:
        self._kept += [tuple(values_of_row(row)) for row in self._rows(as_rows(batch))]
        if len(self._kept) >= self._options.batch_size:
            return self._write_kept()
        if self._options.batch_interval_ms and self._kept and not self._timed:
            self._timed = True
            self._context.start(self._write_later())
        return None

    def _rows(self, batch: RowBatch) -> list[Any]:
        try:
            rows = self._converter.batch(batch.values)
            if any(row is None for row in rows):
                raise Misfit(self._type, None)
            return rows
        except Misfit as misfit:
            raise BadRecord(
                f"A row is not of the sink's type: {misfit}",
                where=f"{self._where}, row {misfit.index} of a batch",
                remedy=f"Map to rows of the fields {list(self._type.field_names)}.",
            ) from None

    async def _write_later(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.batch_interval_ms / 1_000):
                await self._is_due.wait()
        self._timed = False
        self._is_due.clear()
        await self._write_kept()

    async def _write_kept(self) -> None:
        """Writes the rows that are kept now.

        Rows are let go of when they are written, not before: who waited for a write that failed
        finds them again, and does not take them for written.
        """
        async with self._writing:
            left = len(self._kept)
            while left:
                rows = self._kept[: min(left, self._options.batch_size)]
                await self._try_to_write(rows)
                del self._kept[: len(rows)]
                left -= len(rows)

    async def _try_to_write(self, rows: Sequence[tuple[object, ...]]) -> None:
        for tries in range(1, self._options.max_retries + 2):
            try:
                await self._context.run_blocking(partial(self._session.write, rows))
                return
            except StorageFailed as failed:
                if tries > self._options.max_retries:
                    raise StorageFailed(
                        f"{len(rows)} rows could not be written in {tries} tries: {failed.what}",
                        where=failed.where,
                        remedy=failed.remedy,
                    ) from failed
            await asyncio.sleep(_BACKOFF_S * tries)

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        if self._timed:
            self._is_due.set()  # the end of a job waits for all that runs beside it
        # The checkpoint waits for the rows ahead of its barrier: nothing else remembers them.
        return Prepared(durable=self._write_kept()) if self._kept else Prepared()

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[bytes]:
        return ()

    def close(self) -> None:
        self._session.close()
