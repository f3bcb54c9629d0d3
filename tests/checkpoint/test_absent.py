"""A job without a checkpoint coordinator."""

from tests.checkpoint.world import restored_checkpoint
from tidegate.checkpoint.completed import CompletedCheckpoints
from tidegate.checkpoint.coordinator import commands, events
from tidegate.checkpoint.coordinator.absent import NoCheckpoints
from tidegate.checkpoint.registry import SharedStateRegistry
from tidegate.errors import ConfigError
from tidegate.model.control import JobStatus
from tidegate.model.elements import SnapshotKind
from tidegate.model.ids import CheckpointId, JobId
from tidegate.model.settings import CheckpointSettings


def begun(*retained: int) -> NoCheckpoints:
    completed = CompletedCheckpoints(1, [restored_checkpoint(number) for number in retained])
    return NoCheckpoints(
        JobId("0" * 32), CheckpointSettings(interval_ms=10), completed, SharedStateRegistry()
    )


def test_whoever_asks_for_a_snapshot_is_refused() -> None:
    absent = begun()
    for kind in SnapshotKind:
        [done] = absent.handle(events.CheckpointRequested(7, kind), 0)
        assert isinstance(done, commands.RequestDone) and done.request == 7
        assert isinstance(done.error, ConfigError) and "batch mode" in done.error.what
    assert absent.wake_at_ms is None and absent.settled and absent.latest_completed() is None
    assert absent.statistics.counts.total == 0


def test_the_pointers_of_a_job_that_is_over_are_forgotten_once() -> None:
    absent = begun()
    ended = events.JobEnded(JobStatus.FINISHED)
    assert absent.handle(ended, 0) == [commands.ForgetPointers(JobStatus.FINISHED, ())]
    assert not absent.ended and absent.handle(ended, 0) == []
    assert absent.handle(events.PointersForgotten(), 0) == []
    assert absent.ended


def test_a_job_that_another_leader_goes_on_with_forgets_nothing() -> None:
    absent = begun(4)
    forget = commands.ForgetPointers(JobStatus.SUSPENDED, (CheckpointId(4),))
    assert absent.handle(events.JobEnded(JobStatus.SUSPENDED), 0) == [forget]
    assert absent.handle(events.PointersForgotten(), 0) == []
    assert absent.ended


def test_what_the_job_starts_from_is_restored_and_told() -> None:
    absent = begun(4)
    found = absent.latest_completed()
    assert found is not None and found.checkpoint == 4
    assert absent.handle(events.Restored(CheckpointId(4), 99), 0) == []
    restored = absent.statistics.latest_restored
    assert restored is not None and (restored.checkpoint, restored.restored_ms) == (4, 99)
