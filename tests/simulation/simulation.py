"""A whole run from one number, and what must hold after it.

Held: the job ends, in virtual time; what is committed is what plain Python gives, each row once;
nothing raises where nobody catches it; no file of a checkpoint is left when the job has finished.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random

from tests.simulation.jobs import LEDGERS, Plan
from tests.simulation.world import Odds, WatchedFiles, World, make_world

LIMIT_S = 3_600.0
CALM_AFTER_S = 60.0


@dataclass(frozen=True, slots=True)
class Run:
    """How a run went. faults: empty where all held. doubled: rows that came more than once."""

    seed: int
    faults: list[str]
    doubled: int
    story: list[str]
    virtual_s: float
    steps: int


def simulate(seed: int, *, exactly_once: bool | None = None) -> Run:
    """Run one seed. exactly_once: the mode, else that is drawn too."""
    chance = Random(seed)
    plan = Plan(chance, seed)
    if exactly_once is not None:
        plan.exactly_once = exactly_once
    odds = Odds(
        network_delay_s=chance.choice([0.0005, 0.005, 0.05]),
        storage_delay_s=chance.choice([0.001, 0.02, 0.2]),
        storage_fails=chance.choice([0.0, 0.0, 0.02]),
        slot_start_s=chance.choice([0.05, 0.5]),
        wall_skew_ms=chance.choice([0, 0, 5_000]),
    )
    world = make_world(chance.getrandbits(64), odds)
    world.note(f"{plan}, {odds}")
    faults: list[str] = []
    try:
        cleaned = world.loop.run(live(world, plan, chance, faults), LIMIT_S)
        faults += plan.faults()
        if cleaned and not odds.storage_fails:  # a deletion that fails is not tried again
            faults += left_files(world)
    except (AssertionError, TimeoutError) as error:
        faults.append(f"{type(error).__name__}: {error}")
    faults += world.loop.faults
    assert isinstance(world.files.files, WatchedFiles)
    faults += world.files.files.faults
    story = [f"{incident.at_s:9.3f} s  {incident.what}" for incident in world.incidents]
    virtual_s = world.loop.now_s - 1_000
    world.calm = True
    world.loop.run(world.end(), LIMIT_S)
    doubled = plan.doubled()
    LEDGERS.pop(seed, None)
    return Run(seed, faults, doubled, story, virtual_s, world.loop.steps)


async def live(world: World, plan: Plan, chance: Random, faults: list[str]) -> bool:
    """Lead the job to its end, whatever befalls it on the way; whether it could clean up."""
    world.start_driver(plan.graph(resume=False))
    troubles = asyncio.ensure_future(trouble(world, plan, chance))
    try:
        while (error := await ended(world)) is not None:
            if "has ended (FINISHED)" in error:
                return False  # the driver before was killed just then
            if world.driver[1].accepted.exception() is None:
                faults.append(f"the job failed: {error}")
                return False
            world.note(f"the submission failed, and is made again: {error}")
            led = any(each.accepted.exception() is None for _, each in world.drivers)
            world.start_driver(plan.graph(resume=led))
    finally:
        troubles.cancel()
    await asyncio.sleep(30)  # what is still on its way arrives, orphans end
    return True


async def ended(world: World) -> str | None:
    """Wait for the newest driver's end; what it failed with, None where it finished."""
    driver = world.driver[1]
    while not driver.result.done():
        await asyncio.sleep(0.05)
        driver = world.driver[1]
    error = driver.result.exception()
    return None if error is None else str(error)


async def trouble(world: World, plan: Plan, chance: Random) -> None:
    """Kills and breaks, for a while; then the run is left in peace, and has to end."""
    kinds = ["slot", "slot", "link", "hold", "driver", "rescale"]
    count = chance.choice([0, 1, 2, 4, 8])
    for _ in range(count):
        await asyncio.sleep(chance.choice([0.01, 0.3, 1.5, 4]) * chance.random() * 2)
        match chance.choice(kinds):
            case "slot" if world.living_slots:
                world.kill_slot(chance.choice(world.living_slots))
            case "link":
                world.break_link()
            case "hold":
                world.hold_link(chance.choice([0.1, 2, 15]))
            case "driver" | "rescale" as kind:
                accepted = world.driver[1].accepted
                if not accepted.done() or world.driver[1].result.done():
                    continue
                world.kill_driver()
                await asyncio.sleep(chance.uniform(0, 5))
                parallelism = chance.choice([1, 2, 3]) if kind == "rescale" else None
                world.note(f"another driver starts, parallelism {parallelism or 'as before'}")
                world.start_driver(plan.graph(resume=True, parallelism=parallelism))
            case _:
                pass
    world.calm = True


def left_files(world: World) -> list[str]:
    """Files of checkpoints that a finished job has left."""
    left = [path for path in world.files.files if "/.jobs/" not in path]
    return [f"files are left: {sorted(left)[:5]}"] if left else []
