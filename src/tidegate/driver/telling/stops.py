"""Says what a stop with savepoint waits for, and watches over it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    import structlog

    from tidegate.jobmaster.view import JobView

TELL_EVERY_MS: Final = 10_000
"""What a stop waits for is told when it has lasted for so long, and again each time."""

_LOOK_S: Final = 1.0


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
        await asyncio.sleep(_LOOK_S)
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
