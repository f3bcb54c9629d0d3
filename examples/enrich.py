"""Asks a slow and unreliable service about each record, four calls at a time.

A call takes up to 50 ms; one fails and is made again; one is never answered, and after half a
second gives "unknown".
"""

import asyncio

from tidegate import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    StreamExecutionEnvironment,
    Time,
)

IDS = list(range(20))
FAILS_ONCE, NEVER_ANSWERS = 7, 13
CAPACITY = 4


class Service:
    """Looks up names, far away."""

    def __init__(self):
        self.failed = False
        self.calls = 0

    async def name(self, number):
        """The name of an id, and how many calls were in flight with this one."""
        self.calls += 1
        calls = self.calls
        try:
            await asyncio.sleep((5 + number * 7 % 46) / 1_000)
            if number == FAILS_ONCE and not self.failed:
                self.failed = True
                raise ConnectionError("try again")
            if number == NEVER_ANSWERS:
                await asyncio.sleep(3_600)
            return f"name {number}", calls
        finally:
            self.calls -= 1


class LookUp(AsyncFunction):
    def open(self, runtime_context):
        self.service = Service()

    async def async_invoke(self, value):
        name, calls = await self.service.name(value)
        return [(value, name, calls)]

    def timeout(self, value):
        return [(value, "unknown", 0)]


TWICE = AsyncRetryStrategy.fixed_delay(
    2, 10, exception_predicate=lambda error: isinstance(error, ConnectionError)
)


def with_names(ids, ordered, timeout_ms=500):
    """Each id with its name, and with how many calls were in flight. ids: a stream of numbers.

    ordered: in the order of the ids.
    """
    wait = (
        AsyncDataStream.ordered_wait_with_retry
        if ordered
        else AsyncDataStream.unordered_wait_with_retry
    )
    found = wait(ids, LookUp(), Time.milliseconds(timeout_ms), TWICE, CAPACITY)
    return found.set_parallelism(1).uid("names")


def main():
    for ordered in (True, False):
        env = StreamExecutionEnvironment.get_execution_environment()
        env.enable_checkpointing(500)
        names = with_names(env.from_collection(IDS).uid("ids"), ordered)
        with names.execute_and_collect("enrich") as results:
            found = list(results)
        print("in order:" if ordered else "as they came:", [number for number, _, _ in found])
        print("unknown:", [number for number, name, _ in found if name == "unknown"])
        print("at most", max(calls for _, _, calls in found), "calls at a time")


if __name__ == "__main__":
    main()
