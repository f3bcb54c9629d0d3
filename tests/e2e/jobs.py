"""Programs of the end-to-end tests. Slots import this module by its name, so it imports little."""

from collections.abc import Iterator

import pyarrow as pa

from tidegate import (
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

KEYS = 17

COUNT_SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("key", pa.int64()),
        ("count", pa.int64()),
        ("attempt", pa.int64()),
        ("emitted_ms", pa.int64()),
    ]
)
"""A row a number: its key, how many numbers of the key came so far, and who says so when."""

Counted = dict[str, int]


def same(number: int) -> int:
    return number


def key_of(number: int) -> int:
    return number % KEYS


class RunningCount(KeyedProcessFunction[int, Counted]):
    """How many numbers of each key came so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._attempt = runtime_context.get_attempt_number()
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[Counted]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield {
            "number": value,
            "key": value % KEYS,
            "count": count,
            "attempt": self._attempt,
            "emitted_ms": ctx.timer_service().current_processing_time(),
        }


def running_counts(
    env: StreamExecutionEnvironment,
    rows: int | None,
    rate: float | None,
    function: KeyedProcessFunction[int, Counted] | None = None,
) -> DataStream[Counted]:
    """Numbers at a rate, counted by key."""
    return counted(env.generate(same, rows, rate, Types.LONG()).uid("numbers"), function)


def counted(
    numbers: DataStream[int], function: KeyedProcessFunction[int, Counted] | None = None
) -> DataStream[Counted]:
    """Numbers counted by key."""
    keyed = numbers.key_by(key_of, key_type=Types.LONG())
    return keyed.process(function or RunningCount()).uid("counts")
