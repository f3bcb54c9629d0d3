"""Slots whose link broke: why, as far as somebody can tell."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tidegate.errors import SlotLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.errors import PeerLost
    from tidegate.model.ids import SlotId

KNOWN_S: Final = 0.3
"""How long a broken link waits for word of how the process at its other end has ended."""

REMEDY: Final = (
    "If its process has ended, look at what it printed: a crash in a library, `os._exit` or a lack "
    "of memory ends a process without an exception."
)


class GoneSlots:
    """Tells that slots are lost, with the end of their process where the provider tells it.

    left: gets a slot and why it is gone. tells_ends: the provider says of each process how it has
    ended, which is known a moment after its link broke.
    """

    def __init__(self, left: Callable[[SlotId, SlotLost], None], *, tells_ends: bool) -> None:
        self._left = left
        self._tells_ends = tells_ends
        self._requests: dict[SlotId, str] = {}
        self._ends: dict[str, str] = {}
        self._waiting: dict[str, tuple[SlotId, PeerLost]] = {}

    def offered(self, slot: SlotId, request: str) -> None:
        self._requests[slot] = request

    @property
    def any_offered(self) -> bool:
        return bool(self._requests)

    def has_offered(self, request: str) -> bool:
        return request in self._requests.values()

    def broke(self, slot: SlotId, error: PeerLost) -> None:
        """The link to a slot broke."""
        request = self._requests.get(slot, "")
        self._waiting[request] = slot, error
        if not self._tells_ends or request in self._ends:
            self._tell(request)
        else:
            asyncio.get_running_loop().call_later(KNOWN_S, self._tell, request)

    def process_ended(self, request: str, how: str) -> None:
        """The process of a slot that had offered itself has ended."""
        self._ends[request] = how
        self._tell(request)

    def _tell(self, request: str) -> None:
        if (waiting := self._waiting.pop(request, None)) is not None:
            slot, error = waiting
            why = self._ends.get(request, error.what)
            self._left(slot, SlotLost(f"slot {slot} is gone: {why}", remedy=REMEDY))
