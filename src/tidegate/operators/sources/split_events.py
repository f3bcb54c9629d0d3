"""Messages between a source's readers and its coordinator.

Splits travel as bytes made by ``api.ship``, since their class may live in the user's script.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SplitsWanted:
    """Reader to coordinator: no splits are left to read."""


@dataclass(frozen=True, slots=True)
class SplitsAssigned:
    """Coordinator to reader: read these too."""

    splits: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class NoMoreSplits:
    """Coordinator to reader: all splits have been assigned."""


@dataclass(frozen=True, slots=True)
class WatermarkReached:
    """Reader to coordinator, of an alignment group: how far its event time has come.

    ms: None if it does not count: it is idle, has ended, or has no watermark yet.
    """

    ms: int | None


@dataclass(frozen=True, slots=True)
class WatermarkAllowed:
    """Coordinator to reader, of an alignment group: read no further than this watermark."""

    ms: int
