"""State on disks that are full, files that are damaged, slots that are killed at it.

Nothing is lost, the checkpoint before stays, no file is left over, and the error says what is
wrong, where, and what to do.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.disks import small_disk
from tests.e2e.fatal import Doomed
from tests.e2e.jobs import Counted, RunningCount, running_counts
from tests.e2e.journal import Latch
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.leftovers import check_left_over
from tests.e2e.restores import RESTORE_PATH, stopped_with_checkpoint
from tests.e2e.runtimes import RETAIN, Jobs, finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import kill_slot, until, view, wait_completed, wait_for, wait_recovered
from tidegate import KeyedProcessFunction, RuntimeContext, ValueStateDescriptor
from tidegate.errors import FormatError, JobSuspended, RestoreRefused
from tidegate.model.failure_reason import FailureReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.disks import SmallDisk
    from tidegate import JobClient

pytestmark = pytest.mark.slow

TOTAL = 4_000
WEIGHT = 1 << 15
LOCAL = "state.backend.rocksdb.localdir"


class HeavyCount(RunningCount):
    """The same, with something in its state that takes room."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self._ballast = runtime_context.get_state(ValueStateDescriptor("ballast"))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[Counted]:
        self._ballast.update(os.urandom(WEIGHT))
        yield from super().process_element(value, ctx)


def start(jobs: Jobs, *, parallelism: int = 2, rate: float | None, **settings: object) -> JobClient:
    """Counts that take room, whose checkpoints may fail, and which lead to files however small."""
    given = {
        **RETAIN,
        "state.backend.type": "rocksdb",
        LOCAL: str(jobs.folder / "local"),
        "execution.checkpointing.data-inline-threshold": "0 b",
        "execution.checkpointing.tolerable-failed-checkpoints": 1_000,
        "restart-strategy.fixed-delay.delay": "100 ms",
    }
    env = jobs.checkpointed(parallelism, 200, **{**given, **settings})
    counts = running_counts(env, TOTAL, rate, HeavyCount())
    doomed = Doomed(Latch(jobs.folder / "uploading"), Latch(jobs.folder / "restoring"))
    counts.map(doomed).uid("doomed").sink_to(LedgerSink(jobs.folder / "out")).uid("ledger")
    return jobs.start(env, "counts")


def check_whole(jobs: Jobs, client: JobClient, checkpoints: Path) -> None:
    """The job comes to its end, with nothing lost, doubled or left over."""
    finished(client)
    check_each_counted_once(ledger_rows(jobs.folder / "out"), TOTAL)
    check_left_over(checkpoints, client.get_job_id())
    until(lambda: not list((jobs.folder / "local").rglob("*")), "nothing is left on the local disk")


@pytest.fixture
def disk(jobs: Jobs) -> Iterator[SmallDisk]:
    with small_disk(jobs.folder / "disk") as disk:
        yield disk
        jobs.end_all()


def test_a_full_checkpoint_folder_costs_checkpoints_and_nothing_else(
    jobs: Jobs, disk: SmallDisk
) -> None:
    checkpoints = disk.folder / "checkpoints"
    folder = {"execution.checkpointing.dir": str(checkpoints), "state.backend.type": "hashmap"}
    client = start(jobs, rate=2_000, **folder)
    wait_completed(client, 2)
    disk.fill(client)
    seen = wait_for(client, lambda seen: seen.checkpoints.latest_failed, "a failed checkpoint")
    failed = seen.checkpoints.latest_failed
    # The disk is full for whoever writes next: a slot its state, or the driver the metadata.
    assert failed is not None and failed.reason in {
        FailureReason.CHECKPOINT_ASYNC_EXCEPTION,
        FailureReason.FINALIZE_CHECKPOINT_FAILURE,
    }
    text = str(failed.failure)
    assert disk.error in text and f"where: {checkpoints}" in text and failed.failed_at in text
    assert "what to do: " in text and "name another folder" in text
    completed = seen.checkpoints.counts.completed
    kill_slot(client, 0)
    seen = wait_recovered(client, 1)
    assert seen.checkpoints.latest_restored is not None, "from the checkpoint before"
    disk.free(client)
    wait_completed(client, completed + 1)
    check_whole(jobs, client, checkpoints)


def test_a_full_local_disk_takes_the_job_back_to_its_checkpoint_until_there_is_room(
    jobs: Jobs, disk: SmallDisk
) -> None:
    client = start(jobs, rate=2_000, **{LOCAL: str(disk.folder / "local")})
    wait_completed(client, 2)
    disk.fill(client)
    seen = wait_for(client, lambda seen: seen.restarts, "a failure")
    text = seen.failures[-1].error
    assert disk.error in text and f"where: {disk.folder}" in text and "in KeyedProcess" in text
    assert f"what to do: Check that the disk is mounted and has room ({LOCAL} says which)" in text
    wait_for(client, lambda seen: seen.restarts > 1, "another one, as long as it is full")
    completed = seen.checkpoints.counts.completed
    disk.free(client)
    wait_completed(client, completed + 1)
    check_whole(jobs, client, jobs.checkpoints)
    until(lambda: not list((disk.folder / "local").rglob("*")), "nothing is left on the full disk")


def test_slots_killed_while_they_upload_and_while_they_restore_lose_nothing(jobs: Jobs) -> None:
    client = start(jobs, rate=2_000)
    wait_completed(client, 2)
    restoring = Latch(jobs.folder / "restoring")
    for latch, restarts in ((Latch(jobs.folder / "uploading"), 1), (restoring, 3)):
        wait_completed(client, view(client).checkpoints.counts.completed + 1)
        latch.set()
        if latch is restoring:
            kill_slot(client, 0)
        seen = wait_recovered(client, restarts)
        assert not latch.is_set, "a slot was killed there"
        assert seen.checkpoints.latest_restored is not None
    check_whole(jobs, client, jobs.checkpoints)


def lose(file: Path) -> None:
    file.unlink()


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def change(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lose, "lacks 1 of its files of state: "),
        (cut, " were written: "),
        (change, "A file of state is not as it was written: "),
    ],
)
def test_a_damaged_shared_file_is_named_with_its_checkpoint_and_operator(
    jobs: Jobs, damage: Callable[[Path], None], text: str
) -> None:
    last = stopped_with_checkpoint(start(jobs, parallelism=1, rate=2_000))
    assert last.pointer is not None
    file = min((Path(last.pointer).parent / "shared").iterdir())
    data = file.read_bytes()
    damage(file)
    again = {"restart-strategy.type": "none", RESTORE_PATH: last.pointer}
    with pytest.raises((RestoreRefused, FormatError, JobSuspended)) as raised:
        finished(start(jobs, parallelism=1, rate=None, **again))
    told = str(raised.value)
    assert text in told and str(file) in told
    assert "operator 'KeyedProcess'" in told and f"heckpoint {last.checkpoint}" in told
    assert "Put the file" in told and "start from another checkpoint" in told
    file.write_bytes(data)  # what it says can be done
    finished(start(jobs, parallelism=1, rate=None, **again))
    check_each_counted_once(ledger_rows(jobs.folder / "out"), TOTAL)
