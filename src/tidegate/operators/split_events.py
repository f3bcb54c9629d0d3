"""What a source's readers and its coordinator say to one another.

Splits travel as bytes made by ``api.ship``, since their class may live in the user's script.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SplitsWanted:
    """Reader to coordinator: there is nothing left to read."""


@dataclass(frozen=True, slots=True)
class SplitsAssigned:
    """Coordinator to reader: read these too."""

    splits: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class NoMoreSplits:
    """Coordinator to reader: all splits have been assigned."""
