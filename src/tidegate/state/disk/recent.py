"""What was read lately of one state, by key."""

from __future__ import annotations

from collections.abc import Sized
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

S = TypeVar("S", bound=Sized)


class Recent(Generic[S]):
    """Keeps what was asked for since about half of it has changed.

    entries_max: how many entries may be kept, as asked for now; what is kept has at least one.
    """

    def __init__(self, entries_max: Callable[[], int]) -> None:
        self._entries_max = entries_max
        self._young: dict[object, S] = {}
        self._old: dict[object, S] = {}
        self._held = 0

    def get(self, key: object) -> S | None:
        """What is kept under a key, or None."""
        found = self._young.get(key)
        if found is None:
            found = self._old.pop(key, None)
            if found is not None:
                self._young[key] = found
                self._held += max(len(found), 1)
        return found

    def keep(self, key: object, found: S) -> None:
        """Keep that, in the place of what was kept."""
        self._old.pop(key, None)
        self._young[key] = found
        self._held += max(len(found), 1)

    def grew(self, entries: int) -> None:
        """What is kept has got so many entries more."""
        self._held += entries

    def settle(self) -> None:
        """Keep to the memory."""
        if self._held * 2 > self._entries_max():
            self._old, self._young, self._held = self._young, {}, 0
