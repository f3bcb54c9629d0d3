"""Replaces the checkpoint coordinator in a job that takes no checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.checkpoint.coordinator import commands, events
from tidegate.checkpoint.coordinator.disposal import Disposal
from tidegate.checkpoint.coordinator.statistics import StatisticsTracker
from tidegate.errors import ConfigError
from tidegate.model.control import ToOperator

if TYPE_CHECKING:
    from tidegate.checkpoint.completed import CompletedCheckpoint, CompletedCheckpoints
    from tidegate.checkpoint.coordinator.statistics import StatisticsView
    from tidegate.checkpoint.registry import SharedStateRegistry
    from tidegate.model.ids import CheckpointId, ExecutionId, JobId
    from tidegate.model.settings import CheckpointSettings


class NoCheckpoints:
    """Takes no checkpoints, and says so to whoever asks for one: a job in batch mode.

    What the job started from it sees to as a coordinator would. completed, registry: as there.
    """

    settled: Final = True
    wake_at_ms: Final = None

    def __init__(
        self,
        job: JobId,
        settings: CheckpointSettings,
        completed: CompletedCheckpoints,
        registry: SharedStateRegistry,
    ) -> None:
        self._job = job
        self._completed = completed
        self._statistics = StatisticsTracker(settings.history_max)
        self._disposal = Disposal(completed, registry, self._statistics)
        for known in completed.retained:
            registry.register_restored(known.metadata, known.properties, known.foreign)

    @property
    def statistics(self) -> StatisticsView:
        return self._statistics.view()

    @property
    def ended(self) -> bool:
        return self._disposal.ended

    def waits_for(self, execution: ExecutionId) -> bool:
        return False

    def latest_completed(self) -> CompletedCheckpoint | None:
        """The checkpoint that the job starts from."""
        return self._completed.latest

    def give_up(self, checkpoint: CheckpointId) -> CompletedCheckpoint | None:
        return self._completed.give_up(checkpoint)

    def handle(
        self, event: events.CheckpointEvent, now_ms: int
    ) -> list[commands.CheckpointCommand]:
        match event:
            case events.OperatorEventSent(execution, operator, sent):
                return [ToOperator(execution, operator, sent)]
            case events.CheckpointRequested():
                return [commands.RequestDone(event.request, error=self._refusal())]
            case events.Restored(checkpoint, wall_ms) if checkpoint is not None:
                completed = self._completed.find(checkpoint)
                assert completed is not None, f"checkpoint {checkpoint} is not retained"
                self._statistics.restored(completed, wall_ms)
            case events.JobEnded(status) if not self._disposal.ending:
                return [self._disposal.end(status)]
            case events.PointersForgotten():
                return [*self._disposal.forgotten()]
            case events.PointersNotForgotten():
                self._disposal.not_forgotten()
            case events.Cleaned(checkpoint):
                self._disposal.cleaned(checkpoint)
            case _:
                pass
        return []

    def _refusal(self) -> ConfigError:
        return ConfigError(
            "The job runs in batch mode, in which there are no checkpoints and no savepoints",
            where=f"job {self._job}",
            remedy="Run it with RuntimeExecutionMode.STREAMING, or cancel it without a savepoint.",
        )
