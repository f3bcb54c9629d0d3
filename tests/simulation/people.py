"""People who end a simulated job in the ways there are, and go on with it in the ways there are.

Whatever they do, nothing is deleted that the job's record names, and what they start next goes on
from the newest checkpoint: from an older one only where that is damaged and they have chosen to.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from flinkformat import metadata
from tidegate.driver.client.requests import suspend
from tidegate.model.elements import SnapshotKind
from tidegate.snapshots.folders import files_of
from tidegate.storage.state_files import resolve_relative

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from tests.simulation.jobs import Plan
    from tests.simulation.trouble import Trouble
    from tests.simulation.world import World
    from tidegate.model.control import JobStatus

DAMAGES = ("metadata cut", "file gone", "byte changed")
"""The first two are seen by the driver that starts, the last by the slot that restores."""


@dataclass(frozen=True, slots=True)
class Start:
    """How the next driver starts.

    restore: ``latest``, or a checkpoint's folder; None to begin anew. claim: whether the snapshot
    becomes the job's. fall_back: whether an older one does where the newest is damaged.
    """

    restore: str | None
    claim: bool = False
    fall_back: bool = False


class People:
    """Those of one run.

    ended: how often the job was asked to end. went_on: how it was gone on with, in words.
    """

    def __init__(self, world: World, plan: Plan, trouble: Trouble, chance: Random) -> None:
        self._world, self._plan, self._trouble, self._chance = world, plan, trouble, chance
        self._damaged: dict[str, bytes] = {}
        self._given_up: dict[str, frozenset[str]] = {}
        self._fall_back = False
        self.faults: list[str] = []
        if plan.retain and chance.random() < 0.3:
            plan.restarts = chance.choice([0, 1])
        if chance.random() < 0.6:
            plan.retained += 1  # so that there is one to fall back to

    # --- they end it ---

    async def end_it(self) -> None:
        """A few times, and look at it in between; now and then while it is ending already."""
        chance = self._chance
        acts: tuple[Callable[[], None], ...] = (
            self._suspend,
            self._suspend,
            self._trouble.cancel,
            partial(self._trouble.stop, SnapshotKind.SUSPEND),
        )
        for _ in range(chance.choice([2, 4, 6])):
            await asyncio.sleep(chance.choice([0.5, 1, 3]) * chance.random())
            self._look()
            if chance.random() < 0.2:
                self._world.kill(
                    chance.choice(self._world.living_slots or self._world.slots).process
                )
            chance.choice(acts)()

    def _suspend(self) -> None:
        """What Ctrl-C does."""
        started = self._world.newest
        if self._trouble.leads and not started.process.frozen:
            self._trouble.befalls("cancel", "somebody suspends the job")
            job = started.driver.job
            why = "somebody asked for it"
            suspending = partial(suspend, job.inbox, job.answers, job.settings, why)
            spawn = job.inbox.spawn
            self._world.loop.call_in(started.process, 0.0, lambda: spawn(suspending()))

    def _look(self) -> None:
        """Ask for the job's status: no call of a function holds the answer up."""
        started, asked_s = self._world.newest, self._world.loop.now_s
        answer: Future[JobStatus] = Future()

        def ask() -> None:
            if started.driver.accepted.done() and started.driver.accepted.exception() is None:
                answer.set_result(started.driver.job.view().status)
                late_s = self._world.loop.now_s - asked_s
                if late_s and not self._world.befell["freeze"]:
                    self.faults.append(f"{started.process} told its status {late_s:.3f} s late")

        self._world.loop.call_in(started.process, 0.0, ask)

    # --- they go on with it ---

    def next_start(self, *, ended: bool) -> Start:
        """How to go on. ended: whether the driver before has brought the job to an end."""
        self._repair()
        pointers = self._world.store.pointers
        status = self._world.store.status
        if not pointers and (status == "FAILED" or (ended and status == "CANCELED")):
            return Start(None)  # it came to its end before it had a checkpoint
        if not pointers or not ended:
            return Start("latest", fall_back=self._fall_back)
        newest = pointers[max(pointers)]
        if newest in self._given_up:
            # Nobody mends it, so whoever named it would never go on.
            return Start("latest", fall_back=True)
        drawn = self._chance.random()
        if drawn < 0.2:
            return Start(newest)
        if drawn < 0.35:
            # Who claims it may delete what its former owner's other checkpoints need too.
            return Start(newest, claim=True)
        if drawn < 0.85:
            named = self.named(newest)
            self._damage(newest)
            if len(pointers) > 1 and self._chance.random() < 0.5:
                self._fall_back = self._plan.fell_back = self._world.store.goes_back = True
                self._given_up[newest] = named
                self._damaged.clear()  # it stays as it is
        return Start("latest", fall_back=self._fall_back)

    def _damage(self, newest: str) -> None:
        chance, store = self._chance, self._world.store
        others = [place for place in store.pointers.values() if place != newest]
        used = {path for place in others for path in self.named(place)}
        own = sorted(path for path in self.named(newest) if path not in used)
        how = chance.choice(DAMAGES)
        path = f"{newest}/_metadata" if how == DAMAGES[0] else chance.choice(own)
        data = self._damaged[path] = store[path]
        at = chance.randrange(len(data))
        self._world.note(f"{how}: {path}, of the newest checkpoint")
        match how:
            case "file gone":
                del store[path]
            case "metadata cut":
                dict.__setitem__(store, path, data[:at])
            case _:
                dict.__setitem__(store, path, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])

    def _repair(self) -> None:
        """Put back what was damaged, from a copy that somebody had."""
        for path, data in self._damaged.items():
            dict.__setitem__(self._world.store, path, data)
        self._damaged.clear()

    # --- what must hold at each end ---

    def lost(self) -> Iterator[str]:
        """What the job's record names and somebody has deleted."""
        store = self._world.store
        if store.newest and not store.pointers:
            yield f"no checkpoint is kept, though {store.newest} was completed"
        for checkpoint, place in store.pointers.items():
            gone = self.named(place) - self._damaged.keys() - store.keys()
            if gone and place not in self._given_up:
                yield f"{sorted(gone)[:5]} of checkpoint {checkpoint} were deleted"

    @property
    def mendable(self) -> bool:
        """Whether the job's record names a damaged checkpoint: then nothing is swept."""
        return not self._given_up.keys().isdisjoint(self._world.store.pointers.values())

    def named(self, place: str) -> frozenset[str]:
        """The files of a checkpoint, those that damage has taken too."""
        if place in self._given_up:
            return self._given_up[place]
        path = f"{place}/_metadata"
        data = self._damaged.get(path, self._world.store.get(path))
        if data is None:
            return frozenset((path,))
        decoded = metadata.decode(data, lambda: "0" * 32)
        return files_of(place, resolve_relative(decoded, place)) | {path}
