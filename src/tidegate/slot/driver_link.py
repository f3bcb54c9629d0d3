"""The slot's link to its driver."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

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
