"""``Configuration``: what is set, as text by key, with typed access; and every option there is.

Each topic has a module with its options and with what makes settings of them. Source of keys,
defaults and old keys: Flink 2.3. An option whose default differs says why in ``differs``. An option
stands here only when something reads it.

Values of known options are checked when they are set, so reading one never fails. Keys nobody
knows are kept: a program may carry its own. A key of ours that does not exist, or one that looks
like a slip of a known one, is refused.
"""

from __future__ import annotations

import difflib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Final, TypeVar, cast

from tidegate.config import (
    checkpointing,
    execution,
    high_availability,
    history,
    metrics,
    net,
    recovery,
    reporting,
    rest,
    rocksdb,
    security,
    slots,
    state_backend,
    warnings,
)
from tidegate.config.flink_keys import FLINK_ONLY
from tidegate.config.option import ConfigOption, ValueType, without_secrets
from tidegate.config.values import BooleanType, IntegerType, MapType, NumberType, parse_list
from tidegate.errors import ConfigError

T = TypeVar("T")

TOPICS: Final[dict[str, tuple[ConfigOption[object], ...]]] = {
    "The program": execution.OPTIONS,
    "Checkpoints": checkpointing.OPTIONS,
    "What a job starts from": recovery.OPTIONS,
    "Restarts and rescales": recovery.RESTART_OPTIONS,
    "Keyed state": state_backend.OPTIONS,
    "RocksDB": rocksdb.OPTIONS,
    "Changelog": state_backend.CHANGELOG_OPTIONS,
    "Slots": slots.OPTIONS,
    "Network": net.OPTIONS,
    "Buffer debloating": slots.DEBLOAT_OPTIONS,
    "Reports": reporting.OPTIONS,
    "Metrics": metrics.OPTIONS,
    "REST": rest.OPTIONS,
    "History": history.OPTIONS,
    "Security": security.OPTIONS,
    "High availability": high_availability.OPTIONS,
    "Warnings": warnings.OPTIONS,
}
ALL: Final = tuple(option for options in TOPICS.values() for option in options)
"""Every option there is, in the order of docs/reference/options.md."""

_BY_KEY: Final = {option.key: option for option in ALL}
_CANONICAL: Final = {old: option.key for option in ALL for old in option.old_keys}

_OWN_PREFIX: Final = "tidegate."
_SLIP_RATIO: Final = 0.88
_BOOLEAN: Final = BooleanType()
_INTEGER: Final = IntegerType()
_NUMBER: Final = NumberType()


