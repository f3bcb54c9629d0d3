"""One connection to a database, and the statement that runs over it. Everything blocks."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tidegate.connectors.jdbc.databases import line_of
from tidegate.errors import BadRecord, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.connectors.jdbc.databases import Connection, Cursor, Database

    Rows = Sequence[tuple[object, ...]]


class Session:
    """Connects when there is something to write, and again after a failure.

    where: the step and the table, for messages.
    """

    def __init__(
        self, database: Database, connect: Callable[[], Connection], sql: str, where: str
    ) -> None:
        self._database = database
        self._connect = connect
        self._sql = sql
        self._statement = database.statement(sql)
        self._where = where
        self._connection: Connection | None = None

    def write(self, rows: Rows) -> None:
        """Runs the statement for each row, all in one transaction.

        Raises StorageFailed for what another try may mend, BadRecord for a row that is refused.
        """
        rows = [tuple(map(self._database.value, row)) for row in rows]
        try:
            self._in_transaction(lambda cursor: cursor.executemany(self._statement, rows))
        except BadRecord:
            # Drivers don't say which row it was.
            self._in_transaction(lambda cursor: self._one_by_one(cursor, rows))

    def _in_transaction(self, run: Callable[[Cursor], object]) -> None:
        try:
            if self._connection is None:
                self._connection = self._connect()
            run(self._connection.cursor())
            self._connection.commit()
        except BadRecord:
            self.close()
            raise
        except Exception as error:
            self.close()
            raise self._failure(error) from error

    def _one_by_one(self, cursor: Cursor, rows: Rows) -> None:
        for row in rows:
            try:
                cursor.execute(self._statement, row)
            except Exception as error:
                raise self._failure(error, f", row {row!r}") from error

    def _failure(self, error: Exception, row: str = "") -> StorageFailed | BadRecord:
        said = f"{type(error).__name__}: {line_of(error)}"
        where = f"{self._where}{row}"
        if self._database.may_pass(error):
            return StorageFailed(
                f"The database did not take rows: {said}",
                where=where,
                remedy="Check that the database runs and has room, and who holds locks.",
            )
        return BadRecord(
            f"The database refused a statement: {said}",
            where=where,
            remedy=f"Let it fit the table and the rows: {self._sql}",
        )

    def close(self) -> None:
        """Closes the connection; the database rolls back what was not committed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                # SQLite keeps its lock after a close for as long as a cursor is alive.
                connection.rollback()
            with suppress(Exception):
                connection.close()
