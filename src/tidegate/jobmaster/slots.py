"""The slots of a job: who has offered itself, who lives, how many are still to come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidegate.errors import SlotsMissing
from tidegate.jobmaster.view import SlotView

if TYPE_CHECKING:
    from tidegate.errors import TidegateError
    from tidegate.model.control import Offer
    from tidegate.model.ids import SlotId

LATE_WAKE_MS: Final = 500
"""A wake-up that comes later than this says that this process stood still, not the slots."""

GRACE_MS: Final = 1_000
"""What is left of every lease after such a wake-up."""


@dataclass(slots=True)
class KnownSlot:
    """A slot that has offered itself. seen_ms: its last sign of life."""

    offer: Offer
    seen_ms: int
    batch_age_ms: int = 0


class SlotPool:
    """wanted: slots that the job needs. lease_ms: a slot silent for longer is lost."""

    def __init__(self, wanted: int, lease_ms: int) -> None:
        self.wanted = wanted
        self._lease_ms = lease_ms
        self._slots: dict[SlotId, KnownSlot] = {}
        self._order: list[SlotId | None] = [None] * wanted
        self._coming = 0

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, slot: object) -> bool:
        return slot in self._slots

    @property
    def enough(self) -> bool:
        """Whether the job can be deployed."""
        return len(self._slots) >= self.wanted

    @property
    def missing(self) -> int:
        """Slots to ask for: those that neither are here nor have been asked for."""
        return max(0, self.wanted - len(self._slots) - self._coming)

    def shortage(self, within_ms: int, last: TidegateError | None) -> SlotsMissing:
        """The error that says how few came in time. last: why the last of the others did not."""
        why = f"; the last that did not: {last}" if last else ""
        return SlotsMissing(
            f"{len(self)} of {self.wanted} slots came within {within_ms} ms{why}",
            remedy="Give Spark more cores, lower the job's parallelism, or wait longer with "
            "tidegate.slots.start-timeout.",
        )

    def requested(self, count: int) -> None:
        """So many have been asked for."""
        self._coming += count

    def request_failed(self) -> None:
        """One that was asked for will not come."""
        self._coming = max(0, self._coming - 1)

    def offered(self, offer: Offer, now_ms: int) -> bool:
        """A slot has come; False where it is one too many."""
        self._coming = max(0, self._coming - 1)
        if self.enough:
            return False
        self._slots[offer.slot] = KnownSlot(offer, now_ms)
        self._order[self._order.index(None)] = offer.slot
        return True

    def left(self, slot: SlotId) -> bool:
        """A slot is gone; False where it was not one of ours."""
        if self._slots.pop(slot, None) is None:
            return False
        self._order[self._order.index(slot)] = None
        return True

    def pulsed(self, slot: SlotId, batch_age_ms: int, now_ms: int) -> None:
        """A sign of life."""
        known = self._slots.get(slot)
        if known is not None:
            known.seen_ms = now_ms
            known.batch_age_ms = batch_age_ms

    def stood_still(self, for_ms: int, now_ms: int) -> None:
        """This process did not run for so long: no slot is to suffer for it.

        Each lease is extended by that, and by enough for the pulses that wait to be read.
        """
        least = now_ms - self._lease_ms + GRACE_MS
        for known in self._slots.values():
            known.seen_ms = min(now_ms, max(least, known.seen_ms + for_ms))

    def expired(self, now_ms: int) -> list[SlotId]:
        """Slots that have been silent for longer than the lease."""
        return [s for s, k in self._slots.items() if now_ms - k.seen_ms > self._lease_ms]

    @property
    def next_expiry_ms(self) -> int | None:
        """When the next lease would run out."""
        seen = [known.seen_ms for known in self._slots.values()]
        return min(seen) + self._lease_ms + 1 if seen else None

    def in_order(self) -> list[SlotId]:
        """The slots by the index of their subtasks; a slot keeps its index while it lives."""
        return [slot for slot in self._order if slot is not None]

    def address(self, slot: SlotId) -> str:
        """Where a slot's peers dial it."""
        return self._slots[slot].offer.address

    def view(self, now_ms: int) -> tuple[SlotView, ...]:
        """The slots as frozen values."""
        return tuple(
            SlotView(slot, k.offer.host, k.offer.pid, now_ms - k.seen_ms, k.batch_age_ms)
            for slot, k in self._slots.items()
        )
