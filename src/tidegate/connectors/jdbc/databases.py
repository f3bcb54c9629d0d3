"""Which databases there are: what their URLs look like, their drivers, and what these ask for."""

from __future__ import annotations

import datetime
import decimal
import re
import sqlite3
from contextlib import closing
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol

from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

SERVER_LIMITS: Final = {
    "connect_timeout": "10",
    "tcp_user_timeout": "60000",
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
    """What a driver runs statements with."""

    def execute(self, query: Any, params: Any = ..., /) -> object:
        """Run it once."""
        ...

    def executemany(self, query: Any, params_seq: Any, /) -> object:
        """Run it once for each row."""
        ...


class Connection(Protocol):
    """A driver's connection."""

    def cursor(self) -> Cursor:
        """A cursor."""
        ...

    def commit(self) -> None:
        """End the transaction."""
        ...

    def rollback(self) -> None:
        """Undo the transaction."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class Database(Protocol):
    """A kind of database, by its driver."""

    def require(self) -> None:
        """Raises ConfigError where the driver is not installed."""
        ...

    def connect(self, url: str, user: str | None, password: str | None) -> Connection:
        """A connection; what it raises is the driver's. Blocking, bounded in time."""
        ...

    def statement(self, sql: str) -> str:
        """A statement with question marks, as the driver has it."""
        ...

    def value(self, value: object) -> object:
        """A value of a field, as the driver takes it."""
        ...

    def may_pass(self, error: Exception) -> bool:
        """Whether trying again, over a new connection, may help."""
        ...


class Sqlite:
    """SQLite, by the standard library."""

    def require(self) -> None:
        """It is always there."""

    def connect(self, url: str, user: str | None, password: str | None) -> Connection:
        """Opens the file."""
        path = url.removeprefix(_SQLITE)
        # One call at a time uses it, on whichever thread of the pool.
        return sqlite3.connect(path, timeout=LOCK_S, check_same_thread=False)

    def statement(self, sql: str) -> str:
        """As it is."""
        return sql

    def value(self, value: object) -> object:
        """Decimals, dates and times become text, for SQLite has none."""
        if isinstance(value, datetime.datetime):
            return value.isoformat(" ")
        if isinstance(value, datetime.date | datetime.time):
            return value.isoformat()
        return str(value) if isinstance(value, decimal.Decimal) else value

    def may_pass(self, error: Exception) -> bool:
        """Locks and what the disk says pass; other faults are the statement's or the row's."""
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
        """Raises ConfigError where psycopg is not installed."""
        if find_spec("psycopg") is None:
            raise ConfigError(
                "PostgreSQL's driver is not installed: there is no module psycopg",
                where=WHERE,
                remedy="Install it: pip install 'tidegate[postgres]', here and on the executors.",
            )

    def connect(self, url: str, user: str | None, password: str | None) -> Connection:
        """Connects; what stands in the URL behind a question mark is libpq's."""
        import psycopg
        from psycopg.conninfo import conninfo_to_dict, make_conninfo

        given = {**SERVER_LIMITS, **conninfo_to_dict(url.removeprefix("jdbc:"))}
        return psycopg.connect(make_conninfo("", **given), user=user, password=password)

    def statement(self, sql: str) -> str:
        """Question marks are ``%s`` there, and each other per cent sign is doubled."""

        def written(token: str) -> str:
            return "%s" if token == "?" else token.replace("%", "%%")

        return _rewritten(sql, written)

    def value(self, value: object) -> object:
        """As it is."""
        return value

    def may_pass(self, error: Exception) -> bool:
        """Lost connections, deadlocks, and what the server is short of."""
        import psycopg

        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def database_of(url: str) -> Database:
    """The database that a URL names. Raises ConfigError where there is none for it."""
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
            f"The URL {url!r} names no file, so that rows would go with the process",
            where="JdbcConnectionOptions",
            remedy=f"Give a path: {_SQLITE}/data/totals.db.",
        )
    return Sqlite()


def placeholders(sql: str) -> int:
    """How many question marks of a statement stand for values."""
    return sum(token == "?" for token in _TOKENS.findall(sql))


def look_at(database: Database, connect: Callable[[], Connection]) -> None:
    """Connect once. Raises ConfigError where the driver is missing or does not get there."""
    database.require()
    try:
        with closing(connect()):
            pass
    except Exception as error:
        raise ConfigError(
            f"The database cannot be reached: {type(error).__name__}: {line_of(error)}",
            where=WHERE,
            remedy="Check the URL, the user, and that the database is there and may be written.",
        ) from error


def _rewritten(sql: str, written: Callable[[str], str]) -> str:
    return _TOKENS.sub(lambda found: written(found.group()), sql)


def without_password(url: str) -> str:
    """The URL as it may be shown."""
    return re.sub(r"(password=)[^&;]*|(://[^/@:]*:)[^/@]*(?=@)", r"\1\2…", url)


def line_of(error: Exception) -> str:
    """What an error says, in one line."""
    return " ".join(str(error).split())
