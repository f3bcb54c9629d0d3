"""Pieces of a table to be encoded: present entries, and keys without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Entries = dict[object, object]


class Absent:
    """Pre-image of an entry that did not exist."""


ABSENT: Final = Absent()


@frozen
class Present:
    """Entries: these keys have these values."""

    keys: Sequence[object]
    values: Sequence[object]


@frozen
class Missing:
    """These keys have no entry."""

    keys: Sequence[object]


def as_they_are(
    keys: list[object], values: list[object], kept: Callable[[object], object] | None
) -> list[Present | Missing]:
    """Entries without missing ones (None), each reduced to the part that is kept."""
    if kept is not None:
        values = [None if value is None else kept(value) for value in values]
    missing = [key for key, value in zip(keys, values, strict=True) if value is None]
    if not missing:
        return [Present(keys, values)]
    there = [(key, value) for key, value in zip(keys, values, strict=True) if value is not None]
    present = [Present([key for key, _ in there], [value for _, value in there])] if there else []
    return [*present, Missing(missing)]


def present_pieces(
    keys: list[object], values: list[object], rows: Callable[[], int]
) -> Iterator[Present]:
    """Entries, some at a time, taken off the ends of the lists.

    rows: asked for each piece how many it may have. Each object is touched when it is taken off,
    encoded and let go of, which costs little only while it is in the cache from the first time.
    """
    while keys:
        some = rows()
        if some >= len(keys):
            yield Present(keys, values)
            return
        piece = Present(keys[-some:], values[-some:])
        del keys[-some:], values[-some:]
        yield piece


def left_of(piece: Present, kept: Callable[[object], object]) -> Present:
    """Each entry reduced to the part that is kept."""
    pairs = zip(piece.keys, map(kept, piece.values), strict=True)
    left = [(key, value) for key, value in pairs if value is not None]
    return Present([key for key, _ in left], [value for _, value in left])


def preimage_pieces(saved: Entries, rows: Callable[[], int]) -> Iterator[Present | Missing]:
    """Old values and keys without one, in pieces; the latter are removed from ``saved``."""
    missing = [key for key, value in saved.items() if value is ABSENT]
    for key in missing:
        del saved[key]
    yield from present_pieces(list(saved), list(saved.values()), rows)
    yield from missing_pieces(missing, rows)


def missing_pieces(keys: list[object], rows: Callable[[], int]) -> Iterator[Missing]:
    """Keys without an entry, in pieces."""
    start = 0
    while start < len(keys):
        end = start + rows()
        yield Missing(keys[start:end])
        start = end
