"""The driver's alarm: rings in time, and after a standstill only when the driver has listened."""

import asyncio
from collections.abc import Callable

import pytest
import structlog

from tidegate.driver import inbox as alarms
from tidegate.driver.inbox import Alarm
from tidegate.testing import ManualClock

LIMIT_S = 60.0


class Rung:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.times: list[int] = []
        self.changed = asyncio.Event()
        self.alarm = Alarm(self.clock, self._ring, structlog.get_logger())

    def _ring(self) -> None:
        self.times.append(self.clock.monotonic_ms())
        self.changed.set()

    async def wait(self) -> None:
        async with asyncio.timeout(LIMIT_S):
            await self.changed.wait()


def run(scenario: Callable[[Rung], object]) -> list[dict[str, object]]:
    async def run() -> None:
        await scenario(Rung())  # type: ignore[misc]

    with structlog.testing.capture_logs() as logs:
        asyncio.run(run())
    return logs  # type: ignore[return-value]


def test_it_rings_at_the_time_that_was_set_last_and_not_when_cancelled() -> None:
    async def scenario(rung: Rung) -> None:
        now = rung.clock.monotonic_ms()
        rung.alarm.set(now + 10_000_000)
        rung.alarm.set(None)
        rung.alarm.set(now - 5_000)  # due already is due at once, and no standstill
        await rung.wait()
        assert rung.times == [now]

    assert run(scenario) == []


@pytest.mark.parametrize("news_first", [False, True])
def test_after_a_standstill_it_rings_once_the_driver_has_listened(
    news_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """news_first: what waited in a socket is handled before the timer, and sets the alarm anew."""
    monkeypatch.setattr(alarms, "HEAR_FIRST_MS", 30)

    async def scenario(rung: Rung) -> None:
        now = rung.clock.monotonic_ms()
        rung.alarm.set(now + 5)
        rung.clock.advance(60_000)
        if news_first:
            rung.alarm.set(now + 5)
        heard: list[bool] = []
        asyncio.get_running_loop().call_later(0.02, lambda: heard.append(not rung.times))
        await rung.wait()
        assert heard == [True]

    (told,) = run(scenario)
    assert "stood still" in str(told["event"]) and told["for_ms"] == 59_995
