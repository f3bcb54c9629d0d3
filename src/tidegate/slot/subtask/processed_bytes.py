"""Counts the bytes that a subtask reads while a checkpoint's barriers arrive."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidegate.model.ids import CheckpointId
    from tidegate.slot.channels.gate import InputChannel


class ProcessedBytes:
    """Bytes read from the first barrier of each checkpoint on.

    A row counts with the mean size that the rows of its edge have had on the wire so far, for rows
    are not encoded again to be measured; where all of an edge stays within slots nothing ever
    was, and its rows count nothing. An Arrow batch counts with the memory of its columns.
    """

    def __init__(self, channels: Collection[InputChannel]) -> None:
        self._channels = channels
        self._begun: dict[CheckpointId, list[tuple[int, int]]] = {}

    def begin(self, checkpoint: CheckpointId) -> None:
        """Its first barrier came; later calls have no effect."""
        if checkpoint not in self._begun:
            read = [(channel.rows_read, channel.arrow_bytes_read) for channel in self._channels]
            self._begun[checkpoint] = read

    def of(self, checkpoint: CheckpointId) -> int:
        """Bytes read since its first barrier; 0 if all came at once."""
        begun = self._begun.get(checkpoint)
        if begun is None:
            return 0
        rows, came = Counter[int](), Counter[int]()
        for channel in self._channels:
            rows[channel.id.edge] += channel.rows_came
            came[channel.id.edge] += channel.bytes_came
        read = 0.0
        for channel, (rows_then, arrow_then) in zip(self._channels, begun, strict=True):
            edge = channel.id.edge
            row_bytes = came[edge] / rows[edge] if rows[edge] else 0.0
            read += (channel.rows_read - rows_then) * row_bytes
            read += channel.arrow_bytes_read - arrow_then
        return round(read)

    def end(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was cut or aborted; older ones are dropped too."""
        self._begun = {known: read for known, read in self._begun.items() if known > checkpoint}
