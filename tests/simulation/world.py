"""One simulated run: real drivers and real slots, and what stands between them and the world.

Only the doors are simulated: the loop with its clock, the network, the files, who starts slots.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from tests.simulation.files import WatchedFiles
from tests.simulation.loop import CURRENT, Process, SimulatedClock, SimulatedLoop
from tests.simulation.network import SimulatedNetwork, Switchboard
from tidegate.driver.driver import Driver
from tidegate.driver.world import DriverWorld
from tidegate.errors import PeerLost, SlotLost, StorageFailed, TidegateError
from tidegate.ha.filesystem import open_chain
from tidegate.model.chance import SeededChance
from tidegate.model.ids import SlotId
from tidegate.model.settings import LogSettings
from tidegate.model.versions import versions
from tidegate.slot.driver_link import SlotLog
from tidegate.slot.slot import Slot
from tidegate.slot.world import World as SlotWorld
from tidegate.storage.checkpoints import CheckpointStorage
from tidegate.storage.memory import MemoryFiles
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.control import SlotInvitation

T = TypeVar("T")

FROZEN = 1e9
"""Seconds that a killed process waits for what it has just asked for."""


@dataclass(slots=True)
class Odds:
    """How rough a run is; chances are per blocking call, delays in virtual seconds.

    storage_fails: before a call is made, in its middle, or after it was made. slow_slots: chance
    that a slot takes its time between two turns.
    """

    network_delay_s: float = 0.002
    storage_delay_s: float = 0.01
    storage_fails: float = 0.0
    slot_start_s: float = 0.2
    wall_skew_ms: int = 0
    losses: float = 0.0
    slow_slots: float = 0.0


@dataclass(slots=True)
class Trap:
    """A kill at a step of the protocol, the nth time that anybody comes there.

    step: part of the name of a blocking call. when: before it is made, in its middle, or after.
    other: the process at the other side of the control link dies, not the one that calls.
    """

    step: str
    when: str
    nth: int
    other: bool


class Log:
    """A driver's log: what it says of checkpoints, with its time.

    deployed: called with the checkpoint that subtasks are restored from, 0 for none.
    stop_failed: those given up because subtasks had stopped for a savepoint that was given up.
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        note: Callable[[str], None],
        deployed: Callable[[int], None] = lambda restored: None,
    ) -> None:
        self._loop = loop
        self._note = note
        self._deployed = deployed
        self.completed: list[tuple[float, int]] = []
        self.failed: list[tuple[float, int | None, str]] = []
        self.stop_failed: set[int | None] = set()

    def info(self, event: str, **facts: Any) -> None:
        if event == "checkpoint completed":
            self.completed.append((self._loop.now_s, facts["checkpoint"]))
        elif event == "checkpoint failed":
            self.failed.append((self._loop.now_s, facts["checkpoint"], facts["reason"]))
            if "Stop-with-savepoint failed" in facts["message"]:
                self.stop_failed.add(facts["checkpoint"])
        elif event == "subtasks deployed":
            self._deployed(facts["restored"] or 0)
        elif "guests" in facts:
            self._note(f"{event}: {facts['guests']}")

    debug = warning = error = info

    def bind(self, **facts: Any) -> Log:
        return self


@dataclass(slots=True)
class SimulatedDriver:
    """A driver's process and what it says.

    swept: files that its sweep at the end deleted, with the time of that and of their writing.
    """

    process: Process
    log: Log
    ended_s: float = 0.0
    swept: list[tuple[float, str, float]] = field(default_factory=list)
    driver: Driver = field(init=False)


@dataclass(slots=True)
class SimulatedSlot:
    """A slot's process and what runs in it. leader: the driver that started it."""

    process: Process
    slot: Slot
    leader: Process
    failed: Callable[[TidegateError], None]
    ended: bool = False


@dataclass(slots=True)
class Incident:
    """Something that befell the run, for people."""

    at_s: float
    what: str


