"""Data that must be written before sources read them: ready before slots come, deleted at the end.

Each run of the job writes into a folder of its own, below the job's: what the driver before it was
writing when it died may still grow. A run that starts from a checkpoint writes nothing for sources
that have state in it: they go on in the files that were written for an earlier run.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tidegate.checkpoint.restore.assignment import coordinator_states
from tidegate.errors import JobCanceled, StorageFailed
from tidegate.storage import paths
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Sequence

    import structlog

    from tidegate.checkpoint.completed import CompletedCheckpoint
    from tidegate.clock import Clock
    from tidegate.graph.job_graph import JobGraph
    from tidegate.ha.filesystem import RunBlocking
    from tidegate.ha.leadership import Leadership
    from tidegate.model.ids import OperatorId
    from tidegate.model.topology import Topology

REPORT_S: Final = 30.0
"""How often it is said that something is still being written."""

CANCEL_AGAIN_S: Final = 0.5
"""How often a write that is to end is told so: it may not have begun where that can be heard."""


class Staging:
    """Writes and removes what the sources of one job read.

    places: the folder of each operator in this run. Raises ConfigError if there is none that
    all could reach.
    """

    def __init__(
        self,
        graph: JobGraph,
        leadership: Leadership,
        clock: Clock,
        run_blocking: RunBlocking,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._graph = graph
        self._clock = clock
        self._run_blocking = run_blocking
        self._log = log
        self._stopping = asyncio.Event()
        self._folders: set[tuple[str, str]] = set()
        self.places: dict[OperatorId, str] = {}
        checkpoints = graph.settings.checkpoints.directory
        for operator, staged in graph.staged.items():
            root = staged.root(checkpoints)
            beside = root == checkpoints
            below = paths.staged_folder if beside else paths.job_folder
            self._folders.add((root, below(leadership.job)))
            folder = paths.join(paths.absolute(root), paths.staged_folder(leadership.job))
            self.places[operator] = paths.join(folder, str(leadership.epoch), operator.hex())

    async def write(self, completed: Sequence[CompletedCheckpoint], topology: Topology) -> None:
        """Write what the sources read that start from nothing.

        completed: what the job starts from, oldest first. Raises TidegateError if that fails,
        and JobCanceled after `stop`.
        """
        states: dict[OperatorId, bytes | None] = {}
        if completed:
            states = coordinator_states(completed[-1].metadata, topology)
        else:
            await self.remove()
        for operator in self._graph.staged:
            if states.get(operator) is None:
                await self._write(operator)

    def stop(self) -> None:
        self._stopping.set()

    async def remove(self) -> None:
        """Delete all that was written for the job; what cannot be is told."""

        def delete() -> None:
            for root, folder in self._folders:
                Stores().open(root).delete_folder(folder)

        if not self._folders:
            return
        try:
            await self._run_blocking(delete)
        except StorageFailed as error:
            self._log.warning("files that sources have read could not be deleted", error=str(error))

    async def _write(self, operator: OperatorId) -> None:
        if self._stopping.is_set():
            raise JobCanceled("the job ended before its sources were written")
        staged, place = self._graph.staged[operator], self.places[operator]
        log = self._log.bind(operator=self._graph.operator(operator).name, path=place)
        began_ms = self._clock.monotonic_ms()
        log.info("writing what a source reads")
        stopping = asyncio.ensure_future(self._stopping.wait())
        writing = asyncio.ensure_future(self._run_blocking(lambda: staged.write(place)))
        try:
            while not writing.done() and not stopping.done():
                done, _ = await asyncio.wait(
                    (writing, stopping), timeout=REPORT_S, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    log.info("still being written", waited_ms=self._clock.monotonic_ms() - began_ms)
            while not writing.done():
                await self._run_blocking(staged.cancel)
                await asyncio.wait((writing,), timeout=CANCEL_AGAIN_S)
        finally:
            stopping.cancel()
        await writing
        log.info("written", duration_ms=self._clock.monotonic_ms() - began_ms)
