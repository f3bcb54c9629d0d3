"""Watches over a running job, and says what its people should hear of while it runs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from tidegate.config.warnings import Warn
from tidegate.jobmaster.standstill import Standstills
from tidegate.model.elements import MIN_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    import structlog

    from tidegate.clock import Clock
    from tidegate.config.warnings import Warnings
    from tidegate.jobmaster.view import JobView
    from tidegate.model.control import Remark

TELL_EVERY_MS: Final = 10_000
"""What a stop waits for is told when it has lasted for so long, and again each time."""

_LOOK_S: Final = 2.0
_LOOK_AT_STOPS_S: Final = 1.0
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


class Remarks:
    """Warns of each remark of a subtask, once in a job."""

    def __init__(self, warnings: Warnings) -> None:
        self._warnings = warnings
        self._told: set[tuple[str, ...]] = set()

    def tell(self, view: JobView) -> None:
        subtasks = (subtask for vertex in view.vertices for subtask in vertex.subtasks)
        for remark in (remark for subtask in subtasks for remark in subtask.figures.remarks):
            self._tell(remark)

    def _tell(self, remark: Remark) -> None:
        is_of_time = remark.warning == Warn.TIMES_BEFORE_1980.value
        # Each row brings another time, and all of them say the same.
        about = (remark.warning, remark.step, "" if is_of_time else remark.about)
        if about in self._told:
            return
        self._told.add(about)
        if is_of_time:
            self._warnings.warn(
                Warn.TIMES_BEFORE_1980,
                "event times lie before 1980: they are milliseconds since 1970, and these look "
                "like seconds; multiply them by 1000",
                step=remark.step,
                given=int(remark.about),
                taken_for=shown_time(int(remark.about)),
            )
        elif remark.warning == Warn.GAUGE_FAILED.value:
            self._warnings.warn(
                Warn.GAUGE_FAILED,
                "a metric is not read; give it numbers, and have the function of a gauge return "
                "one at once",
                step=remark.step,
                metric=remark.about,
            )
        elif remark.warning == Warn.TOO_MANY_METRICS.value:
            self._warnings.warn(
                Warn.TOO_MANY_METRICS,
                "a step has more metrics than tidegate.metrics.user-max; this one and those after "
                "it are not told. Do not name metrics after rows or keys",
                step=remark.step,
                metric=remark.about,
            )
        else:
            self._warnings.warn(
                Warn.UNREAD_SIDE_OUTPUT,
                "a side output has rows that nobody reads; call get_side_output with its tag",
                step=remark.step,
                tag=remark.about,
            )


async def watch_remarks(view: Callable[[], JobView], remarks: Remarks) -> None:
    """Warn of each remark soon; runs until it is cancelled."""
    while True:
        await asyncio.sleep(_LOOK_S)
        remarks.tell(view())


def why_waiting(view: JobView) -> str:
    """Text for what a savepoint, or a stop with one, waits for: a verb and its object."""
    if view.stopping is not None:
        return str(view.stopping)
    calls = [
        f"{slot.calling} has been in {slot.long_call.function} for {slot.batch_age_ms / 1000:.0f} s"
        for slot in view.slots
        if slot.long_call is not None
    ]
    return "; ".join(["is not complete", *calls])


async def watch_stops(
    view: Callable[[], JobView], log: structlog.typing.FilteringBoundLogger
) -> None:
    """Tell what stops wait for; runs until it is cancelled."""
    told = 0
    while True:
        await asyncio.sleep(_LOOK_AT_STOPS_S)
        stopping = view().stopping
        times = 0 if stopping is None else stopping.for_ms // TELL_EVERY_MS
        if stopping is not None and times > told:
            log.warning(
                "the stop with savepoint has not ended yet",
                for_ms=stopping.for_ms,
                savepoint=stopping.savepoint,
                why=str(stopping),
            )
        told = times
