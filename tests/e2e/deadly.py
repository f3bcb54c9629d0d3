"""Places where a driver is killed, or stopped, while it completes a checkpoint.

The calls are the real ones; the process is just sent a signal before or after one of them.
"""

import inspect
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from tidegate.driver.links import SlotLinks
from tidegate.ha.leadership import Leadership
from tidegate.model.control import CheckpointComplete, JobStatus
from tidegate.storage.state_files import StateFiles

FIRST = 3
"""The checkpoint on which it happens; those before it are completed."""


@dataclass(frozen=True)
class Place:
    """A call, and with which arguments it is the driver's last. after: the call has been made."""

    owner: type
    method: str
    doomed: Callable[..., bool]
    after: bool


def of_folder(location: str) -> bool:
    found = re.search(r"chk-(\d+)", location)
    return found is not None and int(found[1]) >= FIRST


PLACES = {
    "before the metadata is written": Place(
        StateFiles, "write_metadata", lambda location, data: of_folder(location), False
    ),
    "before the pointer is added": Place(
        StateFiles, "write_metadata", lambda location, data: of_folder(location), True
    ),
    "before the pointer's answer is seen": Place(
        Leadership, "_put_once", lambda path, data: of_folder(data.decode()), True
    ),
    "before anybody is told": Place(
        Leadership, "add", lambda checkpoint, location, **how: checkpoint >= FIRST, True
    ),
    "when one slot is told": Place(
        SlotLinks,
        "send",
        lambda slot, message: (
            isinstance(message, CheckpointComplete) and message.checkpoint >= FIRST
        ),
        True,
    ),
    "before the older one is deleted": Place(
        StateFiles, "discard", lambda location, files: of_folder(location), False
    ),
    "before the end is told": Place(
        Leadership, "end", lambda status, retained=None: status is JobStatus.FINISHED, True
    ),
}


def signal_at(name: str, which: int) -> None:
    """This process sends itself a signal there, the first time that it comes there."""
    place = PLACES[name]
    call = getattr(place.owner, place.method)
    sent = False

    def pass_by(after: bool, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        nonlocal sent
        if after is place.after and not sent and place.doomed(*arguments, **named):
            sent = True
            os.kill(os.getpid(), which)

    @wraps(call)
    def plain(self: Any, *arguments: Any, **named: Any) -> Any:
        pass_by(False, arguments, named)
        result = call(self, *arguments, **named)
        pass_by(True, arguments, named)
        return result

    @wraps(call)
    async def waits(self: Any, *arguments: Any, **named: Any) -> Any:
        pass_by(False, arguments, named)
        result = await call(self, *arguments, **named)
        pass_by(True, arguments, named)
        return result

    setattr(place.owner, place.method, waits if inspect.iscoroutinefunction(call) else plain)
