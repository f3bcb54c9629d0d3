"""A slot is lost, and the slots that live host its subtasks until another slot has come for them.

    lost → restored as guests of slots that live → a slot has come → a checkpoint → restored there

A slot runs the subtasks of one index, and hosts those of about one more, so this takes half of the
job's slots; while there are fewer, the job waits. A first deployment waits for all of them. The
return waits for a completed checkpoint, because little is read twice then; a job without
checkpoints leaves its guests where they are. It restarts the regions of the guests, and is no
failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.jobmaster.commands import GuestsDeployed, GuestsReturn, GuestsStay
from tidegate.jobmaster.slots import SlotWait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidegate.checkpoint.coordinator.commands import CheckpointEnded
    from tidegate.errors import TidegateError
    from tidegate.jobmaster.commands import Guests, JobCommand
    from tidegate.jobmaster.execution_graph import Execution, ExecutionGraph
    from tidegate.jobmaster.redeployment import Redeployment
    from tidegate.jobmaster.slots import SlotPool
    from tidegate.model.ids import SlotId

REPORT_MS: Final = 60_000
"""How often it is said that slots are missing without which the job goes on."""

_NEVER_MS: Final = 1 << 50


class Survivors:
    """Says on how many slots the job can go on, and when its guests are to return.

    on: whether slots host guests at all. tell: takes the commands, in order.
    """

    def __init__(
        self,
        pool: SlotPool,
        graph: ExecutionGraph,
        tell: Callable[[JobCommand], None],
        *,
        on: bool,
    ) -> None:
        self._pool = pool
        self._graph = graph
        self._tell = tell
        self._on = on
        self._hosting = False
        self._due = False
        self._in_vain = False
        self._wait = SlotWait()

    def least(self, redeployment: Redeployment) -> int:
        """On how many slots this can be deployed."""
        if not self._on or redeployment.due_ms is None:
            return self._pool.needed
        return (self._pool.needed + 1) // 2

    def enough(self, redeployment: Redeployment | None) -> bool:
        """True if the job can go on with the slots that are here."""
        if redeployment is not None:
            return len(self._pool) >= self.least(redeployment)
        return self._pool.enough or bool(self.guests)

    @property
    def guests(self) -> list[Execution]:
        """Attempts that live in the slot of another index."""
        if not self._hosting:
            return []
        own = self._pool.own
        living = (execution for execution in self._graph if not execution.state.is_terminal)
        return [each for each in living if each.slot != own(each.id.subtask.index)]

    def deployed(self) -> None:
        """Subtasks were deployed, guests perhaps; who waited before waits anew."""
        self._hosting = self._on
        self._due = self._in_vain = False
        self._wait = SlotWait(every_ms=REPORT_MS)
        guests = self.guests
        self._hosting = bool(guests)
        if guests:
            self._tell(GuestsDeployed(self._by_slot(guests)))

    def checkpoint_ended(self, ended: CheckpointEnded) -> None:
        """A snapshot has completed or failed; savepoints do not count."""
        if ended.reason is None and not ended.kind.is_savepoint:
            self._due = bool(self._returning())

    def no_slot_will_come(self, error: TidegateError) -> None:
        """It would not help to ask again; the next deployment does so all the same."""
        if guests := self.guests:
            self._in_vain, self._wait = True, SlotWait()
            self._tell(GuestsStay(self._by_slot(guests), error))

    def go_on(self, now_ms: int, *, settled: bool) -> GuestsReturn | None:
        """The job runs: ask for the slots that guests lack, and have guests return that can.

        settled: the newest completed checkpoint is known, and the job does not end with it.
        """
        if not self._hosting:
            return None
        if not self.guests:
            self._hosting, self._due, self._wait = False, False, SlotWait()
            return None
        if not self._in_vain:
            for command in self._wait.go_on(self._pool, self._pool.needed, now_ms):
                self._tell(command)
        if not (self._due and settled):
            return None
        self._due = False
        returning = self._returning()
        subtasks = tuple(guest.id.subtask for guest in returning)
        return GuestsReturn(subtasks, self._by_slot(returning)) if returning else None

    def report(self, now_ms: int) -> None:
        for command in self._wait.report(self._pool, self._pool.needed, now_ms):
            self._tell(command)

    @property
    def wake_at_ms(self) -> int | None:
        """Time of the next look; None where no slot is waited for."""
        return self._wait.wake_at_ms(self._pool, _NEVER_MS)

    def _returning(self) -> list[Execution]:
        own = self._pool.own
        return [guest for guest in self.guests if own(guest.id.subtask.index) is not None]

    def _by_slot(self, guests: Iterable[Execution]) -> Guests:
        """Names of guests by the slot that hosts them."""
        found: dict[SlotId, tuple[str, ...]] = {}
        for guest in guests:
            found[guest.slot] = (*found.get(guest.slot, ()), self._graph.name(guest.id))
        return found
