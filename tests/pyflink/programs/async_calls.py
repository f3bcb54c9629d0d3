"""Calls of a service by coroutines, in order, with another attempt."""

import asyncio

from pyflink.common import Time, Types
from pyflink.datastream import AsyncDataStream, AsyncFunction, StreamExecutionEnvironment
from pyflink.datastream.functions import AsyncRetryStrategy, RuntimeContext


class Lookup(AsyncFunction):
    def open(self, runtime_context: RuntimeContext):
        self.asked = {}

    async def async_invoke(self, value):
        await asyncio.sleep(0.001 * (5 - value))
        return [value, value * 10]


class Flaky(Lookup):
    async def async_invoke(self, value):
        self.asked[value] = self.asked.get(value, 0) + 1
        if self.asked[value] < 2:
            raise ValueError("not yet")
        return [f"{value} after {self.asked[value]}"]


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
numbers = env.from_collection([1, 2, 3, 4], Types.INT())
AsyncDataStream.ordered_wait(numbers, Lookup(), Time.seconds(30), 2, Types.INT()).print("ordered")
AsyncDataStream.unordered_wait(numbers, Lookup(), Time.seconds(30), 4, Types.INT()).print("any")
AsyncDataStream.ordered_wait_with_retry(
    numbers,
    Flaky(),
    Time.seconds(30),
    AsyncRetryStrategy.fixed_delay(3, 10, None, lambda error: isinstance(error, ValueError)),
    4,
    Types.STRING(),
).print("retried")
env.execute("async")
