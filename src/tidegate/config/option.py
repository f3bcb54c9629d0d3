"""One option: its key, the kind of its value, its default, a sentence about it; and its secrecy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from flinkformat.frozen import frozen
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class ValueType(Protocol[T_co]):
    """A kind of option value."""

    @property
    def name(self) -> str:
        """Name of this kind of value in the documentation."""
        ...

    @property
    def expects(self) -> str:
        """Text to write instead, for an error's remedy."""
        ...

    def parse(self, given: object) -> T_co:
        """Parses a value. Raises ValueError, whose text completes "x is …"."""
        ...

    def render(self, value: object) -> str:
        """Text that parses to this value."""
        ...


@frozen
class ConfigOption(Generic[T_co]):
    """An option that can be set in code, in a file and on the command line.

    default: the value that holds when nothing is set; None if there is none.
    description: what it does, for the documentation. old_keys: other spellings, accepted
    everywhere and stored under ``key``. differs: why the default is not Flink's, else empty.
    """

    key: str
    type: ValueType[T_co]
    default: T_co
    description: str
    old_keys: tuple[str, ...] = ()
    differs: str = ""

    def parse(self, given: object, *, where: str = "") -> T_co:
        """Parses a value. Raises ConfigError that says what to write instead."""
        try:
            return self.type.parse(given)
        except ValueError as problem:
            raise ConfigError(
                f"{self.key} is {given!r}, which is {problem}",
                where=where,
                remedy=f"Write {self.type.expects}.",
            ) from None

    def render(self, value: object) -> str:
        return self.type.render(value)

    @property
    def default_text(self) -> str:
        return "(none)" if self.default is None else self.type.render(self.default)


class ReadableConfig(Protocol):
    """The part of a configuration that a topic needs to make its settings, as in Flink.

    ``Configuration`` itself knows the options of all topics, so no topic can know it.
    """

    def get(self, option: ConfigOption[T]) -> T: ...

    def to_dict(self) -> dict[str, str]:
        """All settings as text, by key."""
        ...

    def where_set(self, option: ConfigOption[object]) -> str:
        """Where an option was set, such as a file and line; empty if unknown."""
        ...


HIDDEN: Final = "******"

_SIGNS: Final = (
    "password",
    "secret",
    "fs.azure.account.key",
    "apikey",
    "api-key",
    "auth-params",
    "service-key",
    "token",
    "basic-auth",
    "jaas.config",
    "http-headers",
)


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    return {key: HIDDEN if is_secret(key) else value for key, value in settings.items()}


def is_secret(key: str) -> bool:
    lower = key.lower()
    return any(sign in lower for sign in _SIGNS)