class Configuration:
    """Settings by key, with PyFlink's methods; setters return the configuration itself.

    other: whose settings it begins with.
    """

    def __init__(self, other: Configuration | None = None) -> None:
        self._texts: dict[str, str] = {} if other is None else dict(other._texts)
        self._where: dict[str, str] = {} if other is None else dict(other._where)
        # Shared with copies: a program reads from any of them.
        self._asked: set[str] = set() if other is None else other._asked
        self._frozen = False

    @staticmethod
    def of(given: object, *, where: str) -> Configuration:
        """Returns a configuration as it is, or makes one from a mapping.

        Raises ConfigError for others.
        """
        if isinstance(given, Configuration):
            return given
        if isinstance(given, Mapping):
            return Configuration.from_dict(cast("Mapping[str, object]", given))
        raise ConfigError(
            f"{where} takes a Configuration or a mapping, not {type(given).__name__}",
            where=where,
            remedy='Give settings by key, such as {"parallelism.default": 4}.',
        )

    @staticmethod
    def from_dict(map: Mapping[str, object]) -> Configuration:
        """Makes a configuration of these settings.

        Raises ConfigError for a key that is not text.
        """
        configuration = Configuration()
        for key, value in map.items():
            if not isinstance(cast("object", key), str):
                raise ConfigError(
                    f"The key of a setting is {key!r}, which is not text",
                    where="configuration",
                    remedy='Give settings by key, such as {"parallelism.default": 4}.',
                )
            configuration.set(key, value)
        return configuration

    def get(self, option: ConfigOption[T]) -> T:
        """Value of an option, else its default."""
        text = self._texts.get(option.key)
        if text is None:
            return option.default
        return option.parse(text, where=self._where.get(option.key, ""))

    def set(
        self, option: ConfigOption[object] | str, value: object, *, where: str = ""
    ) -> Configuration:
        """Sets an option, by itself or by key.

        value: text, or the plain Python value. where: said in errors, such as a file and line.
        Raises ConfigError for a value that does not fit and for a key that is surely a slip.
        """
        self._check_not_frozen()
        if isinstance(option, str):
            check_key(option, where=where)
            key = canonical_key(option)
            known = by_key(key)
        else:
            key, known = option.key, option
        if known is None:
            self._texts[key] = _free_text(value)
        else:
            parsed = known.parse(value, where=where)
            self._texts[key] = value if isinstance(value, str) else known.render(parsed)
        if where:
            self._where[key] = where
        else:
            self._where.pop(key, None)
        return self

    def unset(self, option: ConfigOption[object]) -> Configuration:
        """Forgets an option, so that its default holds again."""
        self.remove_config(option.key)
        return self

    def contains(self, option: ConfigOption[object]) -> bool:
        """True if the option is set."""
        return option.key in self._texts

    def where_set(self, option: ConfigOption[object] | str) -> str:
        """Where an option or key was set, such as a file and line; empty if unknown."""
        return self._where.get(option if isinstance(option, str) else option.key, "")

    def get_string(self, key: str, default_value: str) -> str:
        """Text under a key, else the given default."""
        key = canonical_key(key)
        self._asked.add(key)
        return self._texts.get(key, default_value)

    def set_string(self, key: str, value: str) -> Configuration:
        """Sets a text; a known option must accept it."""
        return self.set(key, value)

    def get_integer(self, key: str, default_value: int) -> int:
        """Whole number under a key, else the given default."""
        return self._typed(key, _INTEGER, default_value)

    def set_integer(self, key: str, value: int) -> Configuration:
        """Sets a whole number under a key."""
        return self.set(key, value)

    def get_boolean(self, key: str, default_value: bool) -> bool:
        """Truth value under a key, else the given default."""
        return self._typed(key, _BOOLEAN, default_value)

    def set_boolean(self, key: str, value: bool) -> Configuration:
        """Sets a truth value under a key."""
        return self.set(key, value)

    def get_float(self, key: str, default_value: float) -> float:
        """Number under a key, else the given default."""
        return self._typed(key, _NUMBER, default_value)

    def set_float(self, key: str, value: float) -> Configuration:
        """Sets a number under a key."""
        return self.set(key, value)

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        """Bytes under a key, else the given default. Raises ConfigError for invalid Base64."""
        key = canonical_key(key)
        if key not in self._texts:
            return default_value
        try:
            return bytearray(b64decode(self._texts[key], validate=True))
        except ValueError:
            raise ConfigError(
                f"{key} is {self._texts[key]!r}, which is not Base64",
                where=self._where.get(key, ""),
                remedy="Set it by set_bytearray.",
            ) from None

    def set_bytearray(self, key: str, value: bytearray) -> Configuration:
        """Sets bytes, which are kept as Base64."""
        return self.set(key, b64encode(value).decode())

    def key_set(self) -> set[str]:
        """All keys that are set."""
        return set(self._texts)

    def contains_key(self, key: str) -> bool:
        """True if a key, or an older spelling of it, is set."""
        key = canonical_key(key)
        self._asked.add(key)
        return key in self._texts

    def remove_config(self, key: str) -> bool:
        """Removes a key; returns True if it was set."""
        self._check_not_frozen()
        key = canonical_key(key)
        self._where.pop(key, None)
        return self._texts.pop(key, None) is not None

    def add_all(self, other: Configuration, prefix: str | None = None) -> Configuration:
        """Copies all settings of another configuration over these. prefix goes before each key."""
        for key, text in other._texts.items():
            self.set(f"{prefix or ''}{key}", text, where=other._where.get(key, ""))
        return self

    def add_all_to_dict(self, target_dict: dict[str, str]) -> None:
        """Copies all settings into a dict."""
        target_dict.update(self._texts)

    def to_dict(self) -> dict[str, str]:
        """All settings as text, by key."""
        return dict(self._texts)

    @staticmethod
    def parse_list_value(value: str | None) -> list[str]:
        """The items of ``[a, b]`` or ``a;b``; None gives an empty list."""
        return list(parse_list(value)) if value else []

    def copy(self) -> Configuration:
        """A copy that can be changed."""
        return Configuration(self)

    def freeze(self) -> Configuration:
        """A copy that cannot be changed."""
        frozen = self.copy()
        frozen._frozen = True
        return frozen

    def ignored_keys(self) -> list[str]:
        """Keys set here that Flink reads and Tidegate ignores, sorted; each deserves a warning."""
        return sorted(key for key in self._texts if key in FLINK_ONLY)

    def unread_keys(self) -> dict[str, str]:
        """Keys that are not options and that nobody has read yet, each with its place."""
        unknown = [key for key in self._texts if by_key(key) is None and key not in FLINK_ONLY]
        return {key: self._where.get(key, "") for key in sorted(unknown) if key not in self._asked}

    def _typed(self, key: str, kind: ValueType[T], default: T) -> T:
        key = canonical_key(key)
        self._asked.add(key)
        if key not in self._texts:
            return default
        reader = ConfigOption(key, kind, default, "")
        return reader.parse(self._texts[key], where=self._where.get(key, ""))

    def _check_not_frozen(self) -> None:
        if self._frozen:
            raise ConfigError(
                "This configuration is in force and cannot be changed",
                remedy="Change the environment before execute, or a copy().",
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self._texts == other._texts

    def __hash__(self) -> int:
        return hash(frozenset(self._texts.items()))

    def __str__(self) -> str:
        return "{" + ", ".join(f"{key}={text}" for key, text in self._texts.items()) + "}"

    def __repr__(self) -> str:
        return f"Configuration({self})"


def by_key(key: str) -> ConfigOption[object] | None:
    return _BY_KEY.get(key)


def canonical_key(key: str) -> str:
    return _CANONICAL.get(key, key)


def check_key(key: str, *, where: str = "") -> None:
    """Refuses a key of ours that does not exist, and what looks like a typing error.

    Raises ConfigError, naming the closest known key. Other unknown keys pass: they may be the
    program's own.
    """
    if by_key(canonical_key(key)) is not None or key in FLINK_ONLY:
        return
    closest = closest_key(key)
    slip = closest is not None and difflib.SequenceMatcher(None, key, closest).ratio()
    if key.startswith(_OWN_PREFIX) or (slip and slip >= _SLIP_RATIO):
        raise ConfigError(
            f"There is no option {key!r}",
            where=where,
            remedy=f"Did you mean {closest!r}?" if closest else "See the list of options.",
        )


def closest_key(key: str) -> str | None:
    """The known key with all words of this one, else the most similar one; None without either."""
    spellings = {spelling: o.key for o in ALL for spelling in (o.key, *o.old_keys)}
    words = _words(key)
    longer = [spelling for spelling in spellings if words <= _words(spelling)]
    if longer:
        return spellings[min(longer, key=len)]
    matches = difflib.get_close_matches(key, spellings, n=1, cutoff=0.6)
    return spellings[matches[0]] if matches else None


def _words(key: str) -> set[str]:
    return set(key.replace("-", ".").split("."))


def _free_text(value: object) -> str:
    if isinstance(value, bool):
        return _BOOLEAN.render(value)
    if isinstance(value, list | tuple):
        return ";".join(map(str, cast("list[object]", value)))
    return str(value)


def shown_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings as others may see them: secrets are hidden, also within maps."""
    shown = without_secrets(settings)
    for key, text in shown.items():
        option = by_key(key)
        if option is not None and isinstance(option.type, MapType) and text == settings[key]:
            entries = option.type.parse(text)
            if (hidden := without_secrets(entries)) != entries:
                shown[key] = option.type.render(hidden)
    return shown


def configuration_warnings(configuration: Configuration) -> list[str]:
    """A sentence for each setting that has no effect, or a different one than its text says."""
    warnings = [
        f"{key} is an option of Flink that Tidegate does not read; it has no effect."
        for key in configuration.ignored_keys()
    ]
    retained = configuration.get(checkpointing.RETAINED_CHECKPOINTS)
    if retained <= 0:
        warnings.append(
            f"{checkpointing.RETAINED_CHECKPOINTS.key} is {retained}; at least one checkpoint is "
            f"kept, so {checkpointing.RETAINED_CHECKPOINTS.default} is used."
        )
    return warnings
