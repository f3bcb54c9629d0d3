"""A subtask in its slot: what it has under way, and how it comes and goes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidegate.errors import CheckpointAborted
from tidegate.model.control import (
    CheckpointAcknowledged,
    CheckpointDeclined,
    ExecutionState,
    SubtaskChanged,
    ToCoordinator,
)
from tidegate.model.deployment import Deployment
from tidegate.model.failure_reason import FailureReason
from tidegate.model.restore import RestoredOperatorState
from tidegate.slot.channel_state import read_in_flight
from tidegate.slot.driver_link import as_ours
from tidegate.slot.loop.beside import BlockingCalls, DaemonThreads, Tasks, guarded
from tidegate.slot.subtask.builder import build, load
from tidegate.slot.subtask.chain import log_failed_close
from tidegate.slot.subtask.materializing import Materializing
from tidegate.storage.reading import StateReader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    import structlog

    from tidegate.api.operator import Threads
    from tidegate.clock import Clock
    from tidegate.errors import TidegateError
    from tidegate.model.chance import Chance
    from tidegate.model.control import Deploy
    from tidegate.model.elements import OperatorEvent
    from tidegate.model.ids import ChannelId, CheckpointId, OperatorId
    from tidegate.slot.channel_state import ChannelStateWriter
    from tidegate.slot.channels.gate import Producer
    from tidegate.slot.channels.links import Links
    from tidegate.slot.channels.output import Consumer
    from tidegate.slot.driver_link import DriverLink
    from tidegate.slot.job import SlotJob
    from tidegate.slot.loop.rounds import Rounds
    from tidegate.slot.subtask.context import Waiting
    from tidegate.slot.subtask.snapshot import SubtaskSnapshot
    from tidegate.slot.subtask.subtask import Subtask
    from tidegate.slot.world import World
    from tidegate.storage.places import Place

CALL_LIMIT_S = 60.0
"""How long the calls of a subtask that is over may go on before its operators are left open."""

CLOSE_LIMIT_S = 10.0
"""How long an operator that is closed may take for what it leaves to be awaited."""


class HostedSubtask:
    """A subtask of a slot with its tasks, timers, snapshots and links; the `Host` of its parts.

    beside: tasks of the slot, which it waits for though the subtask is over.
    Raises UserCodeFailed if the code cannot be loaded in this process.
    """

    def __init__(
        self,
        deploy: Deploy,
        job: SlotJob,
        world: World,
        rounds: Rounds,
        links: Links,
        driver: DriverLink,
        beside: Tasks,
    ) -> None:
        self.deployment = Deployment(job.id, job.settings, deploy)
        self.execution = deploy.execution
        self.log = world.log.bind(subtask=self.deployment.task_name)
        self.channel_state: ChannelStateWriter = job.channel_state.writer(
            deploy.execution, job.settings.checkpoints.subtasks_a_channel_state_file
        )
        self._job = job
        self._world = world
        self._rounds = rounds
        self._links = links
        self._driver = driver
        self._beside = beside
        self._tasks = Tasks(beside)
        self._blocking = BlockingCalls(world.run_blocking)
        self._reader = StateReader(job.storage.files, deploy.checksums)
        self._snapshots: dict[CheckpointId, SubtaskSnapshot] = {}
        try:
            self.subtask = build(load(self.deployment), self.deployment, self, job)
        except BaseException:
            self.channel_state.close()  # or those that share files with it would wait for it
            raise
        for channel in self.subtask.input.gate.inputs:
            links.add_input(self, self.subtask.input.gate, channel)
        for output in self.subtask.outputs.channels:
            links.add_output(self, output)
        rounds.subtasks[self.execution] = self.subtask

    # --- how it comes ---

    def deploy(self, began_ms: int) -> None:
        """Link, restore and open the subtask; the driver is told. began_ms: of its deployment."""
        self._task(self._deploy(began_ms))

    async def _deploy(self, began_ms: int) -> None:
        addresses = self.deployment.deploy.addresses
        try:
            await self._links.ensure(addresses.keys(), addresses)
            await self._blocking.run(lambda: restore(self.subtask, self._reader))
        except Exception as error:
            self.fail(error)
            return
        self._act(self._open)
        if not self.subtask.state.is_terminal:
            took_ms = self.clock.monotonic_ms() - began_ms
            self._driver.send(
                SubtaskChanged(self.execution, ExecutionState.INITIALIZING, restore_ms=took_ms)
            )

    def _open(self) -> None:
        subtask, changelog = self.subtask, self.deployment.settings.slot.changelog
        subtask.chain.open()
        if changelog is not None:
            backends = [each.backend for each in subtask.chain.operators]
            where = self.deployment.task_name
            Materializing(backends, changelog, self, subtask.ending, where).begin()

    # --- how it goes ---

    def failing(self, error: Exception) -> None:
        from tidegate.slot.subtask.bundle import bundle_of  # few jobs keep what fails

        try:
            failed = bundle_of(self.subtask, error, self.clock)
        except Exception as odd:
            self.log.warning("a replay bundle cannot be made", error=repr(odd))
        else:
            if failed is not None:
                self._driver.send(failed)

    def fail(self, error: Exception) -> None:
        self.subtask.fail(error)

    def changed(self, state: ExecutionState, error: TidegateError | None) -> None:
        """Tell the driver; of a subtask that is over nothing is left."""
        if not state.is_terminal:
            self._driver.send(SubtaskChanged(self.execution, state, error))
            return
        figures, metrics = self.subtask.figures, self.subtask.metrics.read()
        changed = SubtaskChanged(self.execution, state, error, figures=figures, metrics=metrics)
        if state is not ExecutionState.FINISHED:
            if closing := self._forget(self._log_failed_close):
                self._beside.run(closing)
            self._driver.send(changed)
            return
        failures: list[Exception] = []
        if closing := self._forget(failures.append):
            self._beside.run(self._tell_closed(closing, changed, failures))
        else:
            self._tell_finished(changed, failures)

    async def _tell_closed(
        self, closing: Awaitable[None], changed: SubtaskChanged, failures: list[Exception]
    ) -> None:
        await closing
        self._tell_finished(changed, failures)

    def _tell_finished(self, changed: SubtaskChanged, failures: list[Exception]) -> None:
        """Tell the driver; what closing has raised fails a subtask that had come to its end."""
        for error in failures[1:]:
            self._log_failed_close(error)
        if failures:
            failure = as_ours(failures[0], self.deployment.task_name)
            changed = replace(changed, state=ExecutionState.FAILED, error=failure)
        self._driver.send(changed)

    def _log_failed_close(self, error: Exception) -> None:
        log_failed_close(self.log, error)

    def _forget(self, failed: Callable[[Exception], object]) -> Coroutine[Any, Any, None] | None:
        """Close everything; the result is what is left to be awaited. failed: gets errors."""
        calls, subtask = self._rounds.calls, self.subtask
        closing: Coroutine[Any, Any, None] | None = None
        self._rounds.forget(self.execution)
        calls.closing(self.execution)
        for snapshot in self._snapshots.values():
            snapshot.cancel()
        self._snapshots.clear()
        self._tasks.cancel()
        channels: Sequence[ChannelId] = [
            *subtask.input.gate.channels,
            *(output.id for output in subtask.outputs.channels),
        ]
        self._links.remove(self.execution, channels)
        self.channel_state.close()
        self._reader.give_up()
        self._blocking.give_up()
        if self._blocking.under_way:
            closing = close_after_calls(
                lambda: self._close(failed), self._blocking, self.log, failed
            )
        elif left := self._close(failed):
            closing = await_closing(left, self.log, failed)
        calls.closed(self.execution)
        return closing

    def _close(self, failed: Callable[[Exception], object]) -> list[Awaitable[None]]:
        """Close the operators: a call that may take long too. failed: gets what closing raises."""
        calls = self._rounds.calls
        outer = calls.begin(self.execution, self.clock.monotonic_ms(), closes=True)
        try:
            return self.subtask.chain.close(failed)
        finally:
            calls.end(outer)

    # --- the host of its parts ---

    @property
    def clock(self) -> Clock:
        return self._world.clock

    @property
    def chance(self) -> Chance:
        return self._world.chance

    @property
    def takes_input(self) -> bool:
        return self.subtask.chain.takes_input

    def _act(self, call: Callable[[], None]) -> None:
        """Call the subtask's code, if it is alive; errors are its failure."""
        if not self.subtask.state.is_terminal:
            self._rounds.act(self.subtask, call)

    def ready(self) -> None:
        self._rounds.list(self.execution)

    def granted(self) -> None:
        self.subtask.granted()

    def wake(self) -> None:
        self._act(self.subtask.wake)

    def poll_soon(self) -> None:
        self._act(self.subtask.poll_soon)

    def wake_at(self, at_ms: int) -> None:
        self.call_at(at_ms, self.subtask.wake)

    def call_at(self, at_ms: int, act: Callable[[], None]) -> None:
        delay_s = max(0, at_ms - self.clock.monotonic_ms()) / 1000
        asyncio.get_running_loop().call_later(delay_s, lambda: self._act(act))

    def skipped(self, rows: int) -> None:
        self.subtask.input.rows_skipped += rows

    def run_blocking(
        self, call: Callable[[], object], *, on: Threads | None = None
    ) -> Awaitable[object]:
        return self._blocking.run(call, on=on)

    def threads(self, limit: int) -> Threads:
        return DaemonThreads(limit)

    def to_coordinator(self, operator: OperatorId, event: OperatorEvent) -> None:
        self._driver.send(ToCoordinator(self.execution, operator, event))

    def to_producer(self, channel: ChannelId) -> Producer:
        peer = self.deployment.deploy.peers[channel]
        return self._links.to_producer(self.execution, channel, peer)

    def to_consumer(self, channel: ChannelId) -> Consumer:
        peer = self.deployment.deploy.peers[channel]
        return self._links.to_consumer(self.execution, channel, peer)

    # --- what runs beside ---

    @property
    def busy(self) -> int:
        return len(self._tasks)

    def _task(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = self._tasks.run(work)
        task.add_done_callback(lambda _: self._act(self.subtask.idle_again))
        return task

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        """Run it guarded. One that is cancelled before its first step is closed."""
        self._task(guarded(coroutine, self.fail)).add_done_callback(lambda _: coroutine.close())

    def wait(self, awaited: Awaitable[object], waiting: Waiting) -> None:
        async def wait() -> None:
            await awaited
            waiting.awaited_done()
            self.ready()

        task = self._task(guarded(waits := wait(), self.fail))
        task.add_done_callback(lambda _: waits.close())
        if asyncio.iscoroutine(awaited):
            task.add_done_callback(lambda _: awaited.close())

    # --- snapshots ---

    def decline(self, declined: CheckpointDeclined) -> None:
        self._driver.send(declined)

    def cut(self, snapshot: SubtaskSnapshot) -> None:
        """Encode it in slices on the loop, write it off the loop, and acknowledge it."""
        checkpoint = snapshot.checkpoint
        self._snapshots[checkpoint] = snapshot
        self._rounds.encode(snapshot)
        call_s, now_s = self.subtask.turns.call_s, self.clock.precise_s()
        self._rounds.courtesy.cut(self.execution, checkpoint, call_s, now_s)
        self._task(self._finish(snapshot))

    def is_writing(self, checkpoint: CheckpointId) -> bool:
        return checkpoint in self._snapshots

    def stop_snapshot(self, checkpoint: CheckpointId) -> None:
        if (snapshot := self._snapshots.pop(checkpoint, None)) is not None:
            snapshot.cancel()

    async def _finish(self, snapshot: SubtaskSnapshot) -> None:
        """Have a snapshot written and acknowledged; cancelled with the subtask."""
        barrier, storage = snapshot.barrier, self._job.storage
        try:
            # What the driver can open may be closed to this process.
            place = storage.place(barrier, self.execution, self.chance.bits64, merged=True)
            await snapshot.ready(place, self._world.run_blocking, self._rounds.wake)
        except asyncio.CancelledError:
            self._give_up(snapshot)
            raise
        except Exception as error:
            self._not_written(snapshot, error)
            self._give_up(snapshot)
            return
        # A thread that writes cannot be stopped, so this goes on where the subtask is over.
        writing = self._beside.run(self._write(snapshot, place))
        try:
            await snapshot.durable()
        except asyncio.CancelledError:
            snapshot.cancel()
            raise
        except Exception as error:
            self._not_written(snapshot, error)
            snapshot.cancel()
        await asyncio.shield(writing)

    def _give_up(self, snapshot: SubtaskSnapshot) -> None:
        snapshot.cancel()
        self._rounds.wake()
        self._beside.run(snapshot.discard(self._world.run_blocking))

    async def _write(self, snapshot: SubtaskSnapshot, place: Place) -> None:
        try:
            states = await snapshot.write(place, self._world.run_blocking)
        except Exception as error:
            self._not_written(snapshot, error)
            return
        self._snapshots.pop(snapshot.checkpoint, None)
        if states is not None:
            self._driver.send(
                CheckpointAcknowledged(
                    self.execution,
                    snapshot.checkpoint,
                    states or None,
                    snapshot.figures(self.clock.precise_s(), place),
                    finished_on_restore=self.deployment.deploy.finished,
                    finished_operators=snapshot.after_finish,
                )
            )

    def _not_written(self, snapshot: SubtaskSnapshot, error: Exception) -> None:
        # Both the writing and what goes on beside it may fail; the first one tells.
        is_first = self._snapshots.pop(snapshot.checkpoint, None) is not None
        if is_first and not snapshot.cancelled:
            ours = as_ours(error, self.deployment.task_name)
            reason = (
                FailureReason.of(ours)
                if isinstance(ours, CheckpointAborted)
                else FailureReason.CHECKPOINT_ASYNC_EXCEPTION
            )
            self._driver.send(
                CheckpointDeclined(self.execution, snapshot.checkpoint, reason, str(ours))
            )


def restore(subtask: Subtask, reader: StateReader) -> None:
    """Bring back each operator's state. Blocking; nothing else touches the subtask yet."""
    deploy = subtask.deployment.deploy
    snapshot = f"checkpoint {deploy.restored}"
    for each in subtask.chain.operators:
        state = deploy.state.get(each.context.info.operator, RestoredOperatorState())
        of_operator = reader.at(f"operator '{each.context.info.name}', {snapshot}")
        each.backend.restore(state, of_operator)
    read = reader.at(f"in-flight data, {snapshot}").read
    subtask.input.gate.restore(read_in_flight(deploy.in_flight, read))


async def await_closing(
    closing: Sequence[Awaitable[None]],
    log: structlog.typing.FilteringBoundLogger,
    failed: Callable[[Exception], object],
) -> None:
    """Wait for what operators leave when they are closed, each for a bounded time."""
    for each in closing:
        await guarded(closed_in_time(each, log), failed)


async def closed_in_time(
    closing: Awaitable[None], log: structlog.typing.FilteringBoundLogger
) -> None:
    limit = asyncio.timeout(CLOSE_LIMIT_S)  # `wait_for` makes a task, in which sys.exit ends all
    try:
        async with limit:
            await closing
    except TimeoutError:
        if not limit.expired():
            raise
        log.warning(
            "closing an operator takes too long and is abandoned; check its 'close'",
            waited_s=CLOSE_LIMIT_S,
        )


async def close_after_calls(
    close: Callable[[], Sequence[Awaitable[None]]],
    calls: BlockingCalls,
    log: structlog.typing.FilteringBoundLogger,
    failed: Callable[[Exception], object],
) -> None:
    """Close what operators have opened once no call that they made on the pool is under way.

    failed: gets what closing raises.
    """
    if await calls.ended(CALL_LIMIT_S):
        await await_closing(close(), log, failed)
    else:
        log.warning(
            "a subtask has ended, but its call to a file or service is still running; its "
            "operators stay open: check what they write to or read from",
            waited_s=CALL_LIMIT_S,
        )
