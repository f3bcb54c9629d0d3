"""The middle phase of a job: it runs. Its machine and all that performs what it commands are here.

Everything is made at once, from what the start has read, so that nothing is missing later.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidegate.checkpoint.completed import CompletedCheckpoints
from tidegate.checkpoint.coordinator.absent import NoCheckpoints
from tidegate.checkpoint.coordinator.coordinator import CheckpointCoordinator
from tidegate.checkpoint.registry import SharedStateRegistry
from tidegate.config.warnings import Warnings
from tidegate.driver.ending import Ending
from tidegate.driver.inbox import Answers, Inbox
from tidegate.driver.links import SlotLinks
from tidegate.driver.perform import Performer
from tidegate.driver.starting.invitation import invitation
from tidegate.driver.starting.staging import Staging
from tidegate.driver.telling.commands import Tracing
from tidegate.driver.telling.report import summary_of, tell_of_former
from tidegate.driver.telling.watching import Remarks, watch_event_time, watch_remarks, watch_stops
from tidegate.driver.user_code.hosts import CoordinatorHosts
from tidegate.errors import SlotsMissing, TidegateError
from tidegate.jobmaster.events import JobStarted, StartFailed, SuspendRequested
from tidegate.jobmaster.machine import JobMaster
from tidegate.model.control import (
    Samples,
    SlotInvitation,
    TellSamples,
    TellThreads,
    Threads,
)
from tidegate.model.versions import versions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from tidegate.api.job import JobSummary
    from tidegate.api.results import ResultBuffer
    from tidegate.driver.start import Start
    from tidegate.driver.world import DriverWorld
    from tidegate.graph.runtime import SlotProvider
    from tidegate.jobmaster.commands import JobCommand
    from tidegate.jobmaster.view import JobView
    from tidegate.model.control import ThreadStack
    from tidegate.model.ids import Epoch, JobId, SlotId, VertexId
    from tidegate.model.settings import JobSettings
    from tidegate.telemetry.span_reporting import SpanReporting


ANSWER_WITHIN_MS: Final = 5_000
"""A slot that is in a call of a user's function answers questions when that returns."""


def _span_reporting(settings: JobSettings, world: DriverWorld) -> SpanReporting | None:
    """The reporting of a job's spans; None where nobody reports. Raises ConfigError."""
    if not settings.span_reporters:
        return None
    from tidegate.telemetry.reporters.spans import made  # few jobs have any
    from tidegate.telemetry.span_reporting import SpanReporting

    return SpanReporting(list(made(settings, world.chance)), world.clock, world.log)


