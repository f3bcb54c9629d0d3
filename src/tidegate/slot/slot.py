"""The slot: one loop that hosts one subtask of every vertex, under one driver.

Beside them it may host those of a slot that was lost. It dials the driver, offers itself, and then
does what it is told. Turns of the subtasks, slices of snapshots and messages of the network share
the loop.
"""

from __future__ import annotations

import gc
import pickle
from typing import TYPE_CHECKING, cast

from tidegate.config.threads import thread_stacks
from tidegate.metrics import GaugeCalls
from tidegate.model.control import (
    Accepted,
    Cancel,
    CheckpointAborted,
    CheckpointComplete,
    CheckpointDeclined,
    Deploy,
    ExecutionState,
    Offer,
    Pulse,
    ReadBack,
    Refused,
    Release,
    Samples,
    SlotLeaving,
    Start,
    SubtaskChanged,
    TellSamples,
    TellThreads,
    Threads,
    ToOperator,
    ToSlot,
    TriggerCheckpoint,
)
from tidegate.model.elements import Barrier
from tidegate.model.failure_reason import FailureReason
from tidegate.slot.channels.links import Links
from tidegate.slot.driver_link import DriverLink, as_ours
from tidegate.slot.job import SlotJob
from tidegate.slot.loop.beside import Tasks
from tidegate.slot.loop.rounds import Rounds
from tidegate.slot.process.load import process_metrics
from tidegate.slot.subtask.hosted import HostedSubtask
from tidegate.slot.subtask.subtask import Subtask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidegate.errors import PeerLost, TidegateError
    from tidegate.model.ids import ExecutionId, SlotId, VertexId
    from tidegate.slot.driver_link import SlotLog
    from tidegate.slot.loop.calls import Calls
    from tidegate.slot.sampler import Sampler
    from tidegate.slot.world import World

COLLECT_EVERY_MS = 60_000
"""Garbage is collected at the latest after this, when the slot is never idle."""

LINK_TIMEOUT_S = 600.0
"""How long a slot waits for a link to another one, which may be in a call, such as an open().

One that is lost or stands still is the driver's to judge, which then cancels the waiting subtasks.
"""


