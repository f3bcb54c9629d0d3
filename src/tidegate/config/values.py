"""Conversion of option texts to values: durations, sizes, enums, lists, maps.

Each kind of value parses what a person may write (text, or the plain Python value) and renders a
value as text that parses to the same value. Syntax as in Flink: ``10 s``, ``PT10S``, ``64 mb``,
``a;b``, ``k:v,k2:v2``; enums and booleans in any case.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import Generic, TypeVar, cast

from flinkformat.frozen import frozen
from tidegate.model.addresses import parted
from tidegate.model.duration import Duration, Time

E = TypeVar("E", bound=Enum)

_DURATION_UNITS_NS = {
    **dict.fromkeys(("d", "day", "days"), 86_400_000_000_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000_000_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000_000_000),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000_000_000),
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1_000_000),
    **dict.fromkeys(("µs", "us", "micro", "micros", "microsecond", "microseconds"), 1_000),
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1),
}
_AMOUNT = re.compile(r"(\d+)\s*([a-zA-Zµ]*)")
_ISO_DURATION = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+)(?:\.(?P<f>\d{1,9}))?S)?)?",
    re.IGNORECASE,
)


@frozen
class TextType:
    """Accepts any text, unchanged."""

    name: str = "text"
    expects: str = "a text"

    def parse(self, given: object) -> str:
        if isinstance(given, str):
            return given
        raise ValueError("not a text")

    def render(self, value: object) -> str:
        return str(value)


@frozen
class BooleanType:
    """``true`` or ``false``."""

    name: str = "bool"
    expects: str = "'true' or 'false'"

    def parse(self, given: object) -> bool:
        if isinstance(given, bool):
            return given
        match str(given).strip().lower():
            case "true":
                return True
            case "false":
                return False
            case _:
                raise ValueError("neither true nor false")

    def render(self, value: object) -> str:
        return "true" if value else "false"


@frozen
class IntegerType:
    """A whole number in [at_least, at_most]."""

    at_least: int | None = None
    at_most: int | None = None
    name: str = "int"

    @property
    def expects(self) -> str:
        return f"a whole number{_range_text(self.at_least, self.at_most)}"

    def parse(self, given: object) -> int:
        if isinstance(given, bool) or not isinstance(given, int | str):
            raise ValueError("not a whole number")
        try:
            number = int(given)
        except ValueError:
            raise ValueError("not a whole number") from None
        _check_range(number, self.at_least, self.at_most, self.render)
        return number

    def render(self, value: object) -> str:
        return str(value)


@frozen
class NumberType:
    """A number in [at_least, at_most]; with ``above`` the lower bound itself is excluded."""

    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    name: str = "float"

    @property
    def expects(self) -> str:
        if self.above is not None:
            return f"a number above {self.above}"
        return f"a number{_range_text(self.at_least, self.at_most)}"

    def parse(self, given: object) -> float:
        if isinstance(given, bool) or not isinstance(given, int | float | str):
            raise ValueError("not a number")
        try:
            number = float(given)
        except ValueError:
            raise ValueError("not a number") from None
        if number != number:
            raise ValueError("not a number")
        if self.above is not None and number <= self.above:
            raise ValueError(f"not above {self.above}")
        _check_range(number, self.at_least, self.at_most, self.render)
        return number

    def render(self, value: object) -> str:
        return str(value)


@frozen
class DurationType:
    """A length of time, in whole milliseconds; a number without a unit is milliseconds."""

    at_least_ms: int = 0
    at_most_ms: int | None = None
    name: str = "duration"

    @property
    def expects(self) -> str:
        least = f" of at least {self.at_least_ms} ms" if self.at_least_ms else ""
        most = "" if self.at_most_ms is None else f" and at most {self.render(self.at_most_ms)}"
        return f"a duration{least}{most} such as '10 s', '500 ms', '5 min' or 'PT10S'"

    def parse(self, given: object) -> int:
        duration_ms = span_ms(given)
        if duration_ms < 0:
            raise ValueError("negative")
        _check_range(duration_ms, self.at_least_ms, self.at_most_ms, self.render)
        return duration_ms

    def render(self, value: object) -> str:
        duration_ms = cast("int", value)
        for unit, size_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
            if duration_ms and duration_ms % size_ms == 0:
                return f"{duration_ms // size_ms} {unit}"
        return f"{duration_ms} ms"


@frozen
class PortRangeType:
    """Ports, as one number or as ``first-last``; 0 stands for any."""

    name: str = "ports"
    expects: str = "'0', a port, or a range such as '50100-50200'"

    def parse(self, given: object) -> tuple[int, int]:
        text = str(given) if isinstance(given, int | str) else ""
        if isinstance(given, tuple):
            text = "-".join(str(port) for port in cast("tuple[object, ...]", given))
        first, dash, last = text.partition("-")
        try:
            ports = int(first), int(last if dash else first)
        except ValueError:
            raise ValueError("not a range of ports") from None
        if not 0 <= ports[0] <= ports[1] <= 65_535:
            raise ValueError("not a range of ports from 0 to 65535")
        return ports

    def render(self, value: object) -> str:
        first, last = cast("tuple[int, int]", value)
        return str(first) if first == last else f"{first}-{last}"


@frozen
class AddressType:
    """A host, alone or with a port."""

    name: str = "address"
    expects: str = (
        "a host such as '10.1.0.7' or '::1', or with its port: '10.1.0.7:50100', '[::1]:9'"
    )

    def parse(self, given: object) -> str:
        text = TextType().parse(given)
        try:
            parted(text)
        except ValueError:
            raise ValueError("neither a host nor a host with a port") from None
        return text

    def render(self, value: object) -> str:
        return str(value)


@frozen
class NetworkType:
    """A network of addresses, of IPv4 or IPv6; an address alone is a network of one."""

    name: str = "network"
    expects: str = "a network such as '10.1.0.0/16' or 'fd00:1::/64'"

    def parse(self, given: object) -> str:
        text = TextType().parse(given)
        try:
            return str(ipaddress.ip_network(text.strip(), strict=False))
        except ValueError:
            raise ValueError("not a network of addresses") from None

    def render(self, value: object) -> str:
        return str(value)


_MEMORY_UNITS = {
    **dict.fromkeys(("", "b", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kibibytes"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mebibytes"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gibibytes"), 1 << 30),
    **dict.fromkeys(("t", "tb", "tebibytes"), 1 << 40),
}


@frozen
class MemoryType:
    """A size in bytes; units are powers of two, as in Flink."""

    at_most: int | None = None
    name: str = "memory"

    @property
    def expects(self) -> str:
        most = f" of at most {self.render(self.at_most)}" if self.at_most is not None else ""
        return f"a size{most} such as '64 mb', '32kb' or '1g'"

    def parse(self, given: object) -> int:
        if isinstance(given, int) and not isinstance(given, bool):
            size = given
        else:
            match = _AMOUNT.fullmatch(str(given).strip())
            unit = _MEMORY_UNITS.get(match[2].lower()) if match is not None else None
            if match is None or unit is None:
                raise ValueError("not a size")
            size = int(match[1]) * unit
        _check_range(size, 0, self.at_most, self.render)
        return size

    def render(self, value: object) -> str:
        size = cast("int", value)
        for unit, bytes_each in (("tb", 1 << 40), ("gb", 1 << 30), ("mb", 1 << 20), ("kb", 1024)):
            if size and size % bytes_each == 0:
                return f"{size // bytes_each} {unit}"
        return f"{size} bytes"


@frozen
class EnumType(Generic[E]):
    """A member of an enum, by name, in any case, ``-`` for ``_``."""

    members: type[E]
    name: str = "enum"

    @property
    def expects(self) -> str:
        return _one_of([member.name for member in self.members])

    def parse(self, given: object) -> E:
        if isinstance(given, self.members):
            return given
        wanted = _fold(str(given))
        for member in self.members:
            if _fold(member.name) == wanted:
                return member
        raise ValueError("none of the values there are")

    def render(self, value: object) -> str:
        return cast("Enum", value).name


@frozen
class ChoiceType:
    """One of some words, in any case; aliases map other spellings to a word."""

    words: tuple[str, ...]
    aliases: tuple[tuple[str, str], ...] = ()
    name: str = "choice"

    @property
    def expects(self) -> str:
        return _one_of(self.words)

    def parse(self, given: object) -> str:
        wanted = _fold(str(given))
        spellings = {_fold(word): word for word in self.words}
        spellings |= {_fold(alias): word for alias, word in self.aliases}
        if wanted not in spellings:
            raise ValueError("none of the values there are")
        return spellings[wanted]

    def render(self, value: object) -> str:
        return str(value)


@frozen
class ListType:
    """Texts, as ``a;b``, as a YAML list, or as a Python list."""

    name: str = "list"
    expects: str = "a list such as 'a;b' or '[a, b]'"

    def parse(self, given: object) -> tuple[str, ...]:
        if isinstance(given, str):
            return parse_list(given)
        if isinstance(given, Sequence):
            return tuple(str(item) for item in cast("Sequence[object]", given))
        raise ValueError("not a list")

    def render(self, value: object) -> str:
        items = [str(item) for item in cast("Sequence[object]", value)]
        plain = ";".join(items)
        if _parses_to(parse_list, plain, tuple(items)):
            return plain
        return _dump_yaml(items)


def parse_list(text: str) -> tuple[str, ...]:
    """The texts of ``a;b`` or ``[a, b]``. Raises ValueError for a broken YAML list."""
    if not text.lstrip().startswith("["):
        return tuple(item.strip() for item in text.split(";") if item.strip())
    loaded = _load_yaml(text)
    if not isinstance(loaded, list):
        raise ValueError("not a list")
    return tuple(str(item) for item in cast("list[object]", loaded))


@frozen
class MapType:
    """Texts by text, as ``k:v,k2:v2``, as a YAML map, or as a Python dict."""

    name: str = "map"
    expects: str = "a map such as 'k:v,k2:v2' or '{k: v}'"

    def parse(self, given: object) -> dict[str, str]:
        if isinstance(given, str):
            return _parse_map(given)
        if isinstance(given, Mapping):
            entries = cast("Mapping[object, object]", given)
            return {str(key): str(value) for key, value in entries.items()}
        raise ValueError("not a map")

    def render(self, value: object) -> str:
        entries = cast("Mapping[str, str]", value)
        plain = ",".join(f"{key}:{text}" for key, text in entries.items())
        if _parses_to(_parse_map, plain, dict(entries)):
            return plain
        return _dump_yaml(dict(entries))


def _parse_map(text: str) -> dict[str, str]:
    if text.lstrip().startswith("{"):
        loaded = _load_yaml(text)
        if not isinstance(loaded, dict):
            raise ValueError("not a map")
        entries = cast("dict[object, object]", loaded)
        return {str(key): str(value) for key, value in entries.items()}
    entries = {}
    for item in text.split(","):
        if item.strip():
            key, colon, value = item.partition(":")
            if not colon:
                raise ValueError(f"no map: '{item.strip()}' has no ':'")
            entries[key.strip()] = value.strip()
    return entries


def _parses_to(parse: Callable[[str], object], text: str, value: object) -> bool:
    try:
        return parse(text) == value
    except ValueError:
        return False


def _dump_yaml(value: object) -> str:
    import yaml  # Imported when needed: few programs do, and starting is to be quick.

    return yaml.safe_dump(value, default_flow_style=True, width=2**31, sort_keys=False).strip()


def _load_yaml(text: str) -> object:
    import yaml

    try:
        return cast("object", yaml.load(text, yaml.BaseLoader))
    except yaml.YAMLError:
        raise ValueError("broken YAML") from None


def _fold(word: str) -> str:
    return word.strip().lower().replace("_", "-")


def _one_of(words: Sequence[str]) -> str:
    quoted = [f"'{word}'" for word in words]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


def _range_text(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low} to {high}"
    if low is not None:
        return f" of at least {low}"
    return f" of at most {high}" if high is not None else ""


def span_ms(given: object) -> int:
    """Converts a span to milliseconds. Raises ValueError, whose text completes "x is …"."""
    if isinstance(given, timedelta):
        return round(given.total_seconds() * 1000)
    if isinstance(given, Time | Duration):
        return given.to_millis()
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    if not isinstance(given, str):
        raise ValueError("not a duration")
    text = given.strip()
    if text.startswith("-"):
        return -span_ms(text[1:])
    amount_ns = _iso_duration_ns(text) if text[:1] in ("P", "p") else _plain_duration_ns(text)
    duration_ms, rest_ns = divmod(amount_ns, 1_000_000)
    if rest_ns:
        raise ValueError("finer than a millisecond")
    return duration_ms


def _plain_duration_ns(text: str) -> int:
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise ValueError("not a duration")
    unit_ns = _DURATION_UNITS_NS.get(match[2].lower())
    if unit_ns is None:
        raise ValueError(f"not a duration: '{match[2]}' is not a unit of time")
    return int(match[1]) * unit_ns


def _iso_duration_ns(text: str) -> int:
    match = _ISO_DURATION.fullmatch(text)
    if match is None or not any(match.groupdict().values()):
        raise ValueError("not a duration")
    seconds = (
        int(match["d"] or 0) * 86_400
        + int(match["h"] or 0) * 3_600
        + int(match["m"] or 0) * 60
        + int(match["s"] or 0)
    )
    return seconds * 1_000_000_000 + int((match["f"] or "").ljust(9, "0"))


def _check_range(
    number: float, low: float | None, high: float | None, show: Callable[[object], str]
) -> None:
    if low is not None and number < low:
        raise ValueError(f"below {show(low)}")
    if high is not None and number > high:
        raise ValueError(f"above {show(high)}")
