"""Cost of writing and reading a value in state, beside MessagePack by itself.

Pieces of 10,000 values, the median of rounds. Guards: a declared pair of numbers within twice what
the bare encoder takes, an undeclared one within three times.

    python benchmarks/serializers.py
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

from tidegate.typeinfo.hints import type_of_hint
from tidegate.typeinfo.serializers import serializer_of

VALUES = 10_000
ROUNDS = 40
WARM_UP = 5


@dataclass
class Stats:
    """An object of a class, as state often holds."""

    count: int
    total: int


class Pair(NamedTuple):
    """A pair as a named tuple."""

    count: int
    total: int


def main() -> None:
    """Prints nanoseconds a value."""
    texts = [f"user-{i}" for i in range(VALUES)]
    pairs = [(i, i * 7) for i in range(VALUES)]
    objects = [Stats(i, i * 7) for i in range(VALUES)]
    table = Table("values", "bare MessagePack", "write", "read", "times bare")
    for name, hint, values in (
        ("str, declared", str, texts),
        ("str, undeclared", None, texts),
        ("pair of int, declared", tuple[int, int], pairs),
        ("pair of int, undeclared", None, pairs),
        ("NamedTuple", Pair, [Pair(*pair) for pair in pairs]),
        ("dataclass, declared", Stats, objects),
        ("dataclass, undeclared", None, objects),
    ):
        bare = cost_ns(lambda values=values: msgspec.msgpack.encode(values))
        serializer = serializer_of(None if hint is None else type_of_hint(hint))
        piece = serializer.encode_many(values)
        write = cost_ns(lambda s=serializer, values=values: s.encode_many(values))
        read = cost_ns(lambda s=serializer, piece=piece: s.decode_many(piece))
        row = (f"{bare:.0f} ns", f"{write:.0f} ns", f"{read:.0f} ns", f"{write / bare:.1f}")
        table.add_row(name, *row)
    Console().print(table)


def cost_ns(work: Callable[[], object]) -> float:
    """Median nanoseconds a value."""
    taken: list[int] = []
    for _ in range(ROUNDS):
        start = perf_counter_ns()
        work()
        taken.append(perf_counter_ns() - start)
    return statistics.median(taken[WARM_UP:]) / VALUES


if __name__ == "__main__":
    main()
