"""One simulated run: a real driver and real slots, a job, and what befalls them, all from a seed.

Only the doors are simulated: the loop with its clock, the network, the files, who starts slots.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, TypeVar

import structlog

from tests.simulation.loop import Process, SimulatedClock, SimulatedLoop
from tests.simulation.network import SimulatedNetwork, Switchboard
from tidegate.driver.driver import Driver, DriverWorld
from tidegate.errors import PeerLost, SlotLost, StorageFailed, TidegateError
from tidegate.ha.filesystem import open_chain
from tidegate.model.chance import SeededChance
from tidegate.model.ids import SlotId
from tidegate.model.versions import versions
from tidegate.slot.slot import Slot
from tidegate.slot.slot import World as SlotWorld
from tidegate.storage.checkpoints import checkpoint_storage
from tidegate.storage.memory import MemoryFiles
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.control import SlotInvitation

T = TypeVar("T")

LOG = structlog.wrap_logger(
    None, processors=[lambda *_: (_ for _ in ()).throw(structlog.DropEvent)]
)


class WatchedFiles(dict[str, bytes]):
    """All files of a run; holds the records of who leads against what came before them.

    faults: checkpoints that went back, ids that were given out twice.
    """

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self._newest = self._next_id = 0

    def __setitem__(self, path: str, data: bytes) -> None:
        super().__setitem__(path, data)
        if "/.jobs/" not in path or "/chains/" not in path:
            return
        record = json.loads(data)
        ids = [pointer[0] for pointer in record.get("completed", ())]
        if ids != sorted(ids) or (ids and ids[-1] < self._newest):
            self.faults.append(f"completed checkpoints go back: {ids} after {self._newest}")
        # The last record of a job gives back the id that was reserved and not taken.
        if record.get("status") == "RUNNING" and record["next_id"] < self._next_id:
            self.faults.append(f"ids go back: {record['next_id']} after {self._next_id}")
        self._newest = max([self._newest, *ids])
        self._next_id = max(self._next_id, record.get("next_id", 0))


@dataclass(slots=True)
class Odds:
    """How rough a run is; chances are per blocking call, delays in virtual seconds.

    storage_fails: before a call is made, or after it was made (half and half).
    """

    network_delay_s: float = 0.002
    storage_delay_s: float = 0.01
    storage_fails: float = 0.0
    slot_start_s: float = 0.2
    wall_skew_ms: int = 0


@dataclass(slots=True)
class SimulatedSlot:
    """A slot's process and what runs in it."""

    process: Process
    slot: Slot
    failed: Callable[[TidegateError], None]


@dataclass(slots=True)
class Incident:
    """Something that befell the run, for people."""

    at_s: float
    what: str


