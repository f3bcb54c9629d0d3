"""Event time over all inputs of a subtask."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from tidegate.model.elements import (
    MAX_WATERMARK_MS,
    MIN_TIMESTAMP_MS,
    Watermark,
    WatermarkStatus,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidegate.model.ids import ChannelId

_NAMED_MAX: Final = 4
"""Channels that are named when they hold back event time."""


class WatermarkValve:
    """Event time over several channels: the least of those that are not idle.

    Source: Flink, StatusWatermarkValve. A channel that has become idle is passed over, one that is
    active again holds event time back only once it has caught up.
    """

    def __init__(self, channels: Collection[ChannelId]) -> None:
        self._watermarks = dict.fromkeys(channels, MIN_TIMESTAMP_MS)
        self._idle: set[ChannelId] = set()
        self._behind: set[ChannelId] = set()
        self._current = MIN_TIMESTAMP_MS
        self._said_idle = False

    @property
    def current_ms(self) -> int:
        return self._current

    @property
    def furthest_ms(self) -> int:
        """The event time of the input that has come furthest and has not ended."""
        going_on = (ms for ms in self._watermarks.values() if ms < MAX_WATERMARK_MS)
        return max(going_on, default=self._current)

    @property
    def held_by(self) -> tuple[ChannelId, ...]:
        """The first channels that others are ahead of; none where none is."""
        counted = [
            channel
            for channel in self._watermarks
            if channel not in self._idle and channel not in self._behind
        ]
        least = min((self._watermarks[channel] for channel in counted), default=self._current)
        if least >= self.furthest_ms:
            return ()
        held = (channel for channel in counted if self._watermarks[channel] == least)
        return tuple(islice(held, _NAMED_MAX))

    def watermark(self, channel: ChannelId, ms: int) -> Watermark | None:
        """A watermark has come; the new one over all channels, where that has advanced."""
        if channel in self._idle or ms <= self._watermarks[channel]:
            return None
        self._watermarks[channel] = ms
        if channel in self._behind and ms >= self._current:
            self._behind.discard(channel)
        return self._advance()

    def status(self, channel: ChannelId, idle: bool) -> list[Watermark | WatermarkStatus]:
        """A channel has become idle or active; what is to be passed on, in order."""
        if idle == (channel in self._idle):
            return []
        if idle:
            self._idle.add(channel)
            self._behind.discard(channel)
            if len(self._idle) < len(self._watermarks):
                advanced = self._advance()
                return [advanced] if advanced else []
            return self._all_idle(self._watermarks[channel] == self._current)
        self._idle.discard(channel)
        if self._watermarks[channel] < self._current:
            self._behind.add(channel)
        if self._said_idle:
            self._said_idle = False
            return [WatermarkStatus(idle=False)]
        return []

    def _all_idle(self, led: bool) -> list[Watermark | WatermarkStatus]:
        """led: the last channel to become idle was the one that held event time back."""
        self._said_idle = True
        highest = max(self._watermarks.values())
        out: list[Watermark | WatermarkStatus] = []
        if led and highest > self._current:
            self._current = highest
            out.append(Watermark(highest))
        out.append(WatermarkStatus(idle=True))
        return out

    def _advance(self) -> Watermark | None:
        counted = [
            ms
            for channel, ms in self._watermarks.items()
            if channel not in self._idle and channel not in self._behind
        ]
        if not counted:
            return None
        least = min(counted)
        if least <= self._current:
            return None
        self._current = least
        return Watermark(least)
