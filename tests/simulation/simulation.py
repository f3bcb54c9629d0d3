"""A whole run from one number, and what must hold after it.

Held: the job ends, in virtual time; what is committed is what plain Python gives, each row once;
completed checkpoints hold just what came before them; nothing raises where nobody catches it; no
file of a checkpoint is left when the job has finished; and what `Checks` says.
"""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from flinkformat import metadata
from tests.simulation.checks import Checks
from tests.simulation.jobs import LASTING, SAVEPOINTS, Plan
from tests.simulation.loop import CURRENT
from tests.simulation.outside import OUTSIDE
from tests.simulation.people import People, Start
from tests.simulation.snapshots import Inspector
from tests.simulation.trouble import Trouble
from tests.simulation.world import Odds, make_world
from tidegate.errors import JobCanceled, JobFailed, JobSuspended
from tidegate.model.control import TriggerCheckpoint
from tidegate.model.elements import SnapshotKind
from tidegate.snapshots.folders import files_of
from tidegate.storage import paths
from tidegate.storage.state_files import resolve_relative

if TYPE_CHECKING:
    from tests.simulation.loop import Process
    from tests.simulation.world import SimulatedDriver

LIMIT_S = 600.0

PROFILES: tuple[tuple[str, ...], ...] = (
    (),
    ("break", "ask", "clock", "slow"),
    ("slot", "slot", "link", "hold", "freeze", "break", "ask", "clock", "slow"),
    ("slot", "driver", "rescale", "takeover", "hold", "break", "ask", "cancel"),
    ("trap",),
)
"""What may befall a run: nothing; what needs no restart of slots; slots; drivers; a chosen step."""


@dataclass(frozen=True, slots=True)
class Run:
    """How a run went. faults: empty where all held. doubled: rows that came more than once.

    calls: of functions, that took long.
    """

    seed: int
    faults: list[str]
    doubled: int
    story: list[str]
    virtual_s: float
    steps: int
    calls: int


def simulate(
    seed: int,
    *,
    mode: str | None = None,
    lookup: str = "",
    unheard: bool = False,
    calls: bool = False,
    ends: bool = False,
    survivors: bool = False,
    parts: bool = False,
) -> Run:
    """Run one seed. mode: how barriers are handled, else that is drawn too.

    lookup: ``ordered`` or ``unordered`` for a job that looks up each number first. unheard: whether
    it is stopped, and a subtask does not hear that its savepoint is complete. calls: whether calls
    of functions take time, and block their slot. ends: whether people suspend, cancel and stop the
    job, and go on with it in the ways there are. survivors: whether slots that live host the
    subtasks of lost ones, and slots are lost again and again. parts: whether committers of sinks
    are a step of their own, behind writers that flush for long.
    """
    kinds = {"unheard": unheard, "calls": calls, "ends": ends, "survivors": survivors}
    kinds["parts"] = parts
    try:
        return _Simulation(seed, mode, lookup, **kinds).run()
    finally:
        OUTSIDE.pop(seed, None)


