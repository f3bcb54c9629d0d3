"""Aggregates of a column for each key of a stream of Arrow batches.

An aggregate leaves out nulls, as in SQL: of no values a count is 0, a collection empty, and all
others are null. The results of an aggregate are a column named ``<column>_<aggregate>``, which
``alias`` renames; a count of rows is named ``count``.

>>> flights.key_by("carrier").aggregate_batches(
...     Count(), Mean("dep_delay").alias("delay"), Max("dep_delay")
... )
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

A = TypeVar("A", bound="Aggregate")


@dataclass(frozen=True)
class Aggregate:
    """Base of all aggregates. column: input. name: of the result's column."""

    suffix: ClassVar[str]
    column: str | None
    name: str | None = None

    def alias(self: A, name: str) -> A:
        """A copy whose results are in a column of that name."""
        return replace(self, name=name)

    @property
    def output(self) -> str:
        """Name of the result's column."""
        if self.name is not None:
            return self.name
        return self.suffix if self.column is None else f"{self.column}_{self.suffix}"

    def __str__(self) -> str:
        return f"{type(self).__name__}({'' if self.column is None else repr(self.column)})"


@dataclass(frozen=True)
class Count(Aggregate):
    """Number of rows, or of a column's values that are not null: int64."""

    suffix = "count"
    column: str | None = None


@dataclass(frozen=True)
class Sum(Aggregate):
    """Sum of numbers, decimals or durations.

    Integers are summed in 64 bits and wrap around beyond, as in Flink; floats in double precision,
    one after another; decimals with 38 digits.
    """

    suffix = "sum"
    column: str


@dataclass(frozen=True)
class Min(Aggregate):
    """Least value; NaN counts as greater than all numbers."""

    suffix = "min"
    column: str


@dataclass(frozen=True)
class Max(Aggregate):
    """Greatest value; NaN counts as greater than all numbers."""

    suffix = "max"
    column: str


@dataclass(frozen=True)
class Mean(Aggregate):
    """Sum of numbers or decimals by their count: double."""

    suffix = "mean"
    column: str


@dataclass(frozen=True)
class First(Aggregate):
    """First value: in a window that of the least event time, else the first to arrive."""

    suffix = "first"
    column: str


@dataclass(frozen=True)
class Last(Aggregate):
    """Last value: in a window that of the greatest event time, else the last to arrive."""

    suffix = "last"
    column: str


@dataclass(frozen=True)
class Collect(Aggregate):
    """All values as a list, in the order of their arrival; state grows with each of them."""

    suffix = "list"
    column: str


@dataclass(frozen=True)
class CountDistinct(Aggregate):
    """Number of different values, exact: int64; state holds each of them once."""

    suffix = "distinct"
    column: str
