"""A program, and edits of it that its checkpoints do not fit. Slots import this by its name."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.e2e.jobs import key_of, same
from tidegate import (
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from tidegate.connectors import FileSource


class Seen(KeyedProcessFunction[int, int]):
    """Passes on the first value of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.BOOLEAN()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        if not self._seen.value():
            self._seen.update(True)
            yield value


def nothing(value: object) -> bool:
    return False


def number_of(row: dict[str, int]) -> int:
    return row["number"]


def with_a_step_between(
    env: StreamExecutionEnvironment, *, between: bool = True, max_parallelism: int = 128
) -> None:
    """Numbers, their keys' first ones (uid "first"), and once more those of others ("second")."""
    numbers = env.generate(same, None, 2_000, Types.LONG()).uid("numbers")
    first = numbers.key_by(key_of, key_type=Types.LONG()).process(Seen())
    stream = first.uid("first").set_max_parallelism(max_parallelism)
    if between:
        stream = stream.key_by(same, key_type=Types.LONG()).process(Seen()).uid("second")
    end(stream)


def end(stream: DataStream[int], uid: str = "") -> None:
    stream.filter(nothing).uid(f"none {uid}").print().uid(f"end {uid}")


def write_uneven(folder: Path) -> None:
    """A file that is read at once, and one that is not at its end before the test is."""
    folder.mkdir()
    for name, rows in (("short", 10), ("long", 1_000_000)):
        table = pa.table({"number": pa.array(range(rows), pa.int64())})
        pq.write_table(table, folder / f"{name}.parquet")  # one row group, so it is one split


def of_three_kinds(env: StreamExecutionEnvironment, folder: Path) -> None:
    """A step that has ended, one that has in one of two subtasks, and one that runs."""
    ended = env.from_sequence(1, 10).uid("few").rebalance().map(same).uid("ended")
    end(ended, "1")
    end(partly(env, folder).map(number_of).uid("partly"), "2")
    end(running(env).map(same).uid("running"), "3")


def partly(env: StreamExecutionEnvironment, folder: Path) -> DataStream[dict[str, int]]:
    return env.from_source(FileSource.parquet(str(folder)).rate(200)).uid("files")


def running(env: StreamExecutionEnvironment) -> DataStream[int]:
    return env.generate(same, None, 200, Types.LONG()).uid("numbers")


def finished_behind_running(env: StreamExecutionEnvironment, folder: Path) -> None:
    end(running(env).rebalance().map(same).uid("ended"), "1")


def partly_finished_all_to_all(env: StreamExecutionEnvironment, folder: Path) -> None:
    end(partly(env, folder).rebalance().map(number_of).uid("partly"), "2")


def mixed_chain(env: StreamExecutionEnvironment, folder: Path) -> None:
    end(running(env).rebalance().map(same).uid("running").map(same).uid("ended"), "3")
