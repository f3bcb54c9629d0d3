"""Where the checkpoints of a job lie, what stands in their way, and who may use a folder."""

from __future__ import annotations

from tidegate import (
    Configuration,
    JobClient,
    KeyedProcessFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

END_S = 60.0


class Hoard(KeyedProcessFunction[int, int]):
    """Keeps so many bytes for each key, and gives on the count of its rows."""

    def __init__(self, size: int) -> None:
        self._size = size

    def open(self, runtime_context: object) -> None:
        self._hoard = runtime_context.get_state(
            ValueStateDescriptor("hoard", Types.PICKLED_BYTE_ARRAY())
        )
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: object):
        self._hoard.update(bytes(self._size))
        self._count.update((self._count.value() or 0) + 1)
        yield self._count.value()


def environment(**settings: object) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set("execution.checkpointing.interval", "50 ms")
    for key, value in settings.items():
        configuration.set(key, value)
    return StreamExecutionEnvironment.local(configuration=configuration)


def started(
    env: StreamExecutionEnvironment, name: str, *, rows: int | None, size: int = 10
) -> JobClient:
    numbers = env.generate(lambda number: number, rows, 2_000, Types.LONG()).uid("numbers")
    keyed = numbers.key_by(lambda number: number % 3, key_type=Types.LONG())
    keyed.process(Hoard(size)).uid("hoard").map(lambda count: count).uid("map")
    return env.execute_async(name)