@dataclass(slots=True)
class World:
    """What drivers, slots and the outside share in one run. calm: nothing befalls it any more.

    outage: the store of record chains loses each write, or its answer. hangs_s: instead of that,
    a write takes so long, and happens then.
    """

    loop: SimulatedLoop
    chance: Random
    odds: Odds
    board: Switchboard
    files: MemoryFiles = field(default_factory=MemoryFiles)
    drivers: list[SimulatedDriver] = field(default_factory=list)
    slots: list[SimulatedSlot] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    trap: Trap | None = None
    clocks: list[SimulatedClock] = field(default_factory=list)
    befell: Counter[str] = field(default_factory=Counter)
    killed_s: dict[Process, float] = field(default_factory=dict)
    cancelled_s: dict[Process, float] = field(default_factory=dict)
    closed: bool = False
    calm: bool = False
    outage: bool = False
    hangs_s: float = 0.0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _names: Counter[str] = field(default_factory=Counter)
    _versions: dict[str, str] = field(default_factory=versions)

    def process(self, kind: str) -> Process:
        self._names[kind] += 1
        return Process(f"{kind}-{self._names[kind]}")

    def note(self, what: str) -> None:
        self.incidents.append(Incident(round(self.loop.now_s - 1_000, 3), what))

    def seeded(self) -> SeededChance:
        return SeededChance(self.chance.getrandbits(64))

    def clock(self) -> SimulatedClock:
        skew = self.odds.wall_skew_ms
        clock = SimulatedClock(self.loop, self.chance.randint(-skew, skew))
        self.clocks.append(clock)
        return clock

    @property
    def store(self) -> WatchedFiles:
        """All files."""
        assert isinstance(self.files.files, WatchedFiles)
        return self.files.files

    # --- blocking calls ---

    async def blocking(self, call: Callable[[], T]) -> T:
        """A call on a pool: it takes a while, and where storage fails it may have been made."""
        try:
            return await self._blocking(call)
        except TidegateError:
            raise
        except Exception as error:
            # Whoever made the call takes it for a fault of storage, and goes on.
            self.loop.faults.append(f"a blocking call raised {error!r}")
            raise

    async def _blocking(self, call: Callable[[], T]) -> T:
        odds, chance = self.odds, self.chance
        await asyncio.sleep(odds.storage_delay_s * chance.random())
        if self.closed:
            raise StorageFailed("the world has ended")
        trap = self.trap
        if trap is not None and not self.calm and trap.step in _step_of(call):
            trap.nth -= 1
            if trap.nth == 0:
                self.trap = None
                return await self._trapped(trap, call)
        failing = not self.calm and chance.random() < odds.storage_fails
        if self.outage and _step_of(call).startswith("FileSystemHaStore.create"):
            await asyncio.sleep(self.hangs_s)
            failing = failing or not self.hangs_s
        if failing:
            self.befell["storage"] += 1
            result = self._failing(call)
        else:
            result = call()
        await asyncio.sleep(odds.storage_delay_s * chance.random())
        if failing:
            raise StorageFailed("simulated: the store's answer was lost")
        return result

    def _failing(self, call: Callable[[], T]) -> T:
        drawn = self.chance.random()
        if drawn < 0.5:
            raise StorageFailed("simulated: the store did not answer")
        if drawn < 0.7:
            return self._torn(call)
        return call()

    def _torn(self, call: Callable[[], T]) -> T:
        self.store.tear = True
        try:
            return call()
        finally:
            self.store.tear = False

    async def _trapped(self, trap: Trap, call: Callable[[], T]) -> T:
        process = CURRENT.get()
        victim = self._other(process) if trap.other else process
        self.note(f"{trap.when} {trap.step}:")
        if trap.when == "before":
            self.kill(victim)
        elif trap.when == "within":
            self.kill(victim)
            try:
                return self._torn(call)
            finally:
                await self._if_alive(process)
        result = call()
        if trap.when == "after":
            self.kill(victim)
        await self._if_alive(process)
        return result

    async def _if_alive(self, process: Process) -> None:
        await asyncio.sleep(self.odds.storage_delay_s if process.alive else FROZEN)
        if self.closed:
            raise StorageFailed("the world has ended")

    def _other(self, process: Process) -> Process:
        """Who is at the other side of the control link."""
        for slot in self.slots:
            if slot.process is process:
                return slot.leader
        return self.chance.choice([slot.process for slot in self.living_slots] or [process])

    # --- drivers ---

    def start_driver(self, graph: JobGraph) -> SimulatedDriver:
        """Another process that leads the job."""
        process = self.process("driver")
        stores = Stores(self.files)
        started = SimulatedDriver(process, Log(self.loop, self.note, self.store.restored))

        async def chain(graph: JobGraph) -> object:
            directory = graph.settings.checkpoints.directory
            assert directory is not None
            return await open_chain(stores, directory, graph.name, self.blocking)

        driver = started.driver = Driver(
            graph,
            DriverWorld(
                network=SimulatedNetwork(self.board, process),
                clock=self.clock(),
                chance=self.seeded(),
                run_blocking=self.blocking,
                call_user=self.blocking,
                chain=chain,  # type: ignore[arg-type]
                storage=lambda graph, job: self._watched(
                    started, CheckpointStorage(job, graph.settings.checkpoints, stores)
                ),
                log=started.log,  # type: ignore[arg-type]
                secret=b"",
                heard=lambda logged: None,
            ),
            Provider(self, process),
        )
        self.drivers.append(started)
        driver.result.add_done_callback(lambda _: self._driver_ended(started))
        process.context.copy().run(self.loop.create_task, driver.run())
        return started

    def _driver_ended(self, driver: SimulatedDriver) -> None:
        driver.ended_s = self.loop.now_s
        self.loop.call_in(*self._news)

    @property
    def _news(self) -> tuple[Process, float, Callable[[], None]]:
        return self.loop.outside, 0.0, self.changed.set

    def _watched(self, driver: SimulatedDriver, storage: CheckpointStorage) -> CheckpointStorage:
        """A storage that tells what its sweep deletes once the job is over."""
        sweep = storage.sweep

        def watched(*args: Any, **options: Any) -> None:
            before = dict.fromkeys(self.store)
            sweep(*args, **options)
            if driver.driver.job.inbox.over.is_set():
                now_s, written_s = self.loop.now_s, self.store.written_s
                gone = [path for path in before if path not in self.store]
                driver.swept += [(now_s, path, written_s[path]) for path in gone]

        watched.__qualname__ = "sweep"
        storage.sweep = watched  # type: ignore[method-assign]
        return storage

    @property
    def newest(self) -> SimulatedDriver:
        """The newest driver."""
        return self.drivers[-1]

    # --- slots ---

    def start_slot(
        self,
        invitation: SlotInvitation,
        request: str,
        leader: Process,
        failed: Callable[[TidegateError], None],
    ) -> None:
        """Another process that serves as a slot."""
        process = self.process("slot")
        stores = Stores(self.files)
        pause_s = 0.03 if self.chance.random() < self.odds.slow_slots else 0.002
        slot = Slot(
            SlotId(process.name),
            SlotWorld(
                network=SimulatedNetwork(self.board, process),
                clock=self.clock(),
                chance=self.seeded(),
                run_blocking=self.blocking,
                storage=lambda job, settings: CheckpointStorage(job, settings, stores),
                log=Log(self.loop, self.note),  # type: ignore[arg-type]
                pause=lambda: asyncio.sleep(pause_s * self.chance.random()),
                owns_process=False,
            ),
            SlotLog(SlotId(process.name), LogSettings(), self.clock()),
            pid=len(self.slots),
            host="simulated",
        )
        started = SimulatedSlot(process, slot, leader, failed)
        self.slots.append(started)

        async def live() -> None:
            beats = self.loop.create_task(beat())
            try:
                why = await slot.run(invitation.driver, versions=self._versions, request=request)
                failed(SlotLost(f"the slot has ended: {why}"))
            except PeerLost as error:
                failed(error)
            finally:
                beats.cancel()
                self._ended(started)

        async def beat() -> None:
            while True:
                await asyncio.sleep(invitation.settings.pulse_ms / 1000)
                slot.send_pulse()

        process.context.copy().run(self.loop.create_task, live())

    @property
    def living_slots(self) -> list[SimulatedSlot]:
        return [each for each in self.slots if each.process.alive]

    def _ended(self, slot: SimulatedSlot) -> None:
        """The process has ended by itself."""
        if not self.closed:
            slot.ended = True
            self.loop.kill(slot.process)
            self.board.killed(slot.process)

    # --- kills ---

    def kill(self, victim: Process) -> None:
        """A driver or a slot is no more."""
        if not victim.alive:
            return
        self.note(f"SIGKILL to {victim}")
        self.befell["kill"] += 1
        self.killed_s[victim] = self.loop.now_s
        self.loop.kill(victim)
        self.board.killed(victim)
        for slot in self.slots:
            if slot.process is victim:
                slot.failed(SlotLost(f"{victim} was killed"))
        self.loop.call_in(*self._news)

    async def end(self) -> None:
        """Shut all doors, then let go of what dead processes had under way."""
        self.closed = True
        everybody = [each.process for each in self.drivers] + [s.process for s in self.slots]
        for process in everybody:
            self.loop.bury(process)
        for _ in range(200):
            left = [task for each in everybody for task in each.tasks if not task.done()]
            if not left:
                return
            await asyncio.sleep(1)
        raise AssertionError(f"tasks do not end when they are cancelled: {left}")


