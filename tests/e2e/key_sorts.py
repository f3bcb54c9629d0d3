"""Jobs keyed by everything that may be a key, each key in all its equal forms."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import numpy as np

from tests.e2e.ledger import LedgerSink
from tidegate import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COUNT = ValueStateDescriptor("count", Types.LONG())


class Level(Enum):
    LOW = 1
    HIGH = (2, 3)


class Status(IntEnum):
    OK = 200
    LOST = 404


class Color(StrEnum):
    RED = "red"


class Route(NamedTuple):
    origin: str
    number: int


@dataclass(frozen=True)
class Leg:
    route: Route
    level: Level
    weight: float


NOON = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
SORTS: dict[str, list[list[Any]]] = {
    "numbers": [
        [1, True, 1.0, np.int64(1), np.float32(1), Decimal("1.00")],
        [0.5, np.float64(0.5), Decimal("0.50")],
        [Decimal("0.1"), Decimal("0.10")],
        [2**53 + 1, Decimal(2**53 + 1)],
    ],
    "truths": [[True, np.bool_(True)], [False, np.bool_(False)]],
    "texts": [["red", Color.RED, np.str_("red")], ["blue"]],
    "numbered": [[Status.OK, 200, 200.0], [Status.LOST]],
    "members": [[Level.LOW], [Level.HIGH]],
    "ids": [[UUID(int=1)], [UUID(int=2**127)]],
    "spans": [[datetime.timedelta(seconds=1), np.timedelta64(1, "s")], [datetime.timedelta(-1)]],
    "days": [[NOON.date(), np.datetime64("2026-03-01")]],
    "instants": [[NOON, NOON.astimezone(datetime.timezone(datetime.timedelta(hours=5)))]],
    "named": [[Route("JFK", 1), ("JFK", 1), Route("JFK", True), ["JFK", 1.0]], [Route("LGA", 2)]],
    "with names or not": [[("JFK", 1), Route("JFK", 1)], [Route("LGA", 2)], [("EWR", 3)]],
    "records": [
        [Leg(Route("JFK", 1), Level.LOW, 2.0), Leg(Route("JFK", 1), Level.LOW, np.float64(2))],
        [Leg(Route("JFK", 1), Level.LOW, 2.5)],
    ],
    "lists": [[[1, ["a"]], (1, ("a",)), (1.0, ["a"])], [[2, ["a"]]]],
}
DECLARED: dict[str, Any] = {
    "truths": bool, "numbered": Status, "texts": Color, "named": Route, "records": Leg,
}  # fmt: skip
TEXTS_DECLARED = {"texts": [["red", Color.RED, np.str_("red")]]}
DECLARED_SORTS = {sort: (SORTS | TEXTS_DECLARED)[sort] for sort in DECLARED}
ALL = SORTS | {f"declared {sort}": forms for sort, forms in DECLARED_SORTS.items()}


def key_of(forms: list[list[Any]], number: int) -> Any:
    """The key of a number: each key in turn, in one of its forms."""
    of_one = forms[number % len(forms)]
    return of_one[number // len(forms) % len(of_one)]


class Count(KeyedProcessFunction[int, dict[str, object]]):
    """How many times a key has come, under the key as the function sees it."""

    def __init__(self, sort: str) -> None:
        self._sort = sort

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(COUNT)

    def process_element(
        self, value: int, ctx: KeyedProcessFunction.Context
    ) -> Iterator[dict[str, object]]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        given = key_of(ALL[self._sort], value)
        own = tuple(given) if isinstance(given, list) else given
        key = ctx.get_current_key()
        yield {"sort": self._sort, "key": value % len(ALL[self._sort]), "count": count} | (
            {} if _is_same(key, own) else {"other": repr((key, own))}
        )


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return bool(one == other)


def build(env: StreamExecutionEnvironment, total: int, rate: int | None, folder: Path) -> None:
    """Counts of all keys of all sorts, in a ledger."""
    numbers = env.generate(lambda number: number, total, rate).uid("source").rebalance()
    mixed = numbers.map(lambda number: number).name("mixed").uid("mixed")
    for sort, forms in ALL.items():
        declared = DECLARED.get(sort.removeprefix("declared ")) if "declared" in sort else None
        keyed = mixed.key_by(partial(key_of, forms), declared)
        counts = keyed.process(Count(sort)).uid(sort)
        counts.sink_to(LedgerSink(folder / sort)).uid(f"{sort}, ledger")
