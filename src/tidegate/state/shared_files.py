"""Files that a subtask of an operator has uploaded, and which ones checkpoints may name again.

**Which uploads are named again.** Those of the newest checkpoint that is known to be complete, save
those that another one does without of which nothing is known yet: if that is complete meanwhile,
the driver deletes them, perhaps before it hears of the checkpoint that would name them.

Source: checkpoint coordination §10.1; Flink, ``RocksIncrementalSnapshotStrategy``.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from flinkformat.handles import (
    FileStateHandle,
    PlaceholderStreamStateHandle,
    RelativeFileStateHandle,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flinkformat.handles import StreamStateHandle
    from tidegate.model.ids import CheckpointId

K = TypeVar("K")
V = TypeVar("V")


class SharedFiles(Generic[K, V]):
    """The uploads of one operator's subtask, by the checkpoint that names them.

    An upload is known by a key that never stands for anything else, such as the name of a file
    that does not change; its value tells where it is. completed, named: the checkpoint that was
    restored, and of its uploads what may be named again. Its methods may be called from any thread.
    """

    def __init__(
        self, completed: CheckpointId | None = None, named: Mapping[K, V] | None = None
    ) -> None:
        self._lock = threading.Lock()
        self._completed = completed
        # Of the completed checkpoint, and of each of which nothing is known yet.
        self._named: dict[CheckpointId, dict[K, V]] = {}
        if completed is not None:
            self._named[completed] = dict(named or {})

    def begin(
        self,
        checkpoint: CheckpointId,
        wanted: Callable[[dict[K, V]], dict[K, V]],
    ) -> dict[K, V]:
        """Files that a checkpoint names again. wanted: files that it could name."""
        with self._lock:
            known = {} if self._completed is None else self._named[self._completed]
            # The completed one is left out: to compare it with itself took most of a quick part.
            undecided = [named for n, named in self._named.items() if n != self._completed]
            again = wanted(
                {
                    key: place
                    for key, place in known.items()
                    if all(other.get(key) == place for other in undecided)
                }
            )
            self._named[checkpoint] = again
            return again

    def uploaded(self, checkpoint: CheckpointId, written: Mapping[K, V]) -> None:
        """Adds files that a running checkpoint names first."""
        with self._lock:
            if checkpoint in self._named:
                self._named[checkpoint] = {**self._named[checkpoint], **written}

    def on_complete(self, checkpoint: CheckpointId) -> None:
        """A checkpoint is complete: later ones may name its uploads."""
        with self._lock:
            if checkpoint in self._named:
                self._completed = checkpoint
                for older in [number for number in self._named if number < checkpoint]:
                    del self._named[older]

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        """A checkpoint was aborted: nobody may name its uploads."""
        with self._lock:
            if checkpoint != self._completed:
                self._named.pop(checkpoint, None)


def in_own_files(handles: Mapping[str, StreamStateHandle]) -> dict[str, StreamStateHandle]:
    """Handles of whole files, which can be shared; inline state is better written again."""
    return {
        name: handle
        for name, handle in handles.items()
        if isinstance(handle, FileStateHandle | RelativeFileStateHandle)
    }


def placeholder(handle: StreamStateHandle) -> PlaceholderStreamStateHandle:
    """Placeholder for a file in the driver's registry."""
    return PlaceholderStreamStateHandle(handle.physical_id, handle.state_size)