class Slot:
    """Hosts subtasks until it is released, refused, or has lost its driver.

    log: what is logged and printed here, for the driver.
    """

    def __init__(self, slot: SlotId, world: World, log: SlotLog, *, pid: int, host: str) -> None:
        self.id = slot
        self._world = world
        self._place = (pid, host)
        self._gauges = GaugeCalls(world.clock.monotonic_ms)
        self._process = process_metrics(world.clock.monotonic_ms) if world.owns_process else None
        self._links = Links(slot, world.network, lost=self._peer_lost, timeout_s=LINK_TIMEOUT_S)
        self._driver = DriverLink(log)
        self._rounds = Rounds(world.clock)
        self._sampler: Sampler | None = None
        self._beside = Tasks()
        self._job: SlotJob | None = None
        self._ended: str | None = None
        self._error: TidegateError | None = None

    # --- life ---

    async def run(self, driver: str, *, versions: Mapping[str, str], request: str = "") -> str:
        """Serve the driver at that address to the end; the result says why it ended.

        Raises PeerLost if the driver cannot be reached.
        """
        listener = await self._world.network.listen(self._links.accept)
        try:
            self._driver.dialled(await self._world.network.connect(driver, self.id, self))
            pid, host = self._place
            self._driver.send(Offer(self.id, listener.address, pid, host, versions, request))
            await self._work()
        except Exception as error:
            self.end("the slot failed", as_ours(error, f"slot {self.id}"))
            raise
        finally:
            await self._close()
            await listener.close()
        return self._ended or ""

    @property
    def calls(self) -> Calls:
        return self._rounds.calls

    def pulse(self) -> Pulse:
        """State of the slot for a heartbeat; read by another thread, so nothing may change here."""
        call = self.calls.current
        age = 0 if call is None else self._world.clock.monotonic_ms() - call.began_ms
        subtasks = list(self._rounds.subtasks.items())
        self._gauges.call(gauge for _, subtask in subtasks for gauge in subtask.metrics.gauges)
        return Pulse(
            self.id,
            batch_age_ms=age,
            figures={execution: subtask.figures for execution, subtask in subtasks},
            calling=None if call is None else call.execution,
            metrics={execution: subtask.metrics.read() for execution, subtask in subtasks},
            process={} if self._process is None else self._process.read(),
        )

    def send_pulse(self) -> None:
        """Sends a heartbeat over the control link; for slots without a guard."""
        self._driver.send(self.pulse())

    def send_logged(self) -> None:
        self._driver.send_logged()

    def end(self, reason: str, error: TidegateError | None = None) -> None:
        if self._ended is None:
            self._ended = reason
            self._error = error
        self._rounds.wake()

    async def _close(self) -> None:
        if self._sampler is not None:
            self._sampler.close()
        # Before the ends of the subtasks, so that the driver hears the reason first.
        self._driver.send(SlotLeaving(self.id, self._error))
        for subtask in list(self._rounds.subtasks.values()):
            subtask.end(ExecutionState.CANCELED)
        await self._beside.ended()
        if self._job is not None:
            await self._job.local.close()
        self._links.close()
        self._driver.close()

    # --- the loop ---

    async def _work(self) -> None:
        clock, rounds = self._world.clock, self._rounds
        collected_ms = clock.monotonic_ms()
        collecting = self._world.owns_process and gc.isenabled()
        if collecting:
            gc.disable()
        try:
            while self._ended is None:
                if self._job is not None:
                    rounds.work(self._job.settings.slot)
                now_ms = clock.monotonic_ms()
                if collecting and now_ms - collected_ms > COLLECT_EVERY_MS:
                    gc.collect()
                    collected_ms = now_ms
                if rounds.has_work:
                    await self._world.pause()
                elif rounds.has_waiting:
                    await rounds.rest_shortly()
                else:
                    rounds.flush()
                    if self._ended is None:
                        await rounds.rest()
        finally:
            if collecting:
                gc.enable()

    # --- the driver's words ---

    def on_frame(self, frame: memoryview) -> None:
        try:
            self.message(cast("ToSlot", pickle.loads(frame)))
        except Exception as error:
            self.end("a message of the driver failed", as_ours(error, self.id))

    def on_closed(self, error: PeerLost | None) -> None:
        self.end("the driver is gone", error)

    def message(self, message: ToSlot) -> None:
        if self._job is not None:
            self._job.local.heard(message)
        match message:
            case Accepted():
                self._job = SlotJob(message, self._world, self._beside)
            case Refused(reason):
                self.end(f"refused: {reason}")
            case Release(reason):
                self.end(reason or "released")
            case Deploy():
                self._deploy(message)
            case Start(execution):
                self._with(execution, Subtask.start)
            case Cancel(execution):
                self._cancel(execution)
            case TriggerCheckpoint(execution, checkpoint, triggered_ms, options):
                self._trigger(execution, Barrier(checkpoint, triggered_ms, options))
            case CheckpointComplete(execution, checkpoint, subsumed):
                self._with(execution, lambda subtask: subtask.complete(checkpoint, subsumed))
            case CheckpointAborted(execution, checkpoint, completed):
                self._rounds.courtesy.given_up(checkpoint)
                self._with(execution, lambda subtask: subtask.abort(checkpoint, completed))
            case ToOperator(execution, operator, event):
                self._with(execution, lambda subtask: subtask.event(operator, event))
            case TellThreads(number):
                self._driver.send(Threads(number, self.id, thread_stacks()))
            case TellSamples(number, vertex):
                self._driver.send(self._sampled(number, vertex))
            case ReadBack():
                self._beside.run(self._read_back(message))

    def _sampled(self, number: int, vertex: VertexId) -> Samples:
        if self._sampler is None:
            from tidegate.slot.sampler import Sampler

            self._sampler = Sampler(self._rounds, self._world.clock.monotonic_ms)
        return self._sampler.read(vertex, number, self.id)

    def _with(self, execution: ExecutionId, act: Callable[[Subtask], None]) -> None:
        """Act on a subtask that is here and alive; errors are its failure."""
        subtask = self._rounds.subtasks.get(execution)
        if subtask is not None:
            self._rounds.act(subtask, lambda: act(subtask))

    def _deploy(self, deploy: Deploy) -> None:
        began_ms = self._world.clock.monotonic_ms()
        assert self._job is not None, "a slot is accepted before it has work"
        try:
            hosted = HostedSubtask(
                deploy,
                self._job,
                self._world,
                self._rounds,
                self._links,
                self._driver,
                self._beside,
            )
        except Exception as error:
            failure = as_ours(error, f"subtask {deploy.execution.subtask.index}")
            self._driver.send(SubtaskChanged(deploy.execution, ExecutionState.FAILED, failure))
        else:
            hosted.deploy(began_ms)

    def _cancel(self, execution: ExecutionId) -> None:
        subtask = self._rounds.subtasks.get(execution)
        if subtask is not None:
            subtask.end(ExecutionState.CANCELED)
        else:
            self.calls.closed(execution)
            self._driver.send(SubtaskChanged(execution, ExecutionState.CANCELED))

    def _trigger(self, execution: ExecutionId, barrier: Barrier) -> None:
        subtask = self._rounds.subtasks.get(execution)
        if subtask is not None and subtask.state is ExecutionState.RUNNING:
            subtask.trigger(barrier)
            return
        reason = (
            FailureReason.TASK_CHECKPOINT_FAILURE
            if subtask is None
            else FailureReason.CHECKPOINT_DECLINED_TASK_NOT_READY
        )
        self._driver.send(CheckpointDeclined(execution, barrier.checkpoint, reason))

    async def _read_back(self, asked: ReadBack) -> None:
        assert self._job is not None, "a slot is accepted before it is asked"
        self._driver.send(await self._job.read_back(asked))

    def _peer_lost(self, peer: SlotId, error: PeerLost) -> None:
        for subtask in list(self._rounds.subtasks.values()):
            if peer in subtask.deployment.deploy.addresses:
                subtask.fail(error)
