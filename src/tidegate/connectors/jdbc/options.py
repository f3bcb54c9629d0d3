"""How a database is reached and how rows are written to it, under PyFlink's names."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, ClassVar

from flinkformat.frozen import frozen
from tidegate.config.spans import millis_of
from tidegate.connectors.jdbc.databases import database_of, without_password
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from tidegate.config.spans import Span


@frozen
class JdbcConnectionOptions:
    """Connection to a database; made by ``JdbcConnectionOptions.JdbcConnectionOptionsBuilder``.

    user and password are shown nowhere, nor is a password in the URL.
    """

    url: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"JdbcConnectionOptions(url={without_password(self.url)!r})"

    def get_db_url(self) -> str:
        """URL of the database, with its scheme."""
        return self.url

    def get_driver_name(self) -> None:
        """Always None: the URL names the driver."""
        return

    def get_user_name(self) -> str | None:
        """Name of the database's user."""
        return self.user

    def get_password(self) -> str | None:
        """Password of the database's user."""
        return self.password

    class JdbcConnectionOptionsBuilder:
        """Builds the options of a connection; each call returns the builder."""

        def __init__(self) -> None:
            self._url = ""
            self._user: str | None = None
            self._password: str | None = None

        def with_url(self, url: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Sets the URL: ``jdbc:sqlite:PATH`` or ``jdbc:postgresql://HOST:PORT/DATABASE``."""
            self._url = url
            return self

        def with_driver_name(
            self, driver_name: str
        ) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Has no effect: the URL names the driver, and Java's are not used."""
            return self

        def with_user_name(
            self, user_name: str
        ) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Sets the user; SQLite has none."""
            self._user = user_name
            return self

        def with_password(
            self, password: str
        ) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Sets the user's password."""
            self._password = password
            return self

        def build(self) -> JdbcConnectionOptions:
            """Makes the options. Raises ConfigError for a URL without a known driver."""
            options = JdbcConnectionOptions(self._url, self._user, self._password)
            database_of(options.url)
            return options


@frozen
class JdbcExecutionOptions:
    """Batches and retries of a sink; made by ``builder``.

    batch_size: rows that are written in one transaction, and kept until there are as many.
    batch_interval_ms: how long a row is kept at most; 0 for until there are enough, a checkpoint,
    or the end. max_retries: further tries where the database can't be reached or is busy.
    """

    Builder: ClassVar[type[JdbcExecutionOptionsBuilder]]

    batch_size: int = 5_000
    batch_interval_ms: int = 0
    max_retries: int = 3

    def get_batch_size(self) -> int:
        """Number of rows in a transaction."""
        return self.batch_size

    def get_batch_interval_ms(self) -> int:
        """Longest time that a row is kept."""
        return self.batch_interval_ms

    def get_max_retries(self) -> int:
        """Number of retries after a failure."""
        return self.max_retries

    @staticmethod
    def builder() -> JdbcExecutionOptionsBuilder:
        """A builder of these options."""
        return JdbcExecutionOptionsBuilder()

    @staticmethod
    def defaults() -> JdbcExecutionOptions:
        """Default options: 5000 rows, no interval, 3 retries."""
        return JdbcExecutionOptions()


class JdbcExecutionOptionsBuilder:
    """Builds the options of a sink; each call returns the builder."""

    def __init__(self) -> None:
        self._made = JdbcExecutionOptions()

    def with_batch_size(self, size: int) -> JdbcExecutionOptionsBuilder:
        """Sets the rows of one transaction. Raises ConfigError below 1."""
        self._made = replace(self._made, batch_size=_at_least(1, size, "with_batch_size"))
        return self

    def with_batch_interval_ms(self, interval_ms: Span) -> JdbcExecutionOptionsBuilder:
        """Sets the longest time that a row is kept; 0 for no limit. Raises ConfigError below 0."""
        interval = millis_of(interval_ms, where="with_batch_interval_ms")
        interval = _at_least(0, interval, "with_batch_interval_ms")
        self._made = replace(self._made, batch_interval_ms=interval)
        return self

    def with_max_retries(self, max_retries: int) -> JdbcExecutionOptionsBuilder:
        """Sets the number of retries after a failure. Raises ConfigError below 0."""
        self._made = replace(self._made, max_retries=_at_least(0, max_retries, "with_max_retries"))
        return self

    def build(self) -> JdbcExecutionOptions:
        return self._made


JdbcExecutionOptions.Builder = JdbcExecutionOptionsBuilder


def _at_least(least: int, given: int, call: str) -> int:
    if given < least:
        raise ConfigError(
            f"{call} was given {given}",
            where="JdbcExecutionOptions",
            remedy=f"Give {least} or more.",
        )
    return given
