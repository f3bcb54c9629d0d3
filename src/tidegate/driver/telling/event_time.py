"""Watches over a running job's event time, and says where it stands still."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from tidegate.config.warnings import Warn
from tidegate.jobmaster.standstill import Standstills
from tidegate.model.elements import MIN_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.clock import Clock
    from tidegate.config.warnings import Warnings
    from tidegate.jobmaster.view import JobView

_LOOK_S: Final = 2.0
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


async def watch_event_time(view: Callable[[], JobView], clock: Clock, warnings: Warnings) -> None:
    """Warn of each standstill; runs until it is cancelled."""
    standstills = Standstills()
    while True:
        await asyncio.sleep(_LOOK_S)
        for each in standstills.look(view(), clock.monotonic_ms()):
            warnings.warn(
                Warn.EVENT_TIME_STANDS,
                "event time stands still: an input gives no watermark while others go on; "
                "let it be passed over with WatermarkStrategy.with_idleness, or see why it rests",
                waits=each.step,
                for_input=each.silent,
                since_s=each.for_ms // 1_000,
                event_time=shown_time(each.watermark_ms),
            )


def shown_time(ms: int) -> str:
    """Event time as a date, as a number where there is none such, or that it has not begun."""
    if ms == MIN_TIMESTAMP_MS:
        return "not begun"
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).isoformat(sep=" ", timespec="milliseconds")
    except OverflowError:
        return f"{ms} ms"
