"""Which barrier handling a job's settings ask for.

Source: checkpoint coordination §14.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.checkpoint.barriers.exactly_once import AlignedBarriers, AlternatingBarriers
from tidegate.checkpoint.barriers.tracker import BarrierTracker
from tidegate.model.settings import CheckpointingMode

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidegate.checkpoint.barriers.protocol import BarrierHandler
    from tidegate.model.ids import ChannelId
    from tidegate.model.settings import CheckpointSettings


def make_barrier_handler(
    settings: CheckpointSettings, channels: Collection[ChannelId]
) -> BarrierHandler:
    """The handler over the input channels of one subtask."""
    if settings.mode is CheckpointingMode.AT_LEAST_ONCE:
        handler: type[BarrierTracker | AlignedBarriers] = BarrierTracker
    else:
        handler = AlternatingBarriers if settings.unaligned else AlignedBarriers
    return handler(channels, after_tasks_finish=settings.after_tasks_finish)
