"""What befalls a simulated run: kills, breaks, partitions, stops, jumps, people with wishes."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING

from tests.simulation.network import NEVER_LOST
from tests.simulation.world import Trap
from tidegate.checkpoint.coordinator.events import CheckpointRequested
from tidegate.jobmaster.events import CancelRequested, RescaleRequested
from tidegate.model.control import ExecutionState
from tidegate.model.elements import SnapshotKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from tests.simulation.jobs import Plan
    from tests.simulation.loop import Process
    from tests.simulation.outside import Outside
    from tests.simulation.world import World
    from tidegate.api.job import CheckpointDone

STEPS = (
    "SubtaskSnapshot.write",
    "Performer._prepare_location",
    "Performer._write_metadata",
    "FileSystemHaStore.create",
    "Performer._discard",
    "SinkOperator._commit",
    "Slot._deploy",
)
"""Where traps may lie: snapshot, folder, metadata and pointer, deletion, commit, restore."""

HOLDS_S = (0.1, 2, 15)
"""Partitions: shorter than anybody notices, noticed by timeouts, longer than a lease."""


class Trouble:
    """Befalls a run for a while; then the run is left in peace, and has to end.

    requests: what was asked of drivers.
    """

    def __init__(self, world: World, plan: Plan, outside: Outside, chance: Random) -> None:
        self._world, self._plan, self._outside, self._chance = world, plan, outside, chance
        self.requests: list[tuple[Process, Future[CheckpointDone] | Future[None]]] = []
        self.takeover = False
        self.cancelled = False
        self.parallelism: int | None = None
        self._stops: list[Future[CheckpointDone]] = []

    async def befall(self, kinds: Sequence[str]) -> None:
        """One after the other, with pauses."""
        chance, world = self._chance, self._world
        acts: dict[str, Callable[[], None]] = {
            "slot": self._kill_slot,
            "link": self._break_link,
            "hold": self._hold,
            "freeze": self._freeze,
            "clock": self._jump,
            "break": self._break_function,
            "slow": self._slow_link,
            "ask": self._ask,
            "driver": self._kill_driver,
            "rescale": self._rescale,
            "takeover": self._take_over,
            "trap": self._lay_trap,
            "cancel": self.cancel,
        }
        for kind in kinds:
            await asyncio.sleep(chance.choice([0.02, 0.3, 0.8, 2]) * chance.random())
            acts[kind]()
        if world.trap is not None:
            await asyncio.sleep(3)
        world.calm = True
        world.board.losses = 0.0

    async def outage_after(self, wait_s: float, for_s: float) -> None:
        """No record of who leads, nor its answer, gets through for a while."""
        await asyncio.sleep(wait_s)
        self.befalls("outage", f"records are not written, or not answered, for {for_s:.3f} s")
        self._world.outage = True
        await asyncio.sleep(for_s)
        self._world.outage = False

    async def lose_slots(self, chance: Random) -> None:
        """One slot or several die, a few times; also while others work for those that died."""
        for _ in range(chance.choice([1, 2, 3])):
            while not self._all_run:  # noqa: ASYNC110 - nobody tells when subtasks run
                await asyncio.sleep(0.01)
            await asyncio.sleep(chance.choice([0.05, 0.3, 1]) * chance.random())
            for _ in range(chance.choice([1, 1, 2, 3])):
                if living := self._world.living_slots:
                    self._world.kill(chance.choice(living).process)
                await asyncio.sleep(chance.choice([0, 0.01, 0.1, 0.5]) * chance.random())

    def _kill_slot(self) -> None:
        if self._world.living_slots:
            self._world.kill(self._chance.choice(self._world.living_slots).process)

    def _link(self) -> tuple[Process, Process] | None:
        """The ends of a link, of a driver's as often as not."""
        links = self._world.board.links
        ours = [link for link in links if self._world.newest.process in link.ends]
        chosen = ours if ours and self._chance.random() < 0.5 else links
        if not chosen:
            return None
        ends = self._chance.choice(chosen).ends
        return ends if self._chance.random() < 0.5 else (ends[1], ends[0])

    def _break_link(self) -> None:
        ends = self._link()
        if ends is not None:
            self.befalls("link", f"the link of {ends[0]} and {ends[1]} breaks")
            for link in self._world.board.links_of(ends[0]):
                if ends[1] in link.ends:
                    link.broken("simulated: the link broke")

    def _hold(self) -> None:
        ends = self._link()
        if ends is None:
            return
        for_s, both = self._chance.choice(HOLDS_S), self._chance.random() < 0.5
        back = " or back" if both else ""
        self.befalls("hold", f"nothing passes from {ends[0]} to {ends[1]}{back} for {for_s} s")
        self._world.board.hold(*ends, for_s)
        if both:
            self._world.board.hold(ends[1], ends[0], for_s)

    def _slow_link(self) -> None:
        ends = self._link()
        if ends is not None:
            self.befalls("slow", f"the link of {ends[0]} and {ends[1]} gets slow")
            self._world.board.slow[frozenset(ends)] = 20.0

    def _freeze(self) -> None:
        processes = [slot.process for slot in self._world.living_slots]
        processes += [self._world.newest.process]
        self._stop(self._chance.choice(processes), self._chance.choice([0.3, 3, 15]))

    def _stop(self, process: Process, for_s: float) -> None:
        self.befalls("freeze", f"{process} stands still for {for_s} s")
        self._world.loop.freeze(process, for_s)

    def _jump(self) -> None:
        clock = self._chance.choice(self._world.clocks)
        by_ms = self._chance.choice([-3_600_000, -1_000, 1_000, 3_600_000])
        self.befalls("clock", f"a wall clock jumps by {by_ms} ms")
        clock.skew_ms += by_ms

    def _break_function(self) -> None:
        counting = [p for p in self._plan.pipelines if p.shape != "chain"]
        if counting:
            value = self._chance.choice(sorted(self._chance.choice(counting).expected))
            self.befalls("break", f"{value} will break its function")
            self._outside.breaking.add(value)

    def _ask(self) -> None:
        kind = self._chance.choice(
            [SnapshotKind.CHECKPOINT, SnapshotKind.FULL_CHECKPOINT, SnapshotKind.SAVEPOINT]
        )
        self._request(kind)

    def _request(self, kind: SnapshotKind) -> Future[CheckpointDone]:
        started = self._world.newest
        done: Future[CheckpointDone] = Future()

        def ask() -> None:
            if started.driver.accepted.done() and not started.driver.result.done():
                self.befalls("ask", f"somebody asks for a {kind.value}")
                self.requests.append((started.process, done))
                request = started.driver.job.answers.expect(done)
                started.driver.job.inbox.post(CheckpointRequested(request, kind))

        self._world.loop.call_in(started.process, 0.0, ask)
        return done

    async def stop_after(self, wait_s: float, kind: SnapshotKind) -> None:
        """Somebody stops the job with a savepoint, as soon as it runs, once it has run a while."""
        await asyncio.sleep(wait_s)
        self.stop(kind)

    def stop(self, kind: SnapshotKind) -> None:
        """Somebody stops the job with a savepoint, if it runs."""
        # No later checkpoint repairs what is lost behind the last one; only a connection that
        # breaks loses it, and that is a failure.
        self._world.board.losses = 0.0
        self._stops.append(self._request(kind))

    async def stop_unheard(self, wait_s: float, nth: int) -> None:
        """As `stop_after`, and the link breaks on which the nth subtask is told that it may go."""
        left = nth

        def breaks(frame: bytes) -> bool:
            nonlocal left
            if b"CheckpointComplete" not in frame or NEVER_LOST in frame or left == 0:
                return False
            left -= 1
            if left == 0:
                self.befalls("link", f"the link breaks that tells number {nth} of a completion")
            return left == 0

        await self.stop_after(wait_s, SnapshotKind.SUSPEND)
        self._stops[-1].add_done_callback(
            lambda done: self._world.note(f"the stop is answered: {done.exception()}")
        )
        self._world.board.breaks = breaks

    async def drain_after(self, wait_s: float) -> None:
        """Somebody drains the job; where it does not run yet, or fails meanwhile, again."""
        for _ in range(4):
            self._plan.drains += 1
            await self.stop_after(wait_s, SnapshotKind.TERMINATE)

    def stopped(self, process: Process) -> bool:
        """Whether the job that this driver has just brought to an end was stopped."""
        asked = [each for each in self._stops if (process, each) in self.requests]
        return any(each.done() and each.exception() is None for each in asked)

    async def rescale_after(self, wait_s: float, parallelism: int) -> None:
        """Somebody gives the job that runs then another parallelism."""
        await asyncio.sleep(wait_s)
        started = self._world.newest
        done: Future[None] = Future()

        def ask() -> None:
            if started.driver.accepted.done() and not started.driver.result.done():
                self.befalls("live", f"somebody asks for parallelism {parallelism}")
                self._plan.rescaled = True
                self.requests.append((started.process, done))
                request = started.driver.job.answers.expect(done)
                started.driver.job.inbox.post(RescaleRequested(request, parallelism))

        self._world.loop.call_in(started.process, 0.0, ask)

    @property
    def leads(self) -> bool:
        """Whether the newest driver leads the job, and has not ended it."""
        driver = self._world.newest.driver
        return driver.accepted.done() and not driver.result.done()

    @property
    def _all_run(self) -> bool:
        vertices = self._world.newest.driver.job.view().vertices if self.leads else ()
        subtasks = [subtask for vertex in vertices for subtask in vertex.subtasks]
        return bool(subtasks) and all(s.state is ExecutionState.RUNNING for s in subtasks)

    def _kill_driver(self) -> None:
        if self.leads:
            self._world.kill(self._world.newest.process)

    def _rescale(self) -> None:
        if self.leads:
            self.parallelism = self._chance.choice([1, 2, 3])
            self._kill_driver()

    def _take_over(self) -> None:
        if self.leads:
            self._stop(self._world.newest.process, self._chance.choice([2, 6, 20]))
            self.takeover = True
            self._world.changed.set()

    def _lay_trap(self) -> None:
        chance = self._chance
        self._world.trap = Trap(
            chance.choice(STEPS),
            chance.choice(["before", "within", "after"]),
            chance.randint(1, 12),
            chance.random() < 0.3,
        )

    def cancel(self) -> None:
        """Somebody cancels the job, if it is led."""
        started = self._world.newest
        if self.leads and not started.process.frozen:
            self.cancelled = True
            self._world.cancelled_s[started.process] = self._world.loop.now_s
            self.befalls("cancel", "somebody cancels the job")
            post = started.driver.job.inbox.post
            self._world.loop.call_in(started.process, 0.0, lambda: post(CancelRequested()))

    def befalls(self, kind: str, what: str) -> None:
        """Something befalls the run."""
        self._world.befell[kind] += 1
        self._world.note(what)
