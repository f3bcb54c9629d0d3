"""The slots of a job: who has offered itself, who lives, how many are still to come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tidegate.errors import SlotsMissing
from tidegate.jobmaster.commands import RequestSlots, SlotsAwaited
from tidegate.jobmaster.view import SlotView, WaitView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidegate.errors import TidegateError
    from tidegate.model.control import LongCall, Offer, Pulse
    from tidegate.model.ids import ExecutionId, SlotId
    from tidegate.model.metrics import Metrics

LATE_WAKE_MS: Final = 500
"""A wake-up that comes later than this says that this process stood still, not the slots."""

AWAIT_REPORT_MS: Final = 5_000
"""How often it is said that slots are still missing."""

ASK_AGAIN_MS: Final = 500
"""Pause after a request for a slot that failed, so that one that always fails does not spin."""

GRACE_MS: Final = 1_000
"""What is left of every lease after such a wake-up."""


@dataclass(slots=True)
class KnownSlot:
    """A slot that has offered itself. seen_ms: its last sign of life."""

    offer: Offer
    seen_ms: int
    batch_age_ms: int = 0
    long_call: LongCall | None = None
    calling: ExecutionId | None = None
    metrics: Metrics = field(default_factory=dict)


class SlotPool:
    """needed: slots that the job runs on; more are wanted while it is to grow.

    lease_ms: a slot silent for longer is lost. error: why the last that did not come did not, or
    the last that was lost.
    """

    def __init__(self, needed: int, lease_ms: int) -> None:
        assert needed > 0, "a job runs on one slot at least"
        self.needed = needed
        self.wanted = needed
        self.error: TidegateError | None = None
        self._lease_ms = lease_ms
        self._slots: dict[SlotId, KnownSlot] = {}
        self._order: list[SlotId | None] = [None] * needed
        self._spare: list[SlotId] = []
        self._coming = 0
        self._ask_at_ms = 0

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, slot: object) -> bool:
        return slot in self._slots

    @property
    def enough(self) -> bool:
        return len(self._slots) >= self.needed

    def own(self, index: int) -> SlotId | None:
        """The slot for the subtasks of an index; None while that is missing."""
        return self._order[index]

    @property
    def complete(self) -> bool:
        return len(self._slots) >= self.wanted

    @property
    def ask_at_ms(self) -> int | None:
        """When to ask for slots that neither are here nor have been asked for; None without any."""
        return self._ask_at_ms if self._missing else None

    @property
    def _missing(self) -> int:
        return max(0, self.wanted - len(self._slots) - self._coming)

    def shortage(self, count: int, within_ms: int) -> SlotsMissing:
        """The error that says how few of so many came in time."""
        why = f"; the last that did not: {self.error}" if self.error else ""
        return SlotsMissing(
            f"{len(self)} of {count} slots came within {within_ms} ms{why}",
            remedy="Lower the job's parallelism, or wait longer with tidegate.slots.start-timeout.",
        )

    def ask(self, now_ms: int) -> list[RequestSlots]:
        """Ask for those that are missing, unless that has just failed."""
        missing = self._missing
        if not missing or now_ms < self._ask_at_ms:
            return []
        self._coming += missing
        assert len(self) + self._coming == self.wanted, "as many are asked for as are missing"
        return [RequestSlots(missing)]

    def request_failed(self, error: TidegateError, now_ms: int) -> None:
        """A requested slot will not come."""
        self._coming = max(0, self._coming - 1)
        self.error = error
        self._ask_at_ms = now_ms + ASK_AGAIN_MS

    def offered(self, offer: Offer, now_ms: int) -> bool:
        """A slot has come; False if it is one too many."""
        self._coming = max(0, self._coming - 1)
        if self.complete:
            return False
        assert offer.slot not in self._slots, "a slot offers itself once"
        self._slots[offer.slot] = KnownSlot(offer, now_ms)
        if None in self._order:
            self._order[self._order.index(None)] = offer.slot
        else:
            self._spare.append(offer.slot)
        assert len(self) <= self.wanted, "a slot more than are wanted is refused"
        return True

    def left(self, slot: SlotId) -> bool:
        """A slot is gone; False if it was not one of ours."""
        if self._slots.pop(slot, None) is None:
            return False
        if slot in self._spare:
            self._spare.remove(slot)
        else:
            self._order[self._order.index(slot)] = self._spare.pop(0) if self._spare else None
        taken = not self._spare or None not in self._order
        assert taken, "a spare slot takes the place of a lost one"
        return True

    def want(self, count: int) -> None:
        """The job is to grow to so many; fewer than it runs on are not let go yet."""
        self.wanted = max(count, self.needed)
        assert self.wanted >= self.needed, "a job runs on slots that it wants"

    def resize(self, needed: int) -> None:
        """Nothing is deployed, and what is next needs so many."""
        placed = [*self.in_order(), *self._spare]
        self.needed = needed
        self._order = [*placed[:needed], *[None] * (needed - len(placed))]
        self._spare = placed[needed:]
        assert len(self._order) == needed, "each index of a subtask has a place"
        assert len(self.in_order()) + len(self._spare) == len(self), "a slot has one place"

    def let_go(self) -> list[SlotId]:
        """Forget the slots that the job does not run on, and want no more than those it does."""
        gone, self._spare, self.wanted = self._spare, [], self.needed
        for slot in gone:
            del self._slots[slot]
        assert len(self.in_order()) == len(self), "who stays has the index of its subtasks"
        return gone

    def pulsed(self, pulse: Pulse, now_ms: int) -> None:
        known = self._slots.get(pulse.slot)
        if known is not None:
            known.seen_ms = now_ms
            known.batch_age_ms = pulse.batch_age_ms
            known.long_call = pulse.long_call
            known.calling = pulse.calling
            known.metrics = pulse.process

    def stood_still(self, for_ms: int, now_ms: int) -> None:
        """This process did not run for so long: no slot is to suffer for it.

        Each lease is extended by that, and by enough for the pulses that wait to be read.
        """
        least = now_ms - self._lease_ms + GRACE_MS
        for known in self._slots.values():
            extended_ms = min(now_ms, max(least, known.seen_ms + for_ms))
            assert extended_ms >= known.seen_ms, "a standstill of the driver shortens no lease"
            known.seen_ms = extended_ms

    def expired(self, now_ms: int) -> list[SlotId]:
        return [s for s, k in self._slots.items() if now_ms - k.seen_ms > self._lease_ms]

    @property
    def next_expiry_ms(self) -> int | None:
        seen = [known.seen_ms for known in self._slots.values()]
        return min(seen) + self._lease_ms + 1 if seen else None

    def in_order(self) -> list[SlotId]:
        """The slots by the index of their subtasks; a slot keeps its index while it lives."""
        return [slot for slot in self._order if slot is not None]

    def places(self, taken: Iterable[tuple[int, SlotId]]) -> list[SlotId]:
        """A slot for each index: its own, or while that is missing another one's, spread evenly.

        taken: index and slot of each subtask that goes on where it is.
        """
        hosted: dict[SlotId, set[int]] = {slot: set() for slot in self.in_order()}
        assert hosted, "a job runs on one slot at least"
        for index, slot in enumerate(self._order):
            if slot is not None:
                hosted[slot].add(index)
        for index, slot in taken:
            if slot in hosted:
                hosted[slot].add(index)
        places: list[SlotId] = []
        for index, own in enumerate(self._order):
            known = (slot for slot, indices in hosted.items() if index in indices)
            place = own or next(known, None) or min(hosted, key=lambda slot: len(hosted[slot]))
            hosted[place].add(index)
            places.append(place)
        return places

    def address(self, slot: SlotId) -> str:
        return self._slots[slot].offer.address

    def waits(self, execution: ExecutionId, slot: SlotId, name: str, now_ms: int) -> WaitView:
        """A subtask that is waited for, and the call that it is in."""
        known = self._slots.get(slot)
        if known is None or known.calling != execution or not known.batch_age_ms:
            return WaitView(name, slot)
        function = known.long_call.function if known.long_call else ""
        age_ms = known.batch_age_ms + now_ms - known.seen_ms
        return WaitView(name, slot, age_ms, function)

    def view(self, now_ms: int, name: Callable[[ExecutionId], str]) -> tuple[SlotView, ...]:
        """The slots as frozen values. name: of a subtask."""
        return tuple(
            SlotView(
                slot,
                known.offer.host,
                known.offer.pid,
                now_ms - known.seen_ms,
                known.batch_age_ms,
                known.long_call,
                "" if known.calling is None else name(known.calling),
                known.metrics,
            )
            for slot, known in self._slots.items()
        )


@dataclass(slots=True)
class SlotWait:
    """One wait for slots.

    every_ms: how often it is reported. since_ms: when they were first missed. report_ms: when to
    say so next. grown_ms: when there were more of them than ever before in this wait, ``most``;
    while they come, they are waited for.
    """

    every_ms: int = AWAIT_REPORT_MS
    since_ms: int | None = None
    report_ms: int = 0
    grown_ms: int = 0
    most: int = 0

    def go_on(self, pool: SlotPool, count: int, now_ms: int) -> list[RequestSlots]:
        """Ask for what the pool lacks and has not asked for, until so many are there."""
        if len(pool) >= count:
            self.since_ms = None
            return []
        if self.since_ms is None:
            self.since_ms = self.grown_ms = now_ms
            self.report_ms = now_ms + self.every_ms
        if len(pool) > self.most:
            self.most, self.grown_ms = len(pool), now_ms
        assert self.since_ms <= self.grown_ms <= now_ms, "slots came while they were awaited"
        return pool.ask(now_ms)

    def stood_still(self, now_ms: int) -> None:
        """This process did not run, and nobody could come: wait as long as at first."""
        if self.since_ms is not None:
            self.grown_ms = now_ms

    def report(self, pool: SlotPool, count: int, now_ms: int) -> list[SlotsAwaited]:
        if self.since_ms is None or now_ms < self.report_ms:
            return []
        self.report_ms = now_ms + self.every_ms
        return [SlotsAwaited(len(pool), count, now_ms - self.since_ms)]

    def wake_at_ms(self, pool: SlotPool, timeout_ms: int) -> int | None:
        """Time of the next look."""
        if self.since_ms is None:
            return None
        at_ms = min(self.report_ms, self.grown_ms + timeout_ms)
        return at_ms if pool.ask_at_ms is None else min(at_ms, pool.ask_at_ms)
