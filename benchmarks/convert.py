"""Cost of converting a result to its declared type, beside the copy of an undeclared one.

Batches of 2,048 values, the median of rounds. Guards: a declared pair of plain values in
about half of what the copy of an undeclared pair takes.

    python benchmarks/convert.py
"""

import statistics
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from rich.console import Console
from rich.table import Table

from tidegate import Row, Types
from tidegate.typeinfo.convert import Converter
from tidegate.typeinfo.copies import private_copy

VALUES = 2_048
ROUNDS = 200
WARM_UP = 20


def main() -> None:
    """Prints nanoseconds a value."""
    pairs = [(f"user-{i}", i) for i in range(VALUES)]
    rows = [Row(*pair) for pair in pairs]
    types = [Types.STRING(), Types.LONG()]
    table = Table("values", "declared", "convert", "copy, undeclared")
    for name, type_info, values in (
        ("int", Types.LONG(), list(range(VALUES))),
        ("int", Types.INT(), list(range(VALUES))),
        ("float", Types.FLOAT(), [i / 7 for i in range(VALUES)]),
        ("tuple", Types.TUPLE(types), pairs),
        ("tuple", Types.ROW(types), pairs),
        ("Row", Types.ROW(types), rows),
        ("Row", Types.TUPLE(types), rows),
    ):
        convert = Converter(type_info).batch
        declared = cost_ns(convert, values)
        undeclared = cost_ns(lambda each: list(map(private_copy, each)), values)
        table.add_row(name, str(type_info), f"{declared:.0f} ns", f"{undeclared:.0f} ns")
    Console().print(table)


def cost_ns(work: Callable[[list[Any]], object], values: list[Any]) -> float:
    """Median nanoseconds a value."""
    taken: list[int] = []
    for _ in range(ROUNDS):
        start = perf_counter_ns()
        work(values)
        taken.append(perf_counter_ns() - start)
    return statistics.median(taken[WARM_UP:]) / VALUES


if __name__ == "__main__":
    main()