@dataclass(slots=True)
class World:
    """What drivers, slots and the outside share in one run."""

    loop: SimulatedLoop
    chance: Random
    odds: Odds
    board: Switchboard
    files: MemoryFiles = field(default_factory=MemoryFiles)
    drivers: list[tuple[Process, Driver]] = field(default_factory=list)
    slots: list[SimulatedSlot] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    closed: bool = False
    calm: bool = False
    _names: Counter[str] = field(default_factory=Counter)

    def process(self, kind: str) -> Process:
        self._names[kind] += 1
        return Process(f"{kind}-{self._names[kind]}")

    def note(self, what: str) -> None:
        self.incidents.append(Incident(round(self.loop.now_s - 1_000, 3), what))

    def seeded(self) -> SeededChance:
        return SeededChance(self.chance.getrandbits(64))

    def clock(self) -> SimulatedClock:
        skew = self.odds.wall_skew_ms
        return SimulatedClock(self.loop, self.chance.randint(-skew, skew))

    async def blocking(self, call: Callable[[], T]) -> T:
        """A call on a pool: it takes a while, and where storage fails it may have been made."""
        odds = self.odds
        await asyncio.sleep(self.chance.uniform(0, odds.storage_delay_s))
        if self.closed:
            raise StorageFailed("the world has ended")
        failing = not self.calm and self.chance.random() < odds.storage_fails
        if failing and self.chance.random() < 0.5:
            raise StorageFailed("simulated: the store did not answer")
        result = call()
        await asyncio.sleep(self.chance.uniform(0, odds.storage_delay_s))
        if failing:
            raise StorageFailed("simulated: the store's answer was lost")
        return result

    # --- drivers ---

    def start_driver(self, graph: JobGraph) -> Driver:
        """Another process that leads the job."""
        process = self.process("driver")
        stores = Stores(self.files)

        async def chain(graph: JobGraph) -> object:
            directory = graph.settings.checkpoints.directory
            assert directory is not None
            return await open_chain(stores, directory, graph.name, self.blocking)

        driver = Driver(
            graph,
            DriverWorld(
                network=SimulatedNetwork(self.board, process),
                clock=self.clock(),
                chance=self.seeded(),
                run_blocking=self.blocking,
                chain=chain,  # type: ignore[arg-type]
                storage=lambda graph, job: checkpoint_storage(
                    job, graph.settings.checkpoints, stores
                ),
                log=LOG,
                secret=b"",
            ),
            Provider(self, process),
        )
        self.drivers.append((process, driver))
        process.context.copy().run(self.loop.create_task, driver.run())
        return driver

    @property
    def driver(self) -> tuple[Process, Driver]:
        """The newest."""
        return self.drivers[-1]

    # --- slots ---

    def start_slot(
        self, invitation: SlotInvitation, request: str, failed: Callable[[TidegateError], None]
    ) -> None:
        """Another process that serves as a slot."""
        process = self.process("slot")
        stores = Stores(self.files)
        slot = Slot(
            SlotId(process.name),
            SlotWorld(
                network=SimulatedNetwork(self.board, process),
                clock=self.clock(),
                chance=self.seeded(),
                run_blocking=self.blocking,
                storage=lambda job, settings: checkpoint_storage(job, settings, stores),
                log=LOG,
                pause=lambda: asyncio.sleep(self.chance.uniform(0, 0.002)),
                owns_process=False,
            ),
            pid=len(self.slots),
            host="simulated",
        )
        self.slots.append(SimulatedSlot(process, slot, failed))

        async def live() -> None:
            beats = self.loop.create_task(beat())
            try:
                why = await slot.run(invitation.driver, versions=versions(), request=request)
                failed(SlotLost(f"the slot has ended: {why}"))
            except PeerLost as error:
                failed(error)
            finally:
                beats.cancel()
                self.ended(process)

        async def beat() -> None:
            while True:
                await asyncio.sleep(invitation.settings.pulse_ms / 1000)
                slot.send_pulse()

        process.context.copy().run(self.loop.create_task, live())

    @property
    def living_slots(self) -> list[SimulatedSlot]:
        return [each for each in self.slots if each.process.alive]

    # --- what befalls them ---

    def kill_slot(self, victim: SimulatedSlot) -> None:
        self.note(f"SIGKILL to {victim.process}")
        self.loop.kill(victim.process)
        self.board.killed(victim.process)
        victim.failed(SlotLost(f"{victim.process} was killed"))

    def kill_driver(self) -> None:
        process, _ = self.driver
        self.note(f"SIGKILL to {process}")
        self.loop.kill(process)
        self.board.killed(process)

    def break_link(self) -> None:
        if self.board.links:
            link = self.chance.choice(self.board.links)
            self.note(f"the link of {link.ends[0]} and {link.ends[1]} breaks")
            link.broken("simulated: the link broke")

    def hold_link(self, for_s: float) -> None:
        if self.board.links:
            link = self.chance.choice(self.board.links)
            self.note(f"nothing passes between {link.ends[0]} and {link.ends[1]} for {for_s:.2f} s")
            self.board.hold(*link.ends, for_s)

    def ended(self, process: Process) -> None:
        """The process has ended by itself."""
        if not self.closed:
            self.loop.kill(process)
            self.board.killed(process)

    async def end(self) -> None:
        """Shut all doors, then let go of what dead processes had under way."""
        self.closed = True
        everybody = [process for process, _ in self.drivers] + [s.process for s in self.slots]
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

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._requests = 0
        self._released = False
        self.hint = ""

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


def make_world(seed: int, odds: Odds) -> World:
    chance = Random(seed)
    loop = SimulatedLoop(Random(chance.getrandbits(64)))
    board = Switchboard(loop, Random(chance.getrandbits(64)), odds.network_delay_s)
    world = World(loop, chance, odds, board)
    world.files.files = WatchedFiles()
    return world
