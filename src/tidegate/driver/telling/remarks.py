"""Tells what steps were seen doing that their author should hear of."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tidegate.config.warnings import Warn
from tidegate.driver.telling.event_time import shown_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.config.warnings import Warnings
    from tidegate.jobmaster.view import JobView
    from tidegate.model.control import Remark

_LOOK_S: Final = 2.0


class Remarks:
    """Warns once a job of each remark of a subtask."""

    def __init__(self, warnings: Warnings) -> None:
        self._warnings = warnings
        self._told: set[tuple[str, ...]] = set()

    def tell(self, view: JobView) -> None:
        """Logs a warning for each new remark."""
        for vertex in view.vertices:
            for subtask in vertex.subtasks:
                for remark in subtask.figures.remarks:
                    self._tell(remark)

    def _tell(self, remark: Remark) -> None:
        is_of_time = remark.warning == Warn.TIMES_BEFORE_1980.value
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
