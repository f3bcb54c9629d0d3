"""A master hook of a whole job: called at each trigger, restored with it, closed at its end."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import structlog

from flinkformat import metadata
from tests.e2e.jobs import running_counts
from tests.e2e.journal import Latch
from tests.e2e.ledger import LedgerSink
from tests.e2e.probes import BreakingOnce
from tests.e2e.regions import pipeline
from tests.e2e.runtimes import Jobs, failure_of
from tests.e2e.watch import (
    PATIENCE_S,
    attempts,
    completed,
    until,
    view,
    wait_completed,
    wait_for,
    wait_recovered,
    wait_running,
)
from tidegate import ConfigError, JobFailed, MasterTriggerRestoreHook
from tidegate.driver import thread
from tidegate.driver.user_code import callbacks
from tidegate.model.ids import CheckpointId

pytestmark = pytest.mark.slow

CLIENTS = 100


class Numbers:
    """Numbers as text."""

    version = 1

    def serialize(self, state: int) -> bytes:
        return str(state).encode()

    def deserialize(self, version: int, data: bytes) -> int:
        return int(data)


class Snapshots(MasterTriggerRestoreHook[int]):
    """Stands for a store outside that takes a snapshot with each checkpoint, and counts them."""

    def __init__(self, name: str = "snapshots", *, serializer: bool = True) -> None:
        self._name = name
        self._serializer = Numbers() if serializer else None
        self.count = 0
        self.triggered: list[tuple[int, int]] = []
        self.restored: list[tuple[int, int | None]] = []
        self.resets = self.closed = 0

    def get_identifier(self) -> str:
        return self._name

    def trigger_checkpoint(
        self, checkpoint_id: CheckpointId, timestamp_ms: int
    ) -> int | Future[int | None]:
        self.triggered.append((checkpoint_id, timestamp_ms))
        self.count += 1
        return self.count

    def restore_checkpoint(self, checkpoint_id: CheckpointId, state: int | None) -> None:
        self.restored.append((checkpoint_id, state))

    def reset(self) -> None:
        self.resets += 1

    def close(self) -> None:
        self.closed += 1

    def create_checkpoint_data_serializer(self) -> Numbers | None:
        return self._serializer


@pytest.mark.feature("F177", "F178", "F179", "F180")
def test_a_hook_is_triggered_and_gets_back_what_it_gave(jobs: Jobs) -> None:
    broken = Latch(jobs.folder / "broken")
    env = jobs.checkpointed(1, 50)
    hook = Snapshots()
    assert env.add_master_hook(hook)
    counts = running_counts(env, None, 500).map(BreakingOnce(broken))
    counts.sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "hooked")
    seen = wait_completed(client, 2)
    assert hook.resets == 1 and hook.restored == []
    found = completed(seen)[0]
    assert (found.checkpoint, found.trigger_ms) in hook.triggered
    broken.set()
    wait_for(client, lambda seen: seen.restarts == 1, "the restart")
    until(lambda: hook.restored, "the hook is restored")
    (checkpoint, state), *_ = hook.restored
    assert checkpoint == view(client).restored
    order = [number for number, _ in hook.triggered]
    assert state == order.index(checkpoint) + 1
    client.cancel().result(timeout=100)
    assert hook.closed == 1


@pytest.mark.feature("F178")
def test_the_state_of_a_hook_is_in_the_metadata(jobs: Jobs) -> None:
    env = jobs.checkpointed(1, 50)
    env.add_master_hook(Snapshots())
    running_counts(env, None, 500).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "hooked")
    wait_completed(client, 1)
    done = client.trigger_checkpoint().result(timeout=100)
    data = (jobs.folder / done.pointer / "_metadata").read_bytes()
    states = {state.name: state for state in metadata.decode(data, lambda: "x").master_states}
    assert states["snapshots"].payload == str(done.checkpoint).encode()
    assert states["snapshots"].version == 1


@pytest.mark.feature("F178")
def test_state_without_a_serializer_fails_the_checkpoint_and_says_so(jobs: Jobs) -> None:
    env = jobs.checkpointed(1, 50, **{"execution.checkpointing.tolerable-failed-checkpoints": 0})
    env.add_master_hook(Snapshots(serializer=False))
    running_counts(env, None, 500).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "hooked")
    seen = wait_for(client, lambda seen: seen.checkpoints.counts.failed, "a failed checkpoint")
    assert "no serializer" in str(seen.checkpoints.history[-1].failure)


@pytest.mark.feature("F181")
def test_a_hook_is_restored_when_only_a_region_is(jobs: Jobs) -> None:
    broken = Latch(jobs.folder / "broken")
    env = jobs.checkpointed(1, 50)
    hook = Snapshots()
    env.add_master_hook(hook)
    left = pipeline(env, "left", None, 500).map(BreakingOnce(broken))
    left.sink_to(LedgerSink(jobs.folder / "left"))
    pipeline(env, "right", None, 500).sink_to(LedgerSink(jobs.folder / "right"))
    client = jobs.start(env, "hooked")
    wait_completed(client, 2)
    assert hook.restored == []
    broken.set()
    seen = wait_recovered(client, 1)
    assert (attempts(seen, "left"), attempts(seen, "right")) == ({1}, {0})
    ((checkpoint, state),) = hook.restored
    assert checkpoint == seen.restored
    assert state == [number for number, _ in hook.triggered].index(checkpoint) + 1


def test_a_hook_that_hangs_in_its_close_does_not_keep_the_job_from_its_end(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go = threading.Event()

    class Hanging(Snapshots):
        def close(self) -> None:
            let_go.wait(60)

    monkeypatch.setattr(callbacks, "CLOSE_TIMEOUT_S", 0.1)
    monkeypatch.setattr(thread, "POOL_END_S", 0.1)
    env = jobs.checkpointed(1, 50)
    env.add_master_hook(Hanging())
    running_counts(env, None, 500).sink_to(LedgerSink(jobs.folder / "out"))
    with structlog.testing.capture_logs() as logs:
        client = jobs.start(env, "hooked")
        wait_completed(client, 1)
        client.cancel().result(timeout=100)
        until(lambda: any("do not end" in log["event"] for log in logs), "the driver's end")
    (failed,) = [log for log in logs if log["event"] == "closing a master hook failed"]
    assert failed["hook"] == "snapshots" and "did not end within 0.1 s" in failed["error"]
    let_go.set()


def test_a_hook_that_cannot_be_restored_fails_the_attempt(jobs: Jobs) -> None:
    class Unwilling(Snapshots):
        def reset(self) -> None:
            raise OSError("the store is locked")

    env = jobs.checkpointed(1, 50, **{"restart-strategy.fixed-delay.attempts": 2})
    env.add_master_hook(Unwilling())
    running_counts(env, None, 500).sink_to(LedgerSink(jobs.folder / "out"))
    error = failure_of(jobs.start(env, "hooked"))
    assert isinstance(error, JobFailed) and "the store is locked" in str(error)


@pytest.mark.feature("F048")
def test_an_identifier_is_taken_once_and_never_blank(jobs: Jobs) -> None:
    env = jobs.env(1)
    assert env.add_master_hook(Snapshots("one")) is True
    assert env.add_master_hook(Snapshots("one")) is False
    with pytest.raises(ConfigError, match="blank identifier"):
        env.add_master_hook(Snapshots(" "))


class OneAtATime(Snapshots):
    """Sees how many trigger sequences are under way; each of its own lasts until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way = self.most = 0

    def trigger_checkpoint(
        self, checkpoint_id: CheckpointId, timestamp_ms: int
    ) -> Future[int | None]:
        self.triggered.append((checkpoint_id, timestamp_ms))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        done: Future[int | None] = Future()
        threading.Timer(0.002, self._let_go, (done,)).start()
        return done

    def _let_go(self, done: Future[int | None]) -> None:
        self.under_way -= 1
        done.set_result(1)


@pytest.mark.feature("F049")
def test_savepoints_that_many_ask_for_at_once_are_triggered_one_after_the_other(
    jobs: Jobs,
) -> None:
    hook = OneAtATime()
    env = jobs.env(1)
    env.add_master_hook(hook)
    running_counts(env, None, 500).filter(lambda row: not row).print()
    client = jobs.start(env, "asked")
    wait_running(client)
    begin = threading.Barrier(CLIENTS)

    def ask(number: int) -> str:
        begin.wait()
        return client.trigger_savepoint(jobs.folder / "savepoints").result(PATIENCE_S)

    with ThreadPoolExecutor(CLIENTS) as clients:
        paths = list(clients.map(ask, range(CLIENTS)))
    assert len(set(paths)) == CLIENTS
    assert len({checkpoint for checkpoint, _ in hook.triggered}) == CLIENTS
    assert hook.most == 1
    assert view(client).checkpoints.counts.completed == CLIENTS
