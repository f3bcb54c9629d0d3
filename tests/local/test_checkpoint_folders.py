"""Where the checkpoints of a job lie, what stands in their way, and who may use a folder."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.watch import until
from tidegate import (
    Configuration,
    JobClient,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from tidegate.api.job import CheckpointDone
from tidegate.errors import CheckpointAborted, ConfigError, JobFailed, StorageFailed
from tidegate.snapshots.checking.fsck import fsck

pytestmark = pytest.mark.slow

END_S = 100.0
MIB = 1024 * 1024


class Hoard(KeyedProcessFunction[int, int]):
    """Keeps so many bytes for each key, and counts its rows."""

    def __init__(self, size: int) -> None:
        self._size = size

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self._bytes = runtime_context.get_state(
            ValueStateDescriptor("bytes", Types.PICKLED_BYTE_ARRAY())
        )

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        self._bytes.update(bytes(self._size))
        yield count


def environment(settings: dict[str, object]) -> StreamExecutionEnvironment:
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set(key, value)
    return StreamExecutionEnvironment.local(configuration=configuration)


@contextmanager
def running(settings: dict[str, object], name: str, *, size: int = 10) -> Iterator[JobClient]:
    """An endless job with state, cancelled at the end."""
    env = environment(settings)
    numbers = env.generate(lambda number: number, None, 2_000, Types.LONG()).uid("numbers")
    keyed = numbers.key_by(lambda number: number % 3, key_type=Types.LONG())
    keyed.process(Hoard(size)).uid("hoard")
    client = env.execute_async(name)
    try:
        yield client
    finally:
        client.cancel().result(timeout=END_S)


def checkpoint_of(client: JobClient) -> CheckpointDone:
    """A checkpoint of a job, asked for again as long as not all its tasks run."""
    turns, deadline_s = threading.Event(), time.monotonic() + END_S
    while True:
        try:
            return client.trigger_checkpoint().result(timeout=END_S)
        except CheckpointAborted as aborted:
            if aborted.reason != "NOT_ALL_REQUIRED_TASKS_RUNNING" or time.monotonic() > deadline_s:
                raise
        turns.wait(0.01)


def in_folder(folder: Path, **more: object) -> dict[str, object]:
    return {
        "execution.checkpointing.interval": "10 min",
        "execution.checkpointing.dir": str(folder),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        **more,
    }


@pytest.mark.feature("F017")
def test_without_a_folder_a_checkpoint_completes_and_makes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with running({"execution.checkpointing.interval": "10 min"}, "in memory") as client:
        assert checkpoint_of(client).checkpoint == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.feature("F017")
def test_state_too_large_for_the_drivers_memory_fails_with_what_to_do() -> None:
    settings: dict[str, object] = {
        "execution.checkpointing.interval": "50 ms",
        "restart-strategy.type": "none",
    }
    with (
        pytest.raises(JobFailed) as caught,
        running(settings, "too large", size=6 * MIB) as client,
    ):
        client.get_job_execution_result().result(timeout=END_S)
    assert "larger than the maximum permitted memory-backed state" in str(caught.value)
    assert "execution.checkpointing.dir" in str(caught.value)


@pytest.mark.feature("F018", "F019")
def test_two_jobs_share_a_folder_each_with_checkpoints_of_its_own(tmp_path: Path) -> None:
    pointers: dict[str, str] = {}
    with running(in_folder(tmp_path), "one") as one, running(in_folder(tmp_path), "two") as two:
        for name, client in (("one", one), ("two", two)):
            pointers[name] = checkpoint_of(client).pointer
            assert pointers[name] == f"{tmp_path}/{client.get_job_id()}/chk-1"
            assert (Path(pointers[name]) / "_metadata").is_file()
    assert len(set(pointers.values())) == 2
    for name, pointer in pointers.items():
        settings = in_folder(tmp_path, **{"execution.state-recovery.path": pointer})
        with running(settings, f"{name} again") as client:
            assert checkpoint_of(client).checkpoint == 2


@pytest.mark.feature("F031")
def test_a_folder_that_cannot_be_written_fails_the_job_at_its_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with (
        pytest.raises(StorageFailed, match="checkpoint folder cannot be written") as caught,
        running(in_folder(tmp_path / "file" / "c"), "nowhere"),
    ):
        pass
    assert str(tmp_path / "file") in caught.value.where
    assert "name another folder" in caught.value.remedy


def test_a_second_execute_over_the_same_folder_is_refused_and_the_first_goes_on(
    tmp_path: Path,
) -> None:
    with running(in_folder(tmp_path), "orders") as first:
        with (
            pytest.raises(ConfigError, match="Job 'orders' is already running"),
            running(in_folder(tmp_path), "orders"),
        ):
            pass
        assert checkpoint_of(first).checkpoint == 1


def test_the_newest_checkpoint_is_found_by_the_jobs_name(tmp_path: Path) -> None:
    with running(in_folder(tmp_path), "orders") as client:
        for number in (1, 2):
            assert checkpoint_of(client).checkpoint == number
        job = client.get_job_id()
    latest = in_folder(tmp_path, **{"execution.state-recovery.path": "latest"})
    with running(latest, "orders") as client:
        assert client.get_job_id() == job
        assert checkpoint_of(client).checkpoint == 3
    with (
        pytest.raises(ConfigError, match="no earlier run of job 'others'"),
        running(latest, "others"),
    ):
        pass


@pytest.mark.parametrize("spelling", ["link", "other/../real"])
def test_a_job_goes_on_with_its_folder_spelled_in_another_way(
    tmp_path: Path, spelling: str
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to("real")
    more: dict[str, object] = {
        "execution.checkpointing.incremental": True,
        "execution.checkpointing.num-retained": 1,
        "state.backend.type": "rocksdb",
        "state.storage.fs.memory-threshold": "0 b",
    }
    with running(in_folder(tmp_path / "real", **more), "moved") as client:
        former = Path(checkpoint_of(client).pointer)
    again = in_folder(tmp_path / spelling, **more, **{"execution.state-recovery.path": "latest"})
    with running(again, "moved") as client:
        checkpoint_of(client)
        until(lambda: not former.exists(), "its own checkpoint is replaced")
    report = fsck(tmp_path / "real", delete_orphans=True)
    assert report.healthy
    assert [each.checkpoint for each in report.snapshots] == [2]
