"""One option: its key, the kind of its value, its default, a sentence about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from tidegate.config.values import ValueType

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class ConfigOption(Generic[T_co]):
    """An option that can be set in code, in a file and on the command line.

    default: the value that holds when nothing is set; None where there is none.
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
        """The value that was meant. Raises ConfigError that says what to write instead."""
        try:
            return self.type.parse(given)
        except ValueError as problem:
            raise ConfigError(
                f"{self.key} is {given!r}, which is {problem}",
                where=where,
                remedy=f"Write {self.type.expects}.",
            ) from None

    def render(self, value: object) -> str:
        """The value as text that parses to it."""
        return self.type.render(value)

    @property
    def default_text(self) -> str:
        """The default as the documentation shows it."""
        return "(none)" if self.default is None else self.type.render(self.default)
