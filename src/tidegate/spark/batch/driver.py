"""All that a job in batch has in its driver beside the job of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.driver.running import ANSWER_WITHIN_MS
from tidegate.model.control import JobStatus, Samples, TellSamples, TellThreads, Threads
from tidegate.spark.batch.driver_loop import DriverLoop
from tidegate.spark.batch.lead import Lead
from tidegate.spark.batch.listening import ENDS_S, hear_out, listen
from tidegate.spark.batch.progress import BatchProgress
from tidegate.spark.batch.user_calls import UserCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from flinkformat.snapshots import MasterState
    from tidegate.driver.telling.job_log import JobLog
    from tidegate.errors import TidegateError
    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.control import (
        CheckpointAcknowledged,
        SlotInvitation,
        ThreadStack,
        ToSlot,
    )
    from tidegate.model.elements import Barrier
    from tidegate.model.ids import SlotId, VertexId
    from tidegate.spark.batch.final_snapshot import FinalSnapshot
    from tidegate.spark.batch.listening import DriverPlace
    from tidegate.spark.batch.shuffle import Said
    from tidegate.spark.batch.start import BatchStart


class BatchDriver:
    """Leads the job, listens to its tasks and calls the user's callbacks. Blocking.

    stop: ends the job with an error; called on any thread. Raises what stands in the way of leading
    it, with nothing left behind.
    """

    def __init__(
        self,
        graph: JobGraph,
        place: DriverPlace,
        start: BatchStart,
        log: JobLog,
        stop: Callable[[TidegateError], None],
    ) -> None:
        self._start = start
        self._stop = stop
        self._loop = loop = DriverLoop(log.log)
        try:
            log.begin(graph.settings.slot.log, loop.pool.submit)
            self.lead: Final = Lead(graph, loop, log.log)
            self.progress: Final = BatchProgress(
                graph, self.lead.job, self.lead.epoch, log, place.page, stop
            )
            self._invitation = loop.done(listen(graph, place, loop, self.progress.watch, log.log))
        except BaseException:
            loop.close()
            raise
        self._calls = UserCalls(graph, self.lead.job, loop)
        if start.snapshot is not None:
            self.progress.restored(start.snapshot)

    def enter(self, status: JobStatus, error: TidegateError | None = None) -> None:
        """The job gets another status; its listeners hear of it."""
        if (change := self.progress.enter(status, error)) is not None:
            self._calls.tell(change)

    def begin(self) -> None:
        """Before the first task. Raises what a master hook has raised."""
        self.lead.watch(self._stop)
        self._calls.restore_hooks(self._start)

    def wait_for_ends(self) -> None:
        """Wait until tasks have ended that are to end before their time, within a limit."""
        self._loop.done(hear_out(self.progress.watch, ENDS_S))

    def heard(self, said: Sequence[Said]) -> None:
        """All tasks have ended, and have said that with their rows."""
        self._loop.done(hear_out(self.progress.watch))
        self.progress.ended(said)

    def failed(self, error: TidegateError) -> None:
        """The job ends with an error, and its tasks with it."""
        self.enter(JobStatus.FAILING, error)
        self.wait_for_ends()
        self.progress.add_failure(error, error.where)
        self.progress.label_failure(error, self._calls.labels(error))

    def threads(self, slot: SlotId) -> Future[tuple[ThreadStack, ...]]:
        """Stacks of all threads of a task. Raises RuntimeError once it is closed."""

        async def told() -> tuple[ThreadStack, ...]:
            answer = await self._asked(slot, TellThreads)
            assert isinstance(answer, Threads), "the answer to this question"
            return answer.stacks

        return self._loop.begin(told())

    def samples(self, slot: SlotId, vertex: VertexId) -> Future[Samples]:
        """Where the time of a task goes. Raises RuntimeError once it is closed."""

        async def told() -> Samples:
            answer = await self._asked(slot, lambda number: TellSamples(number, vertex))
            assert isinstance(answer, Samples), "the answer to this question"
            return answer

        return self._loop.begin(told())

    async def _asked(self, slot: SlotId, question: Callable[[int], ToSlot]) -> Threads | Samples:
        questions = self.progress.watch.questions
        return await questions.ask(slot, question, timeout_ms=ANSWER_WITHIN_MS)

    def close(self) -> None:
        """Close the hooks, and leave nothing running."""
        try:
            self._calls.close()
        finally:
            self._loop.close()

    # --- Surroundings ---

    @property
    def invitation(self) -> SlotInvitation | None:
        return self._invitation

    @property
    def ran_again(self) -> bool:
        return self.progress.watch.ran_again

    def hook_states(self, barrier: Barrier) -> tuple[MasterState, ...]:
        return self._calls.trigger_hooks(barrier)

    def confirm(self) -> None:
        self.lead.confirm()

    def saved(self, snapshot: FinalSnapshot, shares: Sequence[CheckpointAcknowledged]) -> None:
        self.lead.saved(snapshot.barrier.checkpoint, snapshot.path)
        self.progress.saved(snapshot.path, snapshot.barrier, snapshot.properties, shares)
