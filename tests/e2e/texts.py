"""Texts by key, of which only one changes for most of the job. Slots import this by its name."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e.jobs import same
from tests.e2e.ledger import LedgerSink
from tidegate import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

KEYS = 600
CALM = 3_000
TOTAL = KEYS + CALM + KEYS


def key_of(number: int) -> int:
    """Each key once, then the first one for long, then each once more."""
    return number if number < KEYS else max(0, number - KEYS - CALM)


def text_of(key: int, count: int) -> str:
    return f"{count} times customer number {key} was here; " * 20


class Texts(KeyedProcessFunction[int, dict[str, Any]]):
    """Keeps a text for each key, and says how often it has seen the key and whether it is right."""

    def open(self, runtime_context: RuntimeContext) -> None:
        held = ValueStateDescriptor("held", tuple[int, str])
        self._held = runtime_context.get_state(held)

    def process_element(
        self, value: int, ctx: KeyedProcessFunction.Context
    ) -> Iterator[dict[str, Any]]:
        key = key_of(value)
        count, text = self._held.value() or (0, text_of(key, 0))
        self._held.update((count + 1, text_of(key, count + 1)))
        yield {"number": value, "count": count + 1, "right": text == text_of(key, count)}


def texts(env: StreamExecutionEnvironment, folder: Path, rate: float | None) -> None:
    """The program; its rows go to a ledger."""
    numbers = env.generate(same, TOTAL, rate, Types.LONG()).uid("numbers")
    kept = numbers.key_by(key_of, key_type=Types.LONG()).process(Texts()).uid("texts")
    kept.sink_to(LedgerSink(folder)).uid("ledger")


def check_texts(rows: list[dict[str, Any]]) -> None:
    """Each number once, and each key's text as it was left."""
    assert sorted(row["number"] for row in rows) == list(range(TOTAL))
    assert all(row["right"] for row in rows)
    for key in range(KEYS):
        counts = sorted(row["count"] for row in rows if key_of(row["number"]) == key)
        assert counts == list(range(1, len(counts) + 1))
