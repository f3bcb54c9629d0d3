"""The driver of one job: leads it, feeds the job master's inbox, performs its commands.

Everything runs on one loop. Whatever blocks goes to a pool and comes back as an event; whatever
fails comes back as an event too. The driver reads the job's start before the job master exists, so
that the machine begins with all that it has to know.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Final, cast

from tidegate.api.job.client import CheckpointDone, JobExecutionResult
from tidegate.checkpoint.completed import CompletedCheckpoints
from tidegate.checkpoint.coordinator.absent import NoCheckpoints
from tidegate.checkpoint.coordinator.coordinator import CheckpointCoordinator
from tidegate.checkpoint.coordinator.events import Woke
from tidegate.checkpoint.registry import SharedStateRegistry
from tidegate.checkpoint.restore.fitting import check_hooks, fit, unclaimed
from tidegate.config.program_logs import logs_of_program
from tidegate.config.warnings import Warnings
from tidegate.driver.alarm import Alarm
from tidegate.driver.links import SlotLinks
from tidegate.driver.perform import Performer
from tidegate.driver.starting.restore import LATEST, StartReader
from tidegate.driver.starting.staging import Staging
from tidegate.driver.starting.wholeness import newest_whole
from tidegate.driver.telling.event_time import watch_event_time
from tidegate.driver.telling.fate import fate_of_checkpoints, fate_of_refused
from tidegate.driver.telling.former import tell_of_former
from tidegate.driver.telling.remarks import Remarks, watch_remarks
from tidegate.driver.telling.stops import watch_stops
from tidegate.driver.telling.summary import summary_of
from tidegate.driver.telling.traces import Tracing, trace_reporters
from tidegate.driver.user_code.enrichers import FailureEnrichers
from tidegate.driver.user_code.hooks import MasterHooks
from tidegate.driver.user_code.hosts import CoordinatorHosts
from tidegate.driver.user_code.listeners import StatusListeners
from tidegate.errors import (
    JobCanceled,
    JobFailed,
    JobSuspended,
    SlotsMissing,
    StorageFailed,
    TidegateError,
    UserCodeFailed,
)
from tidegate.ha.leadership import HaWorld, Leadership, lead
from tidegate.jobmaster.events import (
    CancelRequested,
    DriverHindered,
    JobStarted,
    SlotRequestFailed,
    StartFailed,
    SuspendRequested,
)
from tidegate.jobmaster.machine import JobMaster
from tidegate.model.control import JobStatus, Printed, SlotInvitation
from tidegate.model.descriptors import shortage
from tidegate.model.ids import CheckpointId, Epoch
from tidegate.model.versions import versions
from tidegate.pyflink.imports import is_installed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    import structlog

    from tidegate.api.job.client import JobSummary
    from tidegate.api.results import ResultBuffer
    from tidegate.checkpoint.completed import CompletedCheckpoint
    from tidegate.clock import Clock
    from tidegate.driver.provider import SlotProvider
    from tidegate.graph.job_graph import JobGraph
    from tidegate.ha.chain import HaStore
    from tidegate.jobmaster.commands import JobCommand
    from tidegate.jobmaster.events import JobEvent
    from tidegate.jobmaster.view import JobView
    from tidegate.model.chance import Chance
    from tidegate.model.ids import JobId
    from tidegate.model.settings import JobSettings
    from tidegate.model.topology import Topology
    from tidegate.storage.checkpoints import CheckpointStorage
    from tidegate.transport.wire import Network

SETTLE_TIMEOUT_S: Final = 30.0
"""How long a job that is over waits for its files to be in order."""


@dataclass(slots=True)
class DriverWorld:
    """Everything that a driver takes from outside, so that a simulation can own every surprise.

    chain: opens the record chain of the job. storage: opens the job's checkpoint storage.
    secret: what slots prove themselves with. show: prints what functions have printed in a slot.
    """

    network: Network
    clock: Clock
    chance: Chance
    run_blocking: Callable[[Callable[[], object]], Awaitable[object]]
    chain: Callable[[JobGraph], Awaitable[HaStore]]
    storage: Callable[[JobGraph, JobId], CheckpointStorage]
    log: structlog.typing.FilteringBoundLogger
    secret: bytes
    show: Callable[[Printed], None]


class Driver:
    """Runs one job to its end; `run` is its life."""

    def __init__(self, graph: JobGraph, world: DriverWorld, provider: SlotProvider) -> None:
        self.result: Future[JobExecutionResult] = Future()
        self.accepted: Future[JobId] = Future()
        self.summary: JobSummary | None = None
        self._warnings = Warnings(world.log, graph.settings.silenced)
        self._remarks = Remarks(self._warnings)
        self._graph = graph
        self._world = world
        self._provider = provider
        self._machine: JobMaster | None = None
        self._performer: Performer | None = None
        self._retained: CompletedCheckpoints | None = None
        self._hosts: CoordinatorHosts | None = None
        self._staging: Staging | None = None
        self._leadership: Leadership | None = None
        self._inbox: deque[JobEvent] = deque()
        self._handling = False
        self._alarm = Alarm(world.clock, lambda: self.post(Woke()), world.log)
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._settled = asyncio.Event()
        self._requests = count(1)
        self._waiting: dict[int, Future[CheckpointDone]] = {}
        self._rescaling: dict[int, Future[None]] = {}
        self._last_view: JobView | None = None
        self._end: tuple[JobStatus, TidegateError | None] | None = None
        self._crash: Exception | None = None
        self._tracing = Tracing(
            trace_reporters(graph.settings), world.run_blocking, self.spawn, world.log
        )

    # --- life ---

    async def run(self) -> None:
        """Run the job to its end; how it ended is in ``result``. Never raises."""
        began_ms = self._world.clock.monotonic_ms()
        error: TidegateError | None = None
        try:
            await self._run()
        except TidegateError as failure:
            error = failure
        except asyncio.CancelledError:
            error = JobCanceled("the driver was ended from outside")
        except Exception as failure:
            what = f"the driver failed: {type(failure).__name__}: {failure}"
            error = shortage(failure) or UserCodeFailed(what)
            error.__cause__ = failure
        if error is None and self._end is not None:
            error = self._end[1]
        self._finish(error, self._world.clock.monotonic_ms() - began_ms)

    async def _run(self) -> None:
        start = StartReader(
            self._graph.settings,
            lambda job: self._world.storage(self._graph, job),
            self._world.run_blocking,
            self._new_id,
            self._world.log,
        )
        leadership = self._leadership = await self._lead(start)
        async with contextlib.AsyncExitStack() as leaving:
            leaving.push_async_callback(leadership.close)
            leaving.push_async_callback(self._end_tasks)
            storage = self._world.storage(self._graph, leadership.job)
            if self._graph.settings.checkpoints.periodic:
                await self._blocking(storage.initialize_base_locations)
            async with leadership.starting():
                completed = await start.read(leadership)
                topology = await self._fitted(start, leadership.job, completed)
            machine = self._make_machine(leadership, topology, completed)
            loop = asyncio.get_running_loop()
            staging = self._staging = Staging(self._graph, self._world, leadership)
            self._hosts = self._make_hosts(staging, loop)
            if leadership.status.is_terminal:
                await self._already_over(machine, storage, leadership)
                return
            self._machine = machine
            links = SlotLinks(self.post, self._hosts.event, self._world.show, self._world.log)
            hooks = MasterHooks(self._graph.hooks, self._world.run_blocking, self._world.log)
            leaving.push_async_callback(hooks.close)
            calls = (hooks, *self._make_listeners(leadership))
            self._performer = Performer(
                self, self._world, self._provider, storage, leadership, self._hosts, links, *calls
            )
            listener = await self._world.network.listen(links.accept)
            leaving.push_async_callback(self._provider.close)
            leaving.callback(links.close)
            leaving.push_async_callback(listener.close)
            self._provider.start(
                self._invitation(listener.address),
                lambda request, error, final: _from_thread(
                    loop, lambda: self._request_failed(links, request, error, final)
                ),
                lambda who: _from_thread(loop, lambda: self.post(CancelRequested(who))),
            )
            self.accepted.set_result(leadership.job)
            former = leadership.previous
            if former is not None and former.job != leadership.job:
                before = self._world.storage(self._graph, former.job)
                blocking, log = self._world.run_blocking, self._world.log
                self.spawn(tell_of_former(former, before, blocking, log))
            elif former is not None and not start.damaged:
                self.spawn(self._sweep(storage, leadership.epoch, former.next_id, completed))
            self._watch(leadership)
            self._begin(staging, completed, topology)
            await self._over.wait()
            staging.stop()
            await self._conclude(storage, leadership)

    def _watch(self, leadership: Leadership) -> None:
        for watching in (
            self._watch_leadership(leadership),
            self._watch_records(leadership),
            watch_event_time(self.view, self._world.clock, self._warnings),
            watch_remarks(self.view, self._remarks),
            watch_stops(self.view, self._world.log),
        ):
            self.spawn(watching, name=_WATCH)

    async def _conclude(self, storage: CheckpointStorage, leadership: Leadership) -> None:
        if self._crash is None:
            await self._settle()
            await self._sweep_at_the_end(storage, leadership)
        if self._crash is not None:
            raise self._crash
        await self._tell_fate(storage, leadership)
        if leadership.status is not JobStatus.RUNNING:
            await leadership.conclude()

    async def _tell_fate(self, storage: CheckpointStorage, leadership: Leadership) -> None:
        """Adds the fate of the job's checkpoints to the report of its end."""
        if self._end is None or self._retained is None:
            return
        (status, error), settings = self._end, self._graph.settings.checkpoints
        retained = self._retained
        if isinstance(error, JobSuspended) and error.refused is not None:
            whole = await self._blocking(lambda: newest_whole(storage.files, retained.retained))
            fate = fate_of_refused(
                retained, error.refused, cast("CompletedCheckpoint | None", whole)
            )
        else:
            fate = fate_of_checkpoints(status, retained, settings, deposed=leadership.is_lost)
        if error is not None and self._lacks_slots:
            error.remedy = f"{self._provider.hint}. {error.remedy}".lstrip(". ")
        if error is None:
            self._world.log.info("the job's checkpoints at its end", fate=fate)
        else:
            error.remedy = " ".join(filter(None, (error.remedy, fate)))

    @property
    def _lacks_slots(self) -> bool:
        failures = self.view().failures
        return bool(failures) and failures[0].kind == SlotsMissing.__name__

    def _make_hosts(self, staging: Staging, loop: asyncio.AbstractEventLoop) -> CoordinatorHosts:
        blocking, places = self._world.run_blocking, staging.places
        return CoordinatorHosts(self._graph, self.post, blocking, self.spawn, loop, places)

    def _begin(
        self, staging: Staging, completed: Sequence[CompletedCheckpoint], topology: Topology
    ) -> None:
        if self._graph.staged:
            self.spawn(self._begin_staged(staging, completed, topology))
        else:
            self.post(JobStarted(self._world.clock.wall_ms()))

    async def _begin_staged(
        self, staging: Staging, completed: Sequence[CompletedCheckpoint], topology: Topology
    ) -> None:
        try:
            await staging.write(completed, topology)
        except TidegateError as error:
            self.post(StartFailed(error))
        else:
            self.post(JobStarted(self._world.clock.wall_ms()))

    async def _already_over(
        self, machine: JobMaster, storage: CheckpointStorage, leadership: Leadership
    ) -> None:
        """The job has ended before, and its driver died over it: tidy up, say how it ended."""
        status = leadership.status
        self._world.log.warning(
            "the job has already ended and does not run again; start it once more for a new run",
            status=status.value,
        )
        self._last_view = replace(machine.view(self._world.clock.monotonic_ms()), status=status)
        self.accepted.set_result(leadership.job)
        error: TidegateError | None = None
        if status is JobStatus.FAILED:
            error = JobFailed("the job has failed before; the log of its driver says why")
        elif status is JobStatus.CANCELED:
            error = JobCanceled("the job was canceled before")
        self._end = (status, error)
        await self._sweep_at_the_end(storage, leadership)
        await leadership.conclude()

    async def _end_tasks(self) -> None:
        self._alarm.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _settle(self) -> None:
        """Waits, within a limit, for work that was requested at the end."""
        try:
            async with asyncio.timeout(SETTLE_TIMEOUT_S):
                await self._settled.wait()
                while pending := [t for t in self._tasks if t.get_name() != _WATCH]:
                    await asyncio.wait(pending)
        except TimeoutError:
            self._world.log.warning(
                "files of the ended job could not be cleaned up in time",
                limit_s=SETTLE_TIMEOUT_S,
            )

    def _finish(self, error: TidegateError | None, runtime_ms: int) -> None:
        if self._machine is not None:
            view = self._last_view = self._machine.view(self._world.clock.monotonic_ms())
            self.summary = summary_of(view, runtime_ms)
            self._remarks.tell(view)
            if skipped := view.counts.skipped:
                self._world.log.warning("rows that could not be read were skipped", rows=skipped)
        if self._hosts is not None:
            self._hosts.end_results(error)
        for waiting in (*self._waiting.values(), *self._rescaling.values()):
            if not waiting.done():
                waiting.set_exception(error or JobCanceled("the job has ended"))
        if error is not None:
            if not self.accepted.done():
                self.accepted.set_exception(error)
            self.result.set_exception(error)
        else:
            self.result.set_result(JobExecutionResult(self.job, runtime_ms, self.summary))

    # --- the start ---

    async def _lead(self, start: StartReader) -> Leadership:
        world = self._world
        return await lead(
            HaWorld(
                store=await world.chain(self._graph),
                clock=world.clock,
                chance=world.chance,
                pause=lambda duration_ms: asyncio.sleep(duration_ms / 1000),
                beat_ms=self._graph.settings.leader_beat_ms,
                lease_ms=self._graph.settings.leader_lease_ms,
            ),
            self._graph.name,
            resume=self._graph.settings.restore.path == LATEST,
            recover=self._graph.settings.zookeeper is not None,
            start=start.named if start.names_snapshot else None,
        )

    async def _sweep(
        self,
        storage: CheckpointStorage,
        epoch: Epoch,
        next_id: CheckpointId,
        completed: Sequence[CompletedCheckpoint],
    ) -> None:
        """Delete what earlier runs left: a driver that died, slots that were given up."""
        kept = {one.checkpoint for one in completed}
        used = {path for one in completed for path in one.paths()}
        try:
            await self._blocking(lambda: storage.sweep(epoch, next_id, kept=kept, used=used))
        except StorageFailed as error:
            self._world.log.warning(
                "files that an earlier run has left could not be deleted", error=str(error)
            )

    async def _sweep_at_the_end(self, storage: CheckpointStorage, leadership: Leadership) -> None:
        """Once nobody goes on with the job, only what its kept checkpoints name is of use."""
        assert self._retained is not None, "the job is over"
        retained = self._retained.retained
        pointers = {pointer.checkpoint for pointer in leadership.completed}
        over = self._end is not None and self._end[0].is_terminal and not leadership.is_lost
        # A snapshot that the job started from is kept, though no pointer of this job names it.
        if over and pointers <= {one.checkpoint for one in retained}:
            none_yet = CheckpointId(leadership.next_id)
            await self._sweep(storage, Epoch(leadership.epoch + 1), none_yet, retained)
            in_memory = self._graph.settings.checkpoints.directory is None
            if self._staging is not None and (in_memory or not retained):
                await self._staging.remove()

    async def _fitted(
        self, start: StartReader, job: JobId, completed: list[CompletedCheckpoint]
    ) -> Topology:
        if not completed:
            return self._graph.topology
        newest, topology = completed[-1].metadata, self._graph.topology
        allowed = self._graph.settings.restore.allow_non_restored
        lost = unclaimed(newest, topology)
        names = {} if allowed else await start.keyed_names(job, lost)
        fitted = fit(newest, topology, allow_unclaimed_state=allowed, keyed_names=names)
        if not allowed:
            check_hooks(newest, {hook.get_identifier() for hook in self._graph.hooks})
        for state in lost:
            self._world.log.info(
                "state of an operator that the program lacks is skipped",
                operator=state.operator_id.hex(),
                name=state.name,
                size_bytes=state.state_size,
            )
        return fitted

    def _new_id(self) -> str:
        return f"{self._world.chance.bits64():016x}{self._world.chance.bits64():016x}"

    def _make_machine(
        self, leadership: Leadership, topology: Topology, completed: list[CompletedCheckpoint]
    ) -> JobMaster:
        graph, chance = self._graph, self._world.chance
        settings = graph.settings
        self._retained = CompletedCheckpoints(settings.checkpoints.retained_max, completed)
        registry = SharedStateRegistry()
        if settings.slot.final_only:
            coordinator = NoCheckpoints(
                leadership.job, settings.checkpoints, self._retained, registry
            )
        else:
            coordinator = CheckpointCoordinator(
                leadership.job,
                settings.checkpoints,
                topology,
                self._retained,
                registry,
                chance,
                facts={"job_name": graph.name, "versions": versions()},
            )
        return JobMaster(
            job=leadership.job,
            name=graph.name,
            epoch=leadership.epoch,
            topology=topology,
            plans=graph.plans,
            settings=settings,
            coordinator=coordinator,
            chance=chance,
            hooks=bool(graph.hooks),
        )

    def _make_listeners(self, leadership: Leadership) -> tuple[FailureEnrichers, StatusListeners]:
        graph, job = self._graph, (leadership.job, self._graph.name)
        blocking, log = self._world.run_blocking, self._world.log
        return (
            FailureEnrichers(graph.enrichers, job, blocking, log),
            StatusListeners(graph.listeners, job, blocking, self.spawn, log),
        )

    def _invitation(self, address: str) -> SlotInvitation:
        return SlotInvitation(
            driver=address,
            secret=self._world.secret,
            settings=self._graph.settings.slot,
            pyflink=is_installed(),
            logs=logs_of_program(),
            argv=tuple(sys.argv),
        )

    async def _watch_leadership(self, leadership: Leadership) -> None:
        await leadership.lost()
        self.post(SuspendRequested("another driver leads it now"))

    async def _watch_records(self, leadership: Leadership) -> None:
        await leadership.deleted()
        self._world.log.warning(
            "records of the job were deleted while it runs, and perhaps its checkpoints too; the "
            "job continues, and checkpoints completed from now on count. Do not touch its folder",
            where=self._graph.settings.checkpoints.directory,
        )

    # --- the inbox ---

    def post(self, event: JobEvent) -> None:
        """Put an event into the inbox; it is handled at once, or after the one being handled."""
        self._inbox.append(event)
        if self._handling or self._machine is None or self._crash is not None:
            return
        self._handling = True
        try:
            while self._inbox:
                self._handle(self._inbox.popleft())
        except Exception as error:
            self._crashed(error)
        finally:
            self._handling = False
        self._arm()

    def _hindered(self, error: Exception) -> None:
        """Something could not be done: for want of descriptors, or by a fault of our own."""
        if (short := shortage(error)) is None:
            raise error
        self._world.log.warning("the driver lacks descriptors", error=str(short), exc_info=error)
        self.post(DriverHindered(short))

    def _crashed(self, error: Exception) -> None:
        """A fault of our own: the job ends at once, for nothing can be trusted any more."""
        self._inbox.clear()
        self._crash = self._crash or error
        self._over.set()
        self._settled.set()

    def _handle(self, event: JobEvent) -> None:
        machine, performer = self._machine, self._performer
        assert machine is not None and performer is not None, "made before the first event"
        commands: list[JobCommand] = machine.handle(event, self._world.clock.monotonic_ms())
        for command in commands:
            try:
                performer.perform(command)
            except Exception as error:
                self._hindered(error)
        self._tracing.follow(commands, self.view)
        if machine.settled:
            self._settled.set()

    def _arm(self) -> None:
        ended = self._crash is not None or (self._over.is_set() and self._settled.is_set())
        machine = None if ended else self._machine
        self._alarm.set(None if machine is None else machine.wake_at_ms)

    def _request_failed(
        self, links: SlotLinks, request: str, error: TidegateError, final: bool
    ) -> None:
        """A slot's process has ended; news only where the slot had not offered itself."""
        if not links.has_offered(request):
            self.post(SlotRequestFailed(error, final))

    # --- for the performer and the client ---

    @property
    def name(self) -> str:
        return self._graph.name

    @property
    def job(self) -> JobId:
        return self.accepted.result(timeout=0)

    @property
    def epoch(self) -> Epoch:
        assert self._leadership is not None, "a job that was accepted is led"
        return self._leadership.epoch

    @property
    def settings(self) -> JobSettings:
        return self._graph.settings

    def spawn(self, work: Coroutine[object, object, None], *, name: str | None = None) -> None:
        """Run something beside the inbox; what it raises is a fault of our own."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._spawned_ended)

    def _spawned_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            try:
                self._hindered(error)
            except Exception as fault:
                self._crashed(fault)

    def over(self, status: JobStatus, error: TidegateError | None) -> None:
        self._end = (status, error)
        self._over.set()

    def expect_checkpoint(self, done: Future[CheckpointDone]) -> int:
        """A number for a request whose answer belongs to this future."""
        request = next(self._requests)
        self._waiting[request] = done
        return request

    def checkpoint_done(
        self, request: int, checkpoint: int | None, pointer: str | None, error: TidegateError | None
    ) -> None:
        """A request was answered."""
        done = self._waiting.pop(request, None)
        if done is None or done.done():
            return
        if error is not None or checkpoint is None:
            done.set_exception(error or JobCanceled("the job has ended"))
        else:
            done.set_result(CheckpointDone(checkpoint, pointer or ""))

    def expect_rescale(self, done: Future[None]) -> int:
        """A number for a rescale whose end belongs to this future."""
        request = next(self._requests)
        self._rescaling[request] = done
        return request

    def rescale_done(self, request: int, error: TidegateError | None) -> None:
        done = self._rescaling.pop(request)
        if done.done():
            return  # whoever asked has cancelled the wait
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(None)

    def view(self) -> JobView:
        """Current state of the job."""
        if self._machine is not None and self._last_view is None:
            return self._machine.view(self._world.clock.monotonic_ms())
        assert self._last_view is not None, "a job that was accepted has a view"
        return self._last_view

    def results(self, name: str) -> ResultBuffer:
        """The buffer of a collect sink."""
        assert self._hosts is not None, "a job that was accepted has hosts"
        return self._hosts.results(name)

    async def _blocking(self, call: Callable[[], object]) -> object:
        return await self._world.run_blocking(call)


_WATCH = "tidegate-leadership"


def _from_thread(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Calls a function on the loop; does nothing once the loop has ended."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        return