class RunningJob:
    """One run of a job that is led and fitted. Raises ConfigError if sources cannot be staged."""

    def __init__(self, world: DriverWorld, provider: SlotProvider, start: Start) -> None:
        graph, settings = start.graph, start.graph.settings
        leadership, files = start.leadership, start.files
        blocking, log = world.run_blocking, world.log
        kept = CompletedCheckpoints(
            settings.checkpoints.retained_max, start.completed, damaged=start.damaged
        )
        self.start = start
        self.answers = Answers()
        self.inbox = Inbox(_job_master(world, start, kept), world.clock, self._perform, log)
        self._staging = Staging(graph, leadership, world.clock, blocking, log)
        self.hosts = CoordinatorHosts(
            graph, self.inbox.post, self.inbox.spawn, blocking, self._staging.places
        )
        self._slots = SlotLinks(provider, self.inbox.post, self.hosts.event, world.heard, log)
        parts = (files, self.inbox, self._slots, self.hosts, self.answers)
        self._performer = Performer(graph, world, leadership, *parts)
        self._ending = Ending(leadership, files, kept, self._staging, settings.checkpoints, log)
        self._spans = _span_reporting(settings, world)
        self._tracing = Tracing(self._spans)
        self._warnings = Warnings(log, settings.silenced)
        self._remarks = Remarks(self._warnings)
        self._world = world
        self.summary: JobSummary | None = None
        self._last_view: JobView | None = None

    def _perform(self, commands: Sequence[JobCommand]) -> None:
        for command in commands:
            try:
                self._performer.perform(command)
            except Exception as error:
                # The commands behind it are performed all the same: the machine counts on each.
                self.inbox.hindered(error)
        self._tracing.follow(commands, self.view)

    # --- its life ---

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Slots can come while this lasts; at its end nothing of the run is left."""
        # Left in reverse: slots go while the inbox still takes what they say.
        async with contextlib.AsyncExitStack() as leaving:
            if self._spans is not None:
                leaving.push_async_callback(self._world.run_blocking, self._spans.close)
            leaving.push_async_callback(self.inbox.close)
            leaving.push_async_callback(self._performer.close)
            opened = self._slots.open(self._world.network, self._invitation)
            await leaving.enter_async_context(opened)
            yield

    def _invitation(self, address: str) -> SlotInvitation:
        return invitation(self.settings.slot, address, self._world.secret)

    def begin(self) -> None:
        """Has the machine begin, once there is what the sources read."""
        start, inbox, world = self.start, self.inbox, self._world
        former, leadership = start.leadership.previous, start.leadership
        # Beside the start of the job, which waits for nothing that an earlier run has left.
        if former is not None and former.job != leadership.job:
            before = world.storage(start.graph, former.job)
            named = start.completed[-1].pointer if start.completed else None
            inbox.spawn(tell_of_former(former, before, named, world.run_blocking, world.log))
        elif former is not None and not start.damaged:
            # What is damaged may be mended while the job runs, so that all is left as it is.
            inbox.spawn(start.files.sweep(leadership.epoch, former.next_id, start.completed))
        inbox.watch(self._watch_leadership())
        inbox.watch(self._watch_records())
        inbox.watch(watch_event_time(self.view, world.clock, self._warnings))
        inbox.watch(watch_remarks(self.view, self._remarks))
        inbox.watch(watch_stops(self.view, world.log))
        if start.graph.staged:
            inbox.spawn(self._begin_staged())
        else:
            inbox.post(JobStarted(world.clock.wall_ms()))

    async def _begin_staged(self) -> None:
        try:
            await self._staging.write(self.start.completed, self.start.graph.topology)
        except TidegateError as error:
            self.inbox.post(StartFailed(error))
        else:
            self.inbox.post(JobStarted(self._world.clock.wall_ms()))

    async def _watch_leadership(self) -> None:
        await self.start.leadership.lost()
        self.inbox.post(SuspendRequested("another driver leads it now"))

    async def _watch_records(self) -> None:
        await self.start.leadership.deleted()
        self._world.log.warning(
            "records of the job were deleted while it runs, and perhaps its checkpoints too; the "
            "job continues, and checkpoints completed from now on count. Do not touch its folder",
            where=self.settings.checkpoints.directory,
        )

    async def conclude(self) -> TidegateError | None:
        """Waits for the end; the result is what the job has ended with.

        Raises the fault of our own that has ended it, if that was one.
        """
        await self.inbox.over.wait()
        failures = self.view().failures
        lacks_slots = bool(failures) and failures[0].kind == SlotsMissing.__name__
        await self._ending.conclude(self.inbox, await self._slots.hint() if lacks_slots else "")
        assert self.inbox.ended is not None, "a job that is concluded has ended"
        return self.inbox.ended.error

    def is_over_already(self) -> None:
        """The job has ended before this driver led it, and is not run again."""
        self._last_view = replace(self.view(), status=self.start.leadership.status)
        self.inbox.stop()

    async def conclude_again(self) -> TidegateError | None:
        """An earlier driver died over the job's end; the result is what that had ended with."""
        return (await self._ending.conclude_again()).error

    def close(self, error: TidegateError | None, runtime_ms: int) -> None:
        """Nothing is done any more: sums up what has run, and tells all who still wait."""
        if self._last_view is None:
            view = self._last_view = self.view()
            self.summary = summary_of(view, runtime_ms)
            self._remarks.tell(view)
            if skipped := view.counts.skipped:
                self._world.log.warning("rows that could not be read were skipped", rows=skipped)
        self.hosts.results.end(error)
        self.answers.end(error)

    # --- what others may see ---

    @property
    def id(self) -> JobId:
        return self.start.leadership.job

    @property
    def epoch(self) -> Epoch:
        return self.start.leadership.epoch

    @property
    def settings(self) -> JobSettings:
        return self.start.graph.settings

    def view(self) -> JobView:
        return self._last_view or self.inbox.machine.view(self._world.clock.monotonic_ms())

    async def threads(self, slot: SlotId) -> tuple[ThreadStack, ...]:
        """Stacks of all threads of a slot. Raises PeerLost if it does not tell them in time."""
        told = await self._slots.questions.ask(slot, TellThreads, timeout_ms=ANSWER_WITHIN_MS)
        assert isinstance(told, Threads), "the answer to this question"
        return told.stacks

    async def samples(self, slot: SlotId, vertex: VertexId) -> Samples:
        """Where the time of a vertex's subtasks in a slot goes. Raises PeerLost as `threads`."""
        told = await self._slots.questions.ask(
            slot, lambda number: TellSamples(number, vertex), timeout_ms=ANSWER_WITHIN_MS
        )
        assert isinstance(told, Samples), "the answer to this question"
        return told

    def results(self, name: str) -> ResultBuffer:
        return self.hosts.results.of(name)


def _job_master(world: DriverWorld, start: Start, checkpoints: CompletedCheckpoints) -> JobMaster:
    graph, job = start.graph, start.leadership.job
    settings = graph.settings
    registry = SharedStateRegistry()
    # Where the result at the end alone counts, there is nothing to go on from.
    if settings.slot.final_only:
        coordinator = NoCheckpoints(job, settings.checkpoints, checkpoints, registry)
    else:
        coordinator = CheckpointCoordinator(
            job,
            settings.checkpoints,
            graph.topology,
            checkpoints,
            registry,
            world.chance,
            facts={"job_name": graph.name, "versions": versions()},
        )
    return JobMaster(graph, job, start.leadership.epoch, coordinator, world.chance)
