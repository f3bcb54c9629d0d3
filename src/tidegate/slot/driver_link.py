"""The slot's link to its driver, and errors of subtasks as the driver is told."""

from __future__ import annotations

import copy
import pickle
import traceback
from typing import TYPE_CHECKING

from tidegate.api.rows.batches import raised
from tidegate.errors import TidegateError, UserCodeFailed
from tidegate.model.descriptors import shortage

if TYPE_CHECKING:
    from tidegate.model.control import ToDriver
    from tidegate.slot.process.printing import Printing
    from tidegate.transport.wire import Wire


class DriverLink:
    """Sends messages to the driver; before it is dialled, and once it is gone, to nobody.

    printing: what functions have printed goes ahead of each message.
    """

    def __init__(self, printing: Printing) -> None:
        self._printing = printing
        self._wire: Wire | None = None

    def dialled(self, wire: Wire) -> None:
        self._wire = wire

    def send(self, message: ToDriver) -> None:
        if self._wire is not None:
            self.send_printed()  # ahead of the subtask's end, behind which nobody listens
            self._wire.send([pickle.dumps(message, protocol=5)])

    def send_printed(self) -> None:
        if self._wire is not None:
            for printed in self._printing.take():
                self._wire.send([pickle.dumps(printed, protocol=5)])

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()


def as_ours(error: Exception, where: str) -> TidegateError:
    """The error in a form that can travel to the driver, with the place where it happened."""
    if isinstance(error, TidegateError):
        placed = copy.copy(error)  # the same error may be that of several subtasks
        placed.where = f"{error.where}, in {where}" if error.where else where
        return placed
    trace = "".join(traceback.format_exception(error))
    short = shortage(error)  # by the function, or by others of its process: its trace may tell
    remedy = short.remedy if short else ""
    return UserCodeFailed(raised(error), where=where, remedy=remedy, trace=trace)