class Provider:
    """Starts slots in the world, each after a while."""

    tells_ends = False

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._requests = 0
        self._released = False

    async def hint(self) -> str:
        return ""

    def start(
        self,
        invitation: SlotInvitation,
        failed: Callable[[str, TidegateError, bool], None],
        ended: Callable[[str], None],
    ) -> None:
        self._invitation, self._failed = invitation, failed

    def request(self, count: int) -> None:
        world = self._world
        for _ in range(count):
            self._requests += 1
            request = f"{self._process}/{self._requests}"
            delay_s = world.chance.uniform(0, world.odds.slot_start_s)
            world.loop.call_in(world.loop.outside, delay_s, self._start_one, request)

    def _start_one(self, request: str) -> None:
        if not self._released and self._process.alive and not self._world.closed:
            self._world.start_slot(
                self._invitation,
                request,
                self._process,
                lambda error: self._world.loop.call_in(
                    self._process,
                    self._world.board.draw_delay_s(),
                    self._ended_in_failure,
                    request,
                    error,
                ),
            )

    def _ended_in_failure(self, request: str, error: TidegateError) -> None:
        if not self._released:
            self._failed(request, error, False)

    def release(self) -> None:
        self._released = True

    async def close(self) -> None:
        self._released = True


def _step_of(call: Callable[[], object]) -> str:
    return (call.func if isinstance(call, partial) else call).__qualname__


def make_world(seed: int, odds: Odds, pointed: Callable[[int, str], None]) -> World:
    chance = Random(seed)
    loop = SimulatedLoop(Random(chance.getrandbits(64)))
    board = Switchboard(loop, Random(chance.getrandbits(64)), odds.network_delay_s, odds.losses)
    world = World(loop, chance, odds, board)
    world.files.files = WatchedFiles(loop.time, pointed)
    return world
