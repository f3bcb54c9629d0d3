"""The far ends of a subtask's channels, as the near ends see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidegate.model.elements import Element


class Consumer(Protocol):
    """The reading end of a channel, in this slot or in another."""

    def send(self, element: Element) -> None:
        """Hand an element over; the sender has seen to it that there is credit."""
        ...


class Producer(Protocol):
    """The sending end of a channel, in this slot or in another."""

    def grant(self) -> None: ...

    def resize(self, rows: int) -> None: ...
