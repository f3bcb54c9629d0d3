"""The first phase of a job: it is led, what it starts from is read, and the program is fitted.

All of that comes before the job master is made, so that the machine begins with all it has to know.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from tidegate.checkpoint.restore.fitting import check_hooks, fit, unclaimed
from tidegate.driver.checkpoint_files import CheckpointFiles
from tidegate.driver.starting.restore import LATEST, StartReader
from tidegate.ha.leadership import HaWorld, Leadership, lead
from tidegate.ha.patience import PatientStore
from tidegate.loops.forms import choose
from tidegate.model.settings import LoopForm

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    import structlog

    from flinkformat.snapshots import CheckpointMetadata
    from tidegate.checkpoint.completed import CompletedCheckpoint
    from tidegate.driver.world import DriverWorld
    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.ids import CheckpointId, JobId, OperatorId


@frozen
class Start:
    """A job that is led, and what it begins with.

    graph: fitted to the newest checkpoint. completed: its checkpoints, oldest first.
    damaged: numbers of those that were given up; if any, nothing is swept before the job ends.
    """

    graph: JobGraph
    leadership: Leadership
    files: CheckpointFiles
    completed: tuple[CompletedCheckpoint, ...]
    damaged: tuple[CheckpointId, ...]


@contextlib.asynccontextmanager
async def started(graph: JobGraph, world: DriverWorld) -> AsyncGenerator[Start]:
    """Leads the job while this lasts. Raises ConfigError, StorageFailed, RestoreRefused."""
    settings, chance = graph.settings, world.chance
    if settings.slot.loops is LoopForm.AUTO:
        # Of this machine; a slot elsewhere takes the compiled ones that it has.
        choice = choose()
        world.log.info("loops around functions", form=choice.form.value, why=choice.why)
    reader = StartReader(
        settings,
        lambda job: world.storage(graph, job),
        world.run_blocking,
        lambda: f"{chance.bits64():016x}{chance.bits64():016x}",
        world.log,
    )
    leadership = await _lead(graph, world, reader)
    try:
        storage = world.storage(graph, leadership.job)
        # A store that nobody can write to is told here, before anything has begun.
        if settings.checkpoints.periodic:
            await world.run_blocking(storage.initialize_base_locations)
        async with leadership.starting():
            completed = await reader.read(leadership)
            fitted = await _fitted(graph, reader, leadership.job, completed, world.log)
        files = CheckpointFiles(
            storage, settings.checkpoints, leadership.epoch, chance, world.run_blocking, world.log
        )
        damaged = tuple(pointer.checkpoint for pointer in reader.damaged)
        yield Start(fitted, leadership, files, tuple(completed), damaged)
    finally:
        await leadership.close()


async def _lead(graph: JobGraph, world: DriverWorld, reader: StartReader) -> Leadership:
    settings = graph.settings
    return await lead(
        HaWorld(
            store=PatientStore(await world.chain(graph), world.log),
            clock=world.clock,
            chance=world.chance,
            pause=lambda duration_ms: asyncio.sleep(duration_ms / 1000),
            beat_ms=settings.leader_beat_ms,
            lease_ms=settings.leader_lease_ms,
        ),
        graph.name,
        resume=settings.restore.path == LATEST,
        recover=settings.zookeeper is not None,
        start=reader.named if reader.names_snapshot else None,
    )


async def _fitted(
    graph: JobGraph,
    reader: StartReader,
    job: JobId,
    completed: Sequence[CompletedCheckpoint],
    log: structlog.typing.FilteringBoundLogger,
) -> JobGraph:
    """Raises RestoreRefused where the newest checkpoint does not fit the program."""
    if not completed:
        return graph
    newest, allowed = completed[-1].metadata, graph.settings.restore.allow_non_restored
    # For the error alone: names of states tell more than ids of operators do.
    lost = [] if allowed else unclaimed(newest, graph.topology)
    return fitted(graph, newest, await reader.keyed_names(job, lost), log)


def fitted(
    graph: JobGraph,
    metadata: CheckpointMetadata,
    keyed_names: Mapping[OperatorId, Sequence[str]],
    log: structlog.typing.FilteringBoundLogger,
) -> JobGraph:
    """The graph as it fits a snapshot. keyed_names: as of `fit`.

    Raises RestoreRefused where it does not.
    """
    allowed = graph.settings.restore.allow_non_restored
    topology = fit(metadata, graph.topology, allow_unclaimed_state=allowed, keyed_names=keyed_names)
    if not allowed:
        check_hooks(metadata, {hook.get_identifier() for hook in graph.hooks})
    for state in unclaimed(metadata, graph.topology):
        log.info(
            "state of an operator that the program lacks is skipped",
            operator=state.operator_id.hex(),
            name=state.name,
            size_bytes=state.state_size,
        )
    return replace(graph, topology=topology)
