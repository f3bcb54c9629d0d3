"""What must hold after a run besides its output: who was told what, what was left and kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.network import SLOWEST
from tidegate.model.failure_reason import FailureReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.jobs import Plan
    from tests.simulation.outside import Outside
    from tests.simulation.world import SimulatedDriver, World

PART_OF_LIFE = {
    FailureReason.CHECKPOINT_SUBSUMED,
    FailureReason.CHECKPOINT_DECLINED_TASK_CLOSING,
    FailureReason.CHECKPOINT_DECLINED_SUBSUMED,
    FailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER,  # what follows from one of these
    FailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN,
    FailureReason.CHECKPOINT_COORDINATOR_SUSPEND,
    FailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING,
    FailureReason.PERIODIC_SCHEDULER_SHUTDOWN,
    FailureReason.TOO_MANY_CHECKPOINT_REQUESTS,  # where they take longer than their interval
}
"""Why a checkpoint may be given up though nothing has befallen the job."""


class Checks:
    """Over one run that has ended. Each check gives what is wrong."""

    def __init__(self, world: World, plan: Plan, outside: Outside) -> None:
        self._world, self._plan, self._outside = world, plan, outside
        self._leaders = {slot.process: slot.leader for slot in world.slots}
        slow = 20 if world.befell["slow"] else 1
        # Each step of a message's way may have to wait for the calls of a chain.
        calls_s = 6 * plan.call_s
        self._reach_s = calls_s + 0.2 + 2 * SLOWEST * slow * world.odds.network_delay_s
        # An attempt that has ended is closed when its last call on the pool has returned.
        self._call_s = calls_s + 2 * world.odds.storage_delay_s
        self._call_s += max(pipeline.sink.write_s for pipeline in plan.pipelines)

    def faults(self) -> Iterator[str]:
        """All of them."""
        yield from self._told()
        yield from self._repaired()
        yield from self._given_up_for_nothing()
        yield from self._swept()
        yield from self._side_by_side()
        yield from self._cancelled_late()
        for driver in self._world.drivers:
            if driver.driver.result.done() and driver.process.alive:
                yield from self._counted(driver)
                yield from self._forgotten(driver)
        yield from self._slots_forgot()

    def _none_of(self, *kinds: str) -> bool:
        return not any(self._world.befell[kind] for kind in kinds)

    def _log(self, process: object) -> SimulatedDriver | None:
        leader = self._leaders.get(process)  # type: ignore[call-overload]
        return next((d for d in self._world.drivers if d.process is leader), None)

    def _told(self) -> Iterator[str]:
        """Whoever lived on was told that a checkpoint was given up."""
        if not self._none_of("hold", "freeze", "slow") or self._world.odds.losses:
            return
        for driver in self._world.drivers:
            attempts = [
                each for each in self._outside.attempts if self._log(each.process) is driver
            ]
            for at_s, checkpoint, reason in driver.log.failed:
                if reason == FailureReason.FINALIZE_CHECKPOINT_FAILURE.name:
                    continue  # it may stand, so nobody is told
                heard_s = at_s + self._reach_s + self._call_s
                concerned = {each.deployment for each in attempts if checkpoint in each.snapshots}
                for each in attempts:
                    # Strands of one pipeline count their attempts apart from each other.
                    lives = (
                        each.closed_s is not None and each.opened_s < at_s < heard_s < each.closed_s
                    )
                    if each.deployment in concerned and lives and checkpoint not in each.aborted:
                        yield f"{each.name} {each.subtask} never heard of the end of {checkpoint}"

    def _repaired(self) -> Iterator[str]:
        """Whoever hears of a checkpoint given up has heard of the last one completed before."""
        for each in self._outside.attempts:
            driver = self._log(each.process)
            if driver is None:
                continue
            failed = {checkpoint: at_s for at_s, checkpoint, _ in driver.log.failed}
            for checkpoint, heard_s in each.aborted.items():
                if checkpoint not in failed:
                    continue
                latest = max(
                    (
                        known
                        for at_s, known in driver.log.completed
                        if at_s < failed[checkpoint]
                        and known in each.snapshots
                        and driver.process in self._outside.pointed.get(known, ())
                    ),
                    default=0,
                )
                told = max((known for at_s, known in each.completed if at_s <= heard_s), default=0)
                if told < latest:
                    yield f"{each.name} {each.subtask} missed {latest}, and {checkpoint} no repair"

    def _given_up_for_nothing(self) -> Iterator[str]:
        """With time enough and nothing in the way, no checkpoint is given up."""
        if self._plan.timeout_ms < 60_000 or self._world.odds.losses:
            return
        if not self._none_of("kill", "hold", "freeze", "link", "slow", "break", "cancel", "clock"):
            return
        if not self._none_of("live"):
            return
        allowed = {reason.name for reason in PART_OF_LIFE}
        for driver in self._world.drivers:
            for _, checkpoint, reason in driver.log.failed:
                if checkpoint in driver.log.stop_failed:
                    continue
                expired = reason == FailureReason.CHECKPOINT_EXPIRED.name
                if expired or (reason not in allowed and not self._world.odds.storage_fails):
                    yield f"checkpoint {checkpoint} was given up for nothing: {reason}"

    def _swept(self) -> Iterator[str]:
        """The sweep at the end finds nothing that should have been deleted long before.

        Whoever is killed soon after a write may have deleted or acknowledged nothing of it yet.
        """
        if self._world.odds.losses or self._world.odds.storage_fails:
            return
        if not self._none_of("hold", "freeze", "link", "slow"):
            return
        grace_s = 2 * self._reach_s + 10 * self._world.odds.storage_delay_s
        for driver in self._world.drivers:
            fates = {checkpoint: at_s for at_s, checkpoint, _ in driver.log.failed}
            completed = sorted(driver.log.completed, key=lambda entry: entry[1])
            for (_, old), (at_s, _) in zip(
                completed, completed[self._plan.retained :], strict=False
            ):
                fates[old] = at_s
            for at_s, path, written_s in driver.swept:
                _, _, tail = path.partition("/chk-")
                number = int(tail.split("/")[0]) if tail else 0
                lived_s = self._world.killed_s.get(self._world.store.writers[path], at_s)
                if number in fates and max(fates[number], written_s) + grace_s < min(at_s, lived_s):
                    yield f"{path} was left to the sweep"

    def _side_by_side(self) -> Iterator[str]:
        """A subtask is deployed again once its former attempt has ended."""
        if not self._none_of("hold", "freeze", "link", "slow"):
            return
        former = {}
        for each in self._outside.attempts:
            key = each.name, each.subtask, self._leaders.get(each.process)
            before = former.get(key)
            if before is not None and (before.closed_s or 0.0) > each.opened_s + self._call_s:
                yield f"two attempts of {each.name} {each.subtask} at once at {each.opened_s:.3f}"
            former[key] = each

    def _cancelled_late(self) -> Iterator[str]:
        """Whoever is cancelled waits for one call of a function, and for what the pool does."""
        if not self._none_of("hold", "freeze", "slow"):
            return
        odds, plan = self._world.odds, self._plan
        within_s = SLOWEST * odds.network_delay_s + plan.call_s + 4 * odds.storage_delay_s + 0.1
        within_s += max(pipeline.sink.write_s for pipeline in plan.pipelines)
        for each in self._outside.attempts:
            at_s = self._world.cancelled_s.get(self._leaders.get(each.process))
            if at_s is not None and each.opened_s < at_s and each.closed_s is not None:
                late_s = each.closed_s - at_s
                if late_s > within_s:
                    yield f"{each.name} {each.subtask} was cancelled after {late_s:.3f} s"

    def _counted(self, started: SimulatedDriver) -> Iterator[str]:
        """Every trigger has ended in just one way."""
        if started.driver.accepted.exception() is not None:
            return
        counts = started.driver.job.view().checkpoints.counts
        if counts.in_progress or counts.total != counts.completed + counts.failed:
            yield f"{started.process}: checkpoints are counted as {counts}"

    def _forgotten(self, started: SimulatedDriver) -> Iterator[str]:
        """A driver whose job is over keeps nothing of what was under way."""
        if started.driver.accepted.exception() is not None:
            return
        job = started.driver.job
        inbox = job.inbox
        if inbox.crash is not None:
            return
        coordinator = inbox.machine._checkpoints
        kept = {
            "requests": [*range(coordinator._triggers.waiting)],
            "pending": coordinator._pending,
            "gateways": coordinator._gateways._gateways,
            "finishing": coordinator._finisher._waiting,
            "asked": job.answers._waiting,
        }
        if self._none_of("storage") and inbox.settled.is_set() and coordinator.ended:
            kept["cleaning"] = coordinator._disposal._cleaning
            kept["unanswered"] = coordinator._disposal._unanswered
            kept["retired"] = coordinator._disposal._retired
        for name, what in kept.items():
            if what:
                yield f"{started.process} still has {name}: {what}"

    def _slots_forgot(self) -> Iterator[str]:
        """A slot that has ended keeps nothing of its subtasks."""
        for each in self._world.slots:
            if not each.ended:
                continue
            slot, links = each.slot, each.slot._links
            kept = {
                "subtasks": slot._rounds.subtasks,
                "tasks": slot._beside._running,
                "inputs": links._inputs,
                "outputs": links._outputs,
                "links": links._wires,
            }
            for name, what in kept.items():
                if what:
                    yield f"{each.process} still has {name}: {list(what)[:3]}"
