"""Lengths of time as people write them: ``timedelta``, ``Time``, ``Duration``, texts, numbers."""

from __future__ import annotations

import re
from datetime import timedelta

from tidegate.errors import GraphError
from tidegate.model.duration import Duration, Time

Span = Time | Duration | timedelta | str | int
"""A length of time: ``timedelta(minutes=5)``, ``Time.minutes(5)``, ``"5 min"``, 300_000 ms."""

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


def millis_of(given: object, *, where: str) -> int:
    """Converts a span to milliseconds. Raises GraphError for anything else."""
    try:
        return span_ms(given)
    except ValueError as problem:
        told = "not a length of time" if str(problem) == "not a duration" else problem
        raise GraphError(
            f"{given!r} is {told}",
            where=where,
            remedy="Give a timedelta, a Time or Duration such as Time.seconds(10), a text such as "
            "'10 s', or whole milliseconds.",
        ) from None


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
