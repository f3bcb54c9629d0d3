"""What tests of calls look at: results in their order, and functions that give several."""

from collections.abc import Awaitable, Callable

from tests.operators.world import Collected, values_of
from tidegate.api.functions.async_functions import AsyncFunction
from tidegate.model.elements import Batch, Watermark, WatermarkStatus


class InOrder(Collected):
    """Keeps values and marks in the order in which they come."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[object] = []

    def emit(self, batch: Batch) -> None:
        super().emit(batch)
        self.log += values_of(batch)

    def emit_watermark(self, watermark: Watermark | WatermarkStatus) -> None:
        super().emit_watermark(watermark)
        self.log.append(watermark)


class Several(AsyncFunction[object, object]):
    """A coroutine function that gives a list of results."""

    def __init__(self, call: Callable[[object], Awaitable[list[object]]]) -> None:
        self._call = call

    async def async_invoke(self, value: object) -> list[object]:
        return await self._call(value)
