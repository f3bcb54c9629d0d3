"""The slot: one loop that hosts one subtask of every vertex, under one driver.

It dials the driver, offers itself, and then does what it is told. Turns of the subtasks, slices of
snapshots and whatever the network brings share the loop; the loop yields by time, not by batch.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import pickle
from collections import deque
from typing import TYPE_CHECKING, cast

from tidegate.errors import PeerLost, TidegateError, UserCodeFailed
from tidegate.model.control import (
    Accepted,
    Cancel,
    CheckpointAborted,
    CheckpointComplete,
    CheckpointDeclined,
    Deploy,
    ExecutionState,
    HasRead,
    Offer,
    Pulse,
    ReadBack,
    Refused,
    Release,
    SlotLeaving,
    Start,
    SubtaskChanged,
    ToCoordinator,
    ToDriver,
    ToOperator,
    ToSlot,
    TriggerCheckpoint,
)
from tidegate.model.elements import Barrier
from tidegate.model.failure_reason import FailureReason
from tidegate.slot.calls import CallInterrupted, Calls
from tidegate.slot.channel_state import ChannelStateStorage
from tidegate.slot.channels.links import Links
from tidegate.slot.courtesy import Courtesy
from tidegate.slot.failures import as_ours
from tidegate.slot.local_state import LocalState
from tidegate.slot.snapshots import Snapshots
from tidegate.slot.subtask.blocking import BlockingCalls
from tidegate.slot.subtask.context import SubtaskSurroundings
from tidegate.slot.subtask.hosting import Hosted, SubtaskBuilder
from tidegate.slot.subtask.ports import SubtaskPorts
from tidegate.slot.subtask.subtask import Subtask
from tidegate.slot.threads import DaemonThreads
from tidegate.storage.checkpoints import CheckpointStorageWorkerView

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    import structlog

    from tidegate.clock import Clock
    from tidegate.model.chance import Chance
    from tidegate.model.elements import OperatorEvent
    from tidegate.model.ids import CheckpointId, ExecutionId, JobId, OperatorId, SlotId
    from tidegate.model.settings import CheckpointSettings
    from tidegate.slot.process.printing import Printing
    from tidegate.slot.subtask.snapshot import SubtaskSnapshot
    from tidegate.storage.checkpoints import CheckpointStorage
    from tidegate.transport.wire import Network, Wire

COLLECT_EVERY_MS = 60_000
"""Garbage is collected at the latest after this, when the slot is never idle."""

LINK_TIMEOUT_S = 10.0

COURTESY_S = 0.001
"""How soon the loop looks again whether slow calls have to wait for a checkpoint any longer."""


class World:
    """What a slot takes from outside, so that a simulation can own every source of surprise.

    run_blocking: runs a call on the slot's pool. pause: lets the loop do other things; time passes
    in it. storage: opens the job's checkpoint storage. owns_process: whether the slot may decide
    when the process collects garbage. printing: what functions print, for the driver.
    """

    def __init__(
        self,
        *,
        network: Network,
        clock: Clock,
        chance: Chance,
        run_blocking: Callable[[Callable[[], object]], Awaitable[object]],
        storage: Callable[[JobId, CheckpointSettings], CheckpointStorage],
        log: structlog.typing.FilteringBoundLogger,
        pause: Callable[[], Awaitable[None]],
        owns_process: bool,
        printing: Printing,
    ) -> None:
        self.network = network
        self.clock = clock
        self.chance = chance
        self.run_blocking = run_blocking
        self.storage = storage
        self.log = log
        self.pause = pause
        self.owns_process = owns_process
        self.printing = printing


class Slot:
    """Hosts subtasks until it is released, refused, or has lost its driver.

    pulsed: called with each `Pulse`'s content by whoever beats; see `slot.process.pulse`.
    """

    def __init__(self, slot: SlotId, world: World, *, pid: int, host: str) -> None:
        self.id = slot
        self._world = world
        self._pid = pid
        self._host = host
        self._links = Links(
            slot,
            world.network,
            lost=self._peer_lost,
            failed=self._fail,
            timeout_s=LINK_TIMEOUT_S,
        )
        self._driver: Wire | None = None
        self._accepted: Accepted | None = None
        self._storage: CheckpointStorageWorkerView | None = None
        self._hosted: dict[ExecutionId, Hosted] = {}
        self._tasks: dict[ExecutionId, set[asyncio.Task[None]]] = {}
        self._ready: deque[Subtask] = deque()
        self._can_turn = False
        self._listed: set[ExecutionId] = set()
        self._writing: set[asyncio.Task[None]] = set()
        self._channel_state = ChannelStateStorage(
            lambda: self._storage, world.run_blocking, world.chance.bits64, self._beside
        )
        self._local = LocalState(world.chance.bits64, world.run_blocking, self._beside)
        self._wake = asyncio.Event()
        self._snapshots = Snapshots(world, self._send, self._beside, self._wake.set)
        self._courtesy = Courtesy(self._is_open)
        self._cut: dict[ExecutionId, CheckpointId] = {}
        self._ended: str | None = None
        self._error: TidegateError | None = None
        self.calls = Calls()

    # --- life ---

    async def run(self, driver: str, *, versions: Mapping[str, str], request: str = "") -> str:
        """Serve the driver at that address to the end; the result says why it ended.

        Raises PeerLost where the driver cannot be reached.
        """
        listener = await self._world.network.listen(self._links.accept)
        try:
            self._driver = await self._world.network.connect(driver, self.id, _DriverHandler(self))
            self._send(Offer(self.id, listener.address, self._pid, self._host, versions, request))
            await self._work()
        except Exception as error:
            self.end("the slot failed", as_ours(error, f"slot {self.id}"))
            raise
        finally:
            await self._close()
            await listener.close()
        return self._ended or ""

    @property
    def pulse(self) -> Pulse:
        """How the slot is; read by another thread, so nothing here may be changed."""
        call = self.calls.current
        age = 0 if call is None else self._world.clock.monotonic_ms() - call.began_ms
        figures = {execution: hosted.figures for execution, hosted in list(self._hosted.items())}
        calling = None if call is None else call.execution
        return Pulse(self.id, batch_age_ms=age, figures=figures, calling=calling)

    def send_pulse(self) -> None:
        """Beat over the control link; for slots that have no thread of their own to beat."""
        self._send(self.pulse)

    async def _close(self) -> None:
        # Before the ends of the subtasks, so that the driver hears the reason first.
        self._send(SlotLeaving(self.id, self._error))
        for execution in list(self._hosted):
            self._end(execution, ExecutionState.CANCELED)
        for tasks in self._tasks.values():
            for task in tasks:
                task.cancel()
        pending = [task for tasks in self._tasks.values() for task in tasks]
        await asyncio.gather(*pending, return_exceptions=True)
        while self._writing:  # the end of one write may begin another
            await asyncio.gather(*self._writing, return_exceptions=True)
        await self._local.close()
        self._links.close()
        if self._driver is not None:
            self._driver.close()

    # --- the loop ---

    async def _work(self) -> None:
        clock, pause = self._world.clock, self._world.pause
        collected_ms = clock.monotonic_ms()
        collecting = self._world.owns_process and gc.isenabled()
        if collecting:
            gc.disable()
        try:
            while self._ended is None:
                self._work_for_a_while()
                self._encode_for_a_while()
                now = clock.monotonic_ms()
                if collecting and now - collected_ms > COLLECT_EVERY_MS:
                    gc.collect()
                    collected_ms = now
                if self._can_turn or self._snapshots.can_encode:
                    await pause()
                elif self._ready:
                    await self._rest_shortly()
                else:
                    self._each(Subtask.flush)
                    await self._rest()
        finally:
            if collecting:
                gc.enable()

    def _work_for_a_while(self) -> None:
        """Turns of the ready subtasks, until none is ready or it is time to yield."""
        clock, ready = self._world.clock, self._ready
        settings = self._accepted.settings.slot if self._accepted else None
        if settings is None:
            return
        until = clock.precise_s() + settings.yield_ms / 1000
        waiting: list[Subtask] = []
        while ready:
            subtask = ready.popleft()
            self._listed.discard(subtask.execution)
            if self._waits(subtask):
                waiting.append(subtask)
                continue
            if subtask.runnable:
                self._turn(subtask)
                if subtask.runnable:
                    self._list(subtask)
            if clock.precise_s() >= until:
                break
        self._can_turn = bool(ready)
        for subtask in waiting:
            self._list(subtask)
        if waiting and not self._can_turn:
            self._wake.clear()  # which only the waiting ones have set
        if settings.buffer_timeout_ms >= 0:
            flush_before = clock.monotonic_ms() - settings.buffer_timeout_ms
            self._each(lambda subtask: subtask.flush_older_than(flush_before))

    def _waits(self, subtask: Subtask) -> bool:
        now_s = self._world.clock.precise_s()
        return self._courtesy.waits(subtask.execution, now_s) and not subtask.is_urgent

    def _is_open(self, checkpoint: CheckpointId) -> bool:
        """Whether a subtask of the slot has still to be cut or to be acknowledged."""
        return any(
            hosted.subtask.state is ExecutionState.RUNNING
            and (
                self._cut.get(execution, 0) < checkpoint
                or self._snapshots.under_way(execution, checkpoint)
            )
            for execution, hosted in self._hosted.items()
        )

    def _turn(self, subtask: Subtask) -> None:
        clock, is_urgent = self._world.clock, subtask.is_urgent
        began_s = clock.precise_s()
        self._call(subtask.execution, subtask.turn)
        if not is_urgent:
            self._courtesy.called(subtask.execution, clock.precise_s() - began_s)

    def _call(self, execution: ExecutionId, call: Callable[[], None]) -> None:
        """Call a subtask's code; what it raises is its failure, or the end asked for."""
        outer = self.calls.begin(execution, self._world.clock.monotonic_ms())
        try:
            try:
                call()
            finally:
                self.calls.end(outer)  # what follows is our own, and not to be broken off
        except CallInterrupted:
            self._end(execution, ExecutionState.CANCELED)
        except Exception as error:
            self._fail(execution, error)

    def _encode_for_a_while(self) -> None:
        """Slices of snapshots: long ones while the input waits anyway, else short ones."""
        if self._snapshots.can_encode and self._accepted is not None:
            settings = self._accepted.settings.slot
            self._snapshots.encode(
                settings.slice_busy_ms if self._ready else settings.slice_idle_ms
            )

    def _each(self, act: Callable[[Subtask], None]) -> None:
        """Act on every subtask; what is raised is that subtask's failure."""
        for execution in list(self._hosted):
            self._with(execution, act)

    async def _rest(self) -> None:
        """Nothing to do: wait for the network, a timer or the pool."""
        if self._ready or self._ended is not None:
            return
        self._wake.clear()
        await self._wake.wait()

    async def _rest_shortly(self) -> None:
        """Slow calls wait for a checkpoint: let it go on."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(COURTESY_S):
                await self._wake.wait()

    def _list(self, subtask: Subtask) -> None:
        if subtask.execution not in self._listed:
            self._listed.add(subtask.execution)
            self._ready.append(subtask)
        self._wake.set()

    def end(self, reason: str, error: TidegateError | None = None) -> None:
        """Stop serving."""
        if self._ended is None:
            self._ended = reason
            self._error = error
        self._wake.set()

    # --- the driver's words ---

    def message(self, message: ToSlot) -> None:
        """Do what the driver says."""
        self._local.heard(message)
        match message:
            case Accepted():
                self._accepted = message
                storage = self._world.storage(message.job, message.settings.checkpoints)
                self._storage = CheckpointStorageWorkerView(storage)
                self._local.accepted(message.job, self.id, message.settings.slot.state_files)
            case Refused(reason):
                self.end(f"refused: {reason}")
            case Release(reason):
                self.end(reason or "released")
            case Deploy():
                self._task(message.execution, self._deploy(message))
            case Start(execution):
                self._with(execution, Subtask.start)
            case Cancel(execution):
                self._cancel(execution)
            case TriggerCheckpoint(execution, checkpoint, triggered_ms, options):
                self._trigger(execution, Barrier(checkpoint, triggered_ms, options))
            case CheckpointComplete(execution, checkpoint, subsumed):
                self._with(execution, lambda subtask: subtask.complete(checkpoint, subsumed))
            case CheckpointAborted(execution, checkpoint, completed):
                self._courtesy.given_up(checkpoint)
                self._with(execution, lambda subtask: subtask.abort(checkpoint, completed))
            case ToOperator(execution, operator, event):
                self._with(execution, lambda subtask: subtask.event(operator, event))
            case ReadBack():
                self._beside(self._read_back(message))

    async def _read_back(self, asked: ReadBack) -> None:
        """See whether this process, too, can read a savepoint."""
        assert self._storage is not None, "a slot is accepted before it is asked"
        storage, error = self._storage.storage, None
        try:
            await self._world.run_blocking(
                lambda: storage.files.check_snapshot(asked.pointer, asked.metadata, asked.files)
            )
        except Exception as failure:
            error = as_ours(failure, f"slot {self.id}")
        self._send(HasRead(asked.number, self.id, error))

    def _with(self, execution: ExecutionId, act: Callable[[Subtask], None]) -> None:
        """Act on a subtask that is here and alive; what is raised is its failure."""
        hosted = self._hosted.get(execution)
        if hosted is None or hosted.subtask.state.is_terminal:
            return
        self._call(execution, lambda: act(hosted.subtask))

    def _trigger(self, execution: ExecutionId, barrier: Barrier) -> None:
        hosted = self._hosted.get(execution)
        if hosted is None or hosted.subtask.state is not ExecutionState.RUNNING:
            reason = (
                FailureReason.TASK_CHECKPOINT_FAILURE
                if hosted is None
                else FailureReason.CHECKPOINT_DECLINED_TASK_NOT_READY
            )
            self._send(CheckpointDeclined(execution, barrier.checkpoint, reason))
            return
        hosted.subtask.trigger(barrier)

    def _send(self, message: ToDriver) -> None:
        if self._driver is not None:
            self.send_printed()  # ahead of the subtask's end, behind which nobody listens
            self._driver.send([pickle.dumps(message, protocol=5)])

    def send_printed(self) -> None:
        """Let the driver have what functions have printed."""
        if self._driver is not None:
            for printed in self._world.printing.take():
                self._driver.send([pickle.dumps(printed, protocol=5)])

    # --- subtasks ---

    async def _deploy(self, deploy: Deploy) -> None:
        execution = deploy.execution
        began = self._world.clock.monotonic_ms()
        try:
            hosted = self._build(deploy)
            self._hosted[execution] = hosted
            await self._links.ensure(deploy.addresses.keys(), deploy.addresses)
            await hosted.surroundings.blocking.run(hosted.restore)
        except Exception as error:
            self._fail(execution, error)
            return
        self._call(execution, hosted.open)
        if not hosted.subtask.state.is_terminal:
            took = self._world.clock.monotonic_ms() - began
            self._send(SubtaskChanged(execution, ExecutionState.INITIALIZING, restore_ms=took))

    def _build(self, deploy: Deploy) -> Hosted:
        accepted, view = self._accepted, self._storage
        assert accepted is not None and view is not None, "a slot is accepted before it has work"
        execution, world = deploy.execution, self._world
        sharing = accepted.settings.checkpoints.subtasks_a_channel_state_file
        channel_state = self._channel_state.writer(execution, sharing)
        builder = SubtaskBuilder(self._links, world, channel_state, view.storage, self._local)
        ports = SubtaskPorts(
            ready=lambda: self._list_execution(execution),
            changed=lambda state, error: self._changed(execution, state, error),
            decline=self._send,
            snapshot=lambda snapshot: self._take(execution, snapshot),
            aborted=lambda checkpoint: self._snapshots.stop(execution, checkpoint),
            busy=lambda: len(self._tasks.get(execution, ())),
            at=lambda at_ms, act: self._call_at(execution, at_ms, lambda _: act()),
        )
        surroundings = SubtaskSurroundings(
            job=accepted.job,
            execution=execution,
            vertex=deploy.topology.vertex(execution.subtask.vertex),
            settings=accepted.settings.slot,
            checkpointing=accepted.settings.checkpoints.periodic,
            restored=deploy.restored,
            clock=world.clock,
            parameters=accepted.settings.parameters,
            blocking=BlockingCalls(world.run_blocking),
            threads=DaemonThreads,
            start=lambda coroutine: self._start(execution, coroutine),
            wake=lambda: self._with(execution, Subtask.wake),
            wake_at=lambda at_ms: self._call_at(execution, at_ms, Subtask.wake),
            takes_input=lambda: self._hosted[execution].subtask.takes_input,
            skipped=lambda rows: self._skipped(execution, rows),
            to_coordinator=lambda operator, event: self._to_coordinator(execution, operator, event),
        )
        return builder.build(
            deploy, accepted.settings, surroundings, ports, self._waiter(execution)
        )

    def _list_execution(self, execution: ExecutionId) -> None:
        hosted = self._hosted.get(execution)
        if hosted is not None:
            self._list(hosted.subtask)

    def _changed(
        self, execution: ExecutionId, state: ExecutionState, error: TidegateError | None
    ) -> None:
        hosted = self._hosted.get(execution)
        figures = hosted.figures if hosted is not None and state.is_terminal else None
        if state.is_terminal:
            self._forget(execution)
        self._send(SubtaskChanged(execution, state, error, figures=figures))

    def _cancel(self, execution: ExecutionId) -> None:
        if execution in self._hosted:
            self._end(execution, ExecutionState.CANCELED)
        else:
            for task in self._tasks.get(execution, ()):
                task.cancel()  # its deployment has not begun yet
            self.calls.closed(execution)
            self._send(SubtaskChanged(execution, ExecutionState.CANCELED))

    def _end(
        self, execution: ExecutionId, state: ExecutionState, error: TidegateError | None = None
    ) -> None:
        hosted = self._hosted.get(execution)
        if hosted is None:
            if state is ExecutionState.FAILED:
                self._send(SubtaskChanged(execution, state, error))
            return
        hosted.subtask.end(state, error)

    def _forget(self, execution: ExecutionId) -> None:
        """A subtask is over: close its operators, drop its channels, stop what it started."""
        hosted = self._hosted.pop(execution, None)
        if hosted is None:
            return
        self.calls.closing(execution)
        self._snapshots.forget(execution)
        self._courtesy.forget(execution)
        self._cut.pop(execution, None)
        for task in self._tasks.get(execution, ()):
            if task is not asyncio.current_task():
                task.cancel()
        self._links.remove(execution, hosted.channels)
        hosted.channel_state.close()
        hosted.reader.give_up()
        blocking = hosted.surroundings.blocking
        blocking.give_up()
        if blocking.under_way:
            self._beside(hosted.close_after_calls(self._world.log))
        elif (closing := hosted.close(self._world.log)) is not None:
            self._beside(closing)
        self.calls.closed(execution)

    def _fail(self, execution: ExecutionId, error: Exception) -> None:
        """A subtask has failed; its driver decides what follows."""
        hosted = self._hosted.get(execution)
        where = hosted.surroundings.task_name if hosted else f"subtask {execution.subtask.index}"
        self._end(execution, ExecutionState.FAILED, as_ours(error, where))

    def _peer_lost(self, peer: SlotId, error: PeerLost) -> None:
        for execution, hosted in list(self._hosted.items()):
            if peer in hosted.deploy.addresses:
                self._fail(execution, error)

    def _skipped(self, execution: ExecutionId, rows: int) -> None:
        hosted = self._hosted.get(execution)
        if hosted is not None:
            hosted.subtask.rows_skipped += rows

    def _to_coordinator(
        self, execution: ExecutionId, operator: OperatorId, event: OperatorEvent
    ) -> None:
        self._send(ToCoordinator(execution, operator, event))

    # --- what runs beside ---

    def _task(
        self, execution: ExecutionId, coroutine: Coroutine[object, object, None]
    ) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        tasks = self._tasks.setdefault(execution, set())
        tasks.add(task)
        task.add_done_callback(lambda done: self._task_done(execution, done))
        return task

    def _task_done(self, execution: ExecutionId, task: asyncio.Task[None]) -> None:
        tasks = self._tasks.get(execution)
        if tasks is not None:
            tasks.discard(task)
            if not tasks:
                del self._tasks[execution]
        self._with(execution, Subtask.idle_again)

    def _start(
        self, execution: ExecutionId, work: Coroutine[object, object, None], inner: object = None
    ) -> None:
        """Run it guarded. What is cancelled before its first step is closed, with its inner one."""
        task = self._task(execution, self._guard(execution, work))
        task.add_done_callback(lambda _: work.close())
        if asyncio.iscoroutine(inner):
            task.add_done_callback(lambda _: inner.close())

    async def _guard(self, execution: ExecutionId, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except Exception as error:
            self._fail(execution, error)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not this task was cancelled but what it waited for; nobody else would notice.
            self._fail(execution, UserCodeFailed("what the subtask waited for was cancelled"))

    def _waiter(
        self, execution: ExecutionId
    ) -> Callable[[Awaitable[object], Callable[[], None]], None]:
        async def wait(awaited: Awaitable[object], done: Callable[[], None]) -> None:
            await awaited
            done()
            self._list_execution(execution)

        return lambda awaited, done: self._start(execution, wait(awaited, done), awaited)

    def _call_at(self, execution: ExecutionId, at_ms: int, act: Callable[[Subtask], None]) -> None:
        delay_s = max(0, at_ms - self._world.clock.monotonic_ms()) / 1000
        asyncio.get_running_loop().call_later(delay_s, lambda: self._with(execution, act))

    # --- snapshots ---

    def _take(self, execution: ExecutionId, snapshot: SubtaskSnapshot) -> None:
        assert self._storage is not None, "a slot is accepted before it is given work"
        self._snapshots.add(execution, snapshot)
        hosted = self._hosted[execution]
        checkpoint, call_s = snapshot.checkpoint, hosted.subtask.pace.call_s
        self._cut[execution] = checkpoint
        self._courtesy.cut(execution, checkpoint, call_s, self._world.clock.precise_s())
        self._task(execution, self._snapshots.finish(self._storage, hosted, snapshot))

    def _beside(self, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run to the end, whatever becomes of the subtasks."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return task


class _DriverHandler:
    """What comes from the driver."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot

    def on_frame(self, frame: memoryview) -> None:
        try:
            self._slot.message(cast("ToSlot", pickle.loads(frame)))
        except Exception as error:
            self._slot.end("a message of the driver failed", as_ours(error, self._slot.id))

    def on_closed(self, error: PeerLost | None) -> None:
        self._slot.end("the driver is gone", error)
