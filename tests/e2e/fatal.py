"""Places where a slot is killed: while it writes its part of a checkpoint, or reads one back.

The calls are the real ones; the process just sends itself SIGKILL in the middle of one of them.
"""

import os
import signal
from collections.abc import Callable
from functools import wraps
from typing import Any

from tests.e2e.jobs import Counted
from tests.e2e.journal import Latch
from tidegate import MapFunction, RuntimeContext
from tidegate.storage.local import LocalWriter
from tidegate.storage.reading import StateReader


class Doomed(MapFunction[Counted, Counted]):
    """Passes rows on, in a process that is killed as soon as a latch is set.

    uploading: killed once half of a shared file is written. restoring: once one was read.
    """

    def __init__(self, uploading: Latch, restoring: Latch) -> None:
        self._uploading = uploading
        self._restoring = restoring

    def open(self, runtime_context: RuntimeContext) -> None:
        uploading, restoring = self._uploading, self._restoring

        def write(call: Callable[..., None], writer: Any, data: bytes) -> None:
            if "shared" in writer._file.parts and uploading.take():
                call(writer, data[: len(data) // 2])
                writer._stream.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            call(writer, data)

        def copy(call: Callable[..., None], *arguments: Any, **named: Any) -> None:
            call(*arguments, **named)
            if restoring.take():
                os.kill(os.getpid(), signal.SIGKILL)

        _replace(LocalWriter, "write", write)
        _replace(StateReader, "copy", copy)

    def map(self, value: Counted) -> Counted:
        return value


def _replace(owner: type, method: str, by: Callable[..., None]) -> None:
    """Call that instead, with the method before the arguments; once in a process."""
    call = getattr(owner, method)
    if hasattr(call, "__wrapped__"):
        return

    @wraps(call)
    def called(*arguments: Any, **named: Any) -> None:
        by(call, *arguments, **named)

    setattr(owner, method, called)
