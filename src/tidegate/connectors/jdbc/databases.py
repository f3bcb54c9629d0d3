"""Known databases, and a connection to one with the statement that runs over it.

A database is the syntax of its URLs, its driver, and what that requires. Everything blocks.
"""

from __future__ import annotations

import datetime
import decimal
import re
import sqlite3
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol

from tidegate.errors import BadRecord, ConfigError, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Rows = Sequence[tuple[object, ...]]


SERVER_LIMITS: Final = {
    "connect_timeout": "10",
    "tcp_user_timeout": "60000",
    # A server that vanishes while it owes an answer is noticed after a minute.
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "options": "-c statement_timeout=60s",
}
"""What libpq is told so that nothing waits for ever; the URL may say otherwise."""

LOCK_S: Final = 1.0
"""How long one try waits for SQLite's lock, in seconds."""

WHERE: Final = "JdbcSink"

_TOKENS: Final = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/ | \? | % """, re.VERBOSE | re.DOTALL
)

_POSTGRES: Final = "jdbc:postgresql://"
_SQLITE: Final = "jdbc:sqlite:"


class Cursor(Protocol):
    """A driver's cursor, on which statements run."""

    def execute(self, query: Any, params: Any = ..., /) -> object: ...

    def executemany(self, query: Any, params_seq: Any, /) -> object: ...


class Connection(Protocol):
    """A driver's connection."""

    def cursor(self) -> Cursor: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...


class Database(Protocol):
    """A kind of database, by its driver."""

    def require(self) -> None:
        """Raises ConfigError if the driver is not installed."""
        ...

    def connect(self, url: str, user: str | None, password: str | None) -> Connection:
        """Opens a connection, in bounded time; raises the driver's errors. Blocking."""
        ...

    def statement(self, sql: str) -> str:
        """Adapts a statement with question marks to the driver."""
        ...

    def value(self, value: object) -> object:
        """Adapts a value of a field to the driver."""
        ...

    def begin(self, cursor: Cursor) -> None:
        """Begins a transaction, if the driver does not by itself."""
        ...

    def may_pass(self, error: Exception) -> bool:
        """True if another try, over a new connection, may help."""
        ...


class Sqlite:
    """SQLite, by the standard library."""

    def require(self) -> None: ...

    def connect(self, url: str, user: str | None, password: str | None) -> Connection:
        path = url.removeprefix(_SQLITE)
        # Calls are serialised, though any thread of the pool may make them.
        # Without a level the driver begins no transaction: it knows INSERT, but not WITH … INSERT.
        return sqlite3.connect(path, timeout=LOCK_S, isolation_level=None, check_same_thread=False)

    def statement(self, sql: str) -> str:
        return sql

    def value(self, value: object) -> object:
        # SQLite has no decimals, dates or times; it takes their texts.
        if isinstance(value, datetime.datetime):
            return value.isoformat(" ")
        if isinstance(value, datetime.date | datetime.time):
            return value.isoformat()
        return str(value) if isinstance(value, decimal.Decimal) else value

    def begin(self, cursor: Cursor) -> None:
        cursor.execute("BEGIN")

    def may_pass(self, error: Exception) -> bool:
        # Locks and the disk; all other faults lie in the statement or the row.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        return code in {
            sqlite3.SQLITE_BUSY,
            sqlite3.SQLITE_LOCKED,
            sqlite3.SQLITE_IOERR,
            sqlite3.SQLITE_FULL,
            sqlite3.SQLITE_CANTOPEN,
            sqlite3.SQLITE_PROTOCOL,
        }


class Postgres:
    """PostgreSQL, by psycopg."""

    def require(self) -> None:
        if find_spec("psycopg") is None:
            raise ConfigError(
                "PostgreSQL's driver is not installed: there is no module psycopg",
                where=WHERE,
                remedy="Install it: pip install 'tidegate[postgres]', here and on the executors.",
            )

    def connect(self, url: str, user: str | None, password: str | None) -> Connection:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict, make_conninfo

        given = {**SERVER_LIMITS, **conninfo_to_dict(url.removeprefix("jdbc:"))}
        return psycopg.connect(make_conninfo("", **given), user=user, password=password)

    def statement(self, sql: str) -> str:
        """Replaces question marks by ``%s``, and doubles other per cent signs."""

        def written(found: re.Match[str]) -> str:
            return "%s" if found.group() == "?" else found.group().replace("%", "%%")

        return _TOKENS.sub(written, sql)

    def value(self, value: object) -> object:
        return value

    def begin(self, cursor: Cursor) -> None: ...

    def may_pass(self, error: Exception) -> bool:
        # Lost connections, deadlocks, and exhausted resources of the server; a server that only
        # reads since a failover, and one that has ended an idle transaction.
        import psycopg
        from psycopg import errors

        return isinstance(
            error,
            psycopg.OperationalError
            | psycopg.InterfaceError
            | errors.ReadOnlySqlTransaction
            | errors.IdleInTransactionSessionTimeout,
        )


def database_of(url: str) -> Database:
    """Database of a URL. Raises ConfigError if it is unknown."""
    if url.startswith(_POSTGRES):
        return Postgres()
    path = url.removeprefix(_SQLITE)
    if not url.startswith(_SQLITE):
        raise ConfigError(
            f"No database is known for the URL {without_password(url)!r}",
            where="JdbcConnectionOptions",
            remedy=f"Give one that begins with {_SQLITE} or {_POSTGRES}. For others write a Sink "
            "over their driver.",
        )
    if not path or path.startswith(":"):
        raise ConfigError(
            f"The URL {url!r} names no file, so rows would be lost with the process",
            where="JdbcConnectionOptions",
            remedy=f"Give a path: {_SQLITE}/data/totals.db.",
        )
    return Sqlite()


def placeholders(sql: str) -> int:
    return sum(token == "?" for token in _TOKENS.findall(sql))


def without_password(url: str) -> str:
    """The URL without its password, for messages."""
    return re.sub(r"(password=)[^&;]*|(://[^/@:]*:)[^/@]*(?=@)", r"\1\2…", url)


def line_of(error: Exception) -> str:
    return " ".join(str(error).split())


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
            # Drivers don't say which row it was. Run one by one, the rows name it, and nothing of
            # the batch stays then either.
            self._in_transaction(lambda cursor: self._one_by_one(cursor, rows))

    def _in_transaction(self, run: Callable[[Cursor], object]) -> None:
        try:
            if self._connection is None:
                self._connection = self._connect()
            # All of a batch or nothing: a retry runs the whole batch over a new connection.
            cursor = self._connection.cursor()
            self._database.begin(cursor)
            run(cursor)
            self._connection.commit()
        except (BadRecord, StorageFailed):
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
