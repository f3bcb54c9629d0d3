"""A job that looks each number up before it counts it. Slots import this module by its name."""

import asyncio

from tests.e2e.jobs import Counted, RunningCount, key_of, same
from tidegate import AsyncDataStream, DataStream, StreamExecutionEnvironment, Time, Types


async def looked_up(number: int) -> int:
    """The number, after a while that is another for each."""
    await asyncio.sleep(number * 37 % 11 / 50)
    return number


def counted_lookups(
    env: StreamExecutionEnvironment, rows: int, rate: float, *, ordered: bool
) -> DataStream[Counted]:
    """Numbers at a rate, looked up, counted by key."""
    numbers = env.generate(same, rows, rate, Types.LONG()).uid("numbers")
    wait = AsyncDataStream.ordered_wait if ordered else AsyncDataStream.unordered_wait
    found = wait(numbers, looked_up, Time.minutes(1), 200, Types.LONG()).uid("lookups")
    return found.key_by(key_of, key_type=Types.LONG()).process(RunningCount()).uid("counts")