class _Simulation:
    def __init__(
        self,
        seed: int,
        mode: str | None,
        lookup: str,
        *,
        unheard: bool,
        calls: bool,
        ends: bool,
        survivors: bool,
        parts: bool,
    ) -> None:
        self._seed = seed
        self._unheard = unheard
        chance = self._chance = Random(seed)
        odds = Odds(
            network_delay_s=chance.choice([0.0005, 0.005, 0.03]),
            storage_delay_s=chance.choice([0.001, 0.02, 0.2]),
            storage_fails=chance.choice([0.0, 0.0, 0.0, 0.03, 0.1]),
            slot_start_s=chance.choice([0.05, 0.5]),
            wall_skew_ms=chance.choice([0, 0, 5_000]),
            losses=chance.choice([0.0] * 4 + [0.15]),
            slow_slots=chance.choice([0.0, 0.0, 0.3]),
        )
        self._plan = Plan(
            chance,
            seed,
            mode,
            lookup=lookup,
            calls=calls,
            survivors=survivors,
            parts=parts,
            storage_s=odds.storage_delay_s,
            network_s=odds.network_delay_s,
        )
        self._losses = Random(f"losses of {seed}") if survivors else None
        if self._losses is not None:
            # The guests of some runs wait long for the slots, those of others hardly.
            odds.slot_start_s = self._losses.choice([0.05, 0.5, 0.5, 3])
        self._rescales = Random(f"rescales of {seed}")
        self._inspections = chance.choice([0, 1, 2])
        self._skip = chance.randint(0, 6)
        self._faults: list[str] = []
        self._begun: list[tuple[str, frozenset[str], Start]] = []
        self._world = make_world(chance.getrandbits(64), odds, self._pointed)
        self._outside = OUTSIDE[seed]
        self._outside.now_s = self._world.loop.time
        self._outside.block = self._world.loop.block
        if calls:
            self._world.board.heard = self._heard
        self._trouble = Trouble(self._world, self._plan, self._outside, chance)
        people = Random(f"people of {seed}")
        self._people = People(self._world, self._plan, self._trouble, people) if ends else None
        self._inspector = Inspector(self._plan, self._world.files, self._world.clock())
        self._world.note(f"{self._plan}, {odds}")

    def run(self) -> Run:
        world, faults = self._world, self._faults
        try:
            how = world.loop.run(self._live(), LIMIT_S)
            if how != "failed":
                faults += self._plan.faults(whole=how == "finished")
                faults += Checks(world, self._plan, self._outside).faults()
                faults += self._unanswered()
            if how in ("finished", "cancelled") and not world.odds.storage_fails:
                faults += self._left_files(how)  # a deletion that fails is not tried again
        except (AssertionError, TimeoutError) as error:
            faults.append(f"{type(error).__name__}: {error}")
        faults += [*world.loop.faults, *world.store.faults, *self._outside.faults]
        if self._people is not None:
            faults += self._people.faults
        story = [f"{incident.at_s:9.3f} s  {incident.what}" for incident in world.incidents]
        virtual_s = world.loop.now_s - 1_000
        world.calm = True
        world.loop.run(world.end(), LIMIT_S)
        doubled, calls = self._plan.doubled(), self._outside.calls
        return Run(self._seed, faults, doubled, story, virtual_s, world.loop.steps, calls)

    # --- a job's life ---

    async def _live(self) -> str:
        """Lead the job to its end, whatever befalls it on the way; how it ended."""
        chance, world = self._chance, self._world
        started = world.start_driver(self._plan.graph(restore=None))
        kinds = chance.choice(PROFILES)
        count = chance.choice([1, 1, 2, 4, 8]) if kinds else 0
        befalls = [chance.choice(kinds) for _ in range(count)]
        troubles = [asyncio.ensure_future(self._trouble.befall(befalls))]
        outages = Random(f"outages of {self._seed}")
        if outages.random() < 0.15:
            world.odds.storage_fails = world.odds.storage_fails or 1e-9
            world.hangs_s = outages.choice([0.0, 0.0, 45.0])
            outage = self._trouble.outage_after(outages.uniform(0.3, 4), outages.uniform(1, 6))
            troubles.append(asyncio.ensure_future(outage))
        if self._losses is not None:
            troubles.append(asyncio.ensure_future(self._trouble.lose_slots(self._losses)))
        # Drawn apart, so that the other runs are still those that their seeds have always been.
        stops = Random(f"stops of {self._seed}")
        if self._people is not None:
            troubles.append(asyncio.ensure_future(self._people.end_it()))
        elif self._unheard:
            stop = self._trouble.stop_unheard(stops.uniform(0.4, 1.5), stops.randint(1, 4))
            troubles.append(asyncio.ensure_future(stop))
        elif stops.random() < 0.25:
            stop = self._trouble.stop_after(stops.uniform(0.1, 8), SnapshotKind.SUSPEND)
            troubles.append(asyncio.ensure_future(stop))
        elif self._plan.timed:
            drain = self._trouble.drain_after(stops.uniform(0.05, 0.8))
            troubles.append(asyncio.ensure_future(drain))
        elif self._rescales.random() < 0.15:
            wanted = self._rescales.choice([1, 2, 3])
            rescale = self._trouble.rescale_after(self._rescales.uniform(0.1, 2), wanted)
            troubles.append(asyncio.ensure_future(rescale))
        try:
            while True:
                end = await self._ended(started)
                if end in ("finished", "failed", "taken over", "cancelled"):
                    break
                started = world.start_driver(self._next_graph(end))
        finally:
            for trouble in troubles:
                trouble.cancel()
        # What is still on its way arrives, orphans end, and whoever stands still goes on.
        await asyncio.sleep(20)
        return end

    async def _ended(self, started: SimulatedDriver) -> str:
        """Wait until the newest driver has ended, is dead, or is to be followed by another."""
        world, driver = self._world, started.driver
        while started.process.alive and not driver.result.done() and not self._trouble.takeover:
            world.changed.clear()
            await world.changed.wait()
        if self._trouble.takeover or not started.process.alive:
            self._trouble.takeover = False
            await asyncio.sleep(self._chance.uniform(0, 5))
            return "followed"
        error = driver.result.exception()
        if self._people is not None and self._lasting(error):
            world.note(f"the job has ended: {error}")
            self._faults += [*self._people.lost(), *self._plan.faults(whole=False)]
            return "ended"
        if error is None and self._trouble.stopped(started.process):
            self._faults += self._plan.faults(whole=False, drained=self._plan.drains > 0)
            self._trouble.parallelism = self._rescales.choice([None, None, 1, 2, 3])
            return "from its folder"
        if error is None:
            return "finished"
        if "has ended (FINISHED)" in str(error) or "has ended (CANCELED)" in str(error):
            return "taken over"  # another driver has brought the job to its end
        if driver.accepted.exception() is not None:
            world.note(f"the submission failed, and is made again: {error}")
            return "followed"
        if isinstance(error, JobCanceled) and self._trouble.cancelled:
            self._trouble.cancelled = False
            return self._go_on_after_cancel()
        # Of two drivers that begin at once either may lead, the newest or not.
        overtaken = isinstance(error, JobSuspended) and "another driver leads it" in str(error)
        if isinstance(error, JobCanceled) or overtaken:
            world.note(f"the driver stopped: {error}")
            return "followed"
        self._faults.append(f"the job failed: {error}")
        return "failed"

    def _lasting(self, error: BaseException | None) -> bool:
        """Whether the job has ended so that it can be gone on with, as somebody wanted it to."""
        if isinstance(error, JobCanceled):
            return self._trouble.cancelled and self._plan.retain
        failed = isinstance(error, JobFailed) and self._plan.restarts < LASTING
        return failed or isinstance(error, JobSuspended)

    def _go_on_after_cancel(self) -> str:
        self._faults += self._plan.faults(whole=False)
        if self._plan.retain and self._world.store.pointers:
            return "resumed" if self._chance.random() < 0.5 else "from its folder"
        return "cancelled"

    def _next_graph(self, end: str) -> object:
        world, trouble = self._world, self._trouble
        led = any(
            each.driver.accepted.done() and each.driver.accepted.exception() is None
            for each in world.drivers
        )
        pointers = world.store.pointers
        start = Start("latest" if led else None)
        if self._people is not None and led:
            start = self._people.next_start(ended=end in ("ended", "from its folder"))
        elif end == "from its folder":
            start = Start(pointers[max(pointers)])
        if start.restore not in (None, "latest"):
            self._begun.append((world.store.job, frozenset(pointers.values()), start))
        parallelism, trouble.parallelism = trouble.parallelism, None
        world.note(f"another driver: {start}, parallelism {parallelism or 'as before'}")
        return self._plan.graph(
            restore=start.restore,
            parallelism=parallelism,
            claim=start.claim,
            fall_back=start.fall_back,
        )

    # --- what must hold ---

    def _pointed(self, checkpoint: int, pointer: str) -> None:
        """A checkpoint exists now: look into some of them."""
        self._outside.pointed[checkpoint].add(CURRENT.get())
        self._skip -= 1
        if self._skip > 0 or not self._inspections:
            return
        self._inspections -= 1
        self._skip = 5
        committed = list(self._outside.rows())

        def inspect() -> None:
            self._faults.extend(self._inspector.faults(pointer, committed))

        # Not now: the store is in the middle of a call.
        self._world.loop.call_in(self._world.loop.outside, 0.0, inspect)

    def _heard(self, process: Process, since_s: float, frame: bytes) -> None:
        """A process gets to hear something, which no call of a function may have held up."""
        self._outside.waited(process, since_s)
        if b"TriggerCheckpoint" in frame:
            message = pickle.loads(frame)
            if isinstance(message, TriggerCheckpoint):
                subtask = message.execution.subtask
                self._outside.triggered[process, subtask.index, message.checkpoint] = since_s

    def _unanswered(self) -> list[str]:
        """Who has asked for a checkpoint gets an answer, if only that the job has ended."""
        return [
            f"{process} never answered a request"
            for process, done in self._trouble.requests
            if process.alive and not done.done()
        ]

    def _left_files(self, how: str) -> list[str]:
        """Files of checkpoints that an ended job has left, or that were not its own to delete."""
        store = self._world.store
        left = [p for p in store if "/.jobs/" not in p and not p.startswith(SAVEPOINTS)]
        befell, ended_s = self._world.befell, self._world.newest.ended_s
        if any(befell[kind] for kind in ("hold", "freeze", "link", "slow")):
            # What a slot writes that knows nothing of the end is left to the sweep of a later run.
            left = [path for path in left if store.written_s[path] < ended_s - 1]
        faults = []
        # Who claims a snapshot leaves what else is there, or deletes it with what they share.
        kept, claimed = self._left_to_others()
        roots = {paths.parent(snapshot) for snapshot in claimed}
        if self._people is not None:
            # Who suspends a job, and starts another from its checkpoint, leaves the rest of it.
            last = f"/{store.job}/"
            named = set().union(*map(self._people.named, store.pointers.values()))
            left = [path for path in left if last in path and path not in named]
            if self._people.mendable:
                left = []
        for place in sorted(each for each in kept if paths.parent(each) not in roots):
            data = store.get(f"{place}/_metadata")
            if data is None:
                faults.append(f"{place} was not the job's to delete")
                continue
            decoded = metadata.decode(data, lambda: "0" * 32)
            named = files_of(place, resolve_relative(decoded, place))
            if gone := named - store.keys():
                faults.append(f"{sorted(gone)[:5]} of {place} were not the job's to delete")
            left = [p for p in left if not p.startswith(f"{place}/") and p not in named]
        retained = self._plan.retain and how == "cancelled"
        if left and not retained:
            faults.append(f"files are left: {sorted(left)[:5]}")
        return faults

    def _left_to_others(self) -> tuple[set[str], set[str]]:
        """Snapshots that jobs left behind when another began, and snapshots that were claimed.

        A job whose driver was killed before its first record has never been: the one before it
        goes on, and what it completed is its own to delete.
        """
        kept: set[str] = set()
        claimed: set[str] = set()
        jobs = [job for job, _, _ in self._begun] + [self._world.store.job]
        for (before, places, start), job in zip(self._begun, jobs[1:], strict=True):
            assert start.restore is not None, "it began from a snapshot that was named"
            if job == before:
                continue
            kept |= places
            if start.claim:
                claimed.add(start.restore)
            else:
                claimed.discard(start.restore)
        return kept, claimed
