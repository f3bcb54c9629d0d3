"""Lengths of time as people write them: ``timedelta``, ``Time``, ``Duration``, texts, numbers."""

from __future__ import annotations

from datetime import timedelta

from tidegate.config.values import span_ms
from tidegate.errors import GraphError
from tidegate.model.duration import Duration, Time

Span = Time | Duration | timedelta | str | int
"""A length of time: ``timedelta(minutes=5)``, ``Time.minutes(5)``, ``"5 min"``, 300_000 ms."""


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
