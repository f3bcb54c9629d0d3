"""A job goes on from a checkpoint that another has left."""

from pathlib import Path

import pytest
import structlog

from tests.e2e import restores
from tests.e2e.jobs import running_counts
from tests.e2e.journal import Journal, Latch
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.leftovers import check_left_over
from tests.e2e.probes import Breaking, BreakingOnce, Holding
from tests.e2e.restores import RESTORE_PATH, SLOWLY, TOTAL, start_counts, stopped_with_checkpoint
from tests.e2e.runtimes import RETAIN, Jobs, failure_of, finish_by_checkpoints, finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import completed, view, wait_completed, wait_running
from tidegate import JobClient, UserError

pytestmark = pytest.mark.slow

SPREAD = 5_000


@pytest.mark.feature("F030", "F141", "F196", "F198")
def test_a_job_goes_on_at_other_parallelisms(jobs: Jobs) -> None:
    restores.check_rescaled([(jobs, 1), (jobs, 2), (jobs, 3), (jobs, 1)])


@pytest.mark.feature("F206")
def test_state_of_each_kind_is_whole_at_2_3_and_1_subtasks(jobs: Jobs) -> None:
    """Keyed, split and union; broadcast state: tests/checkpoint/test_assignment.py."""
    pointer: dict[str, object] = {}
    for parallelism in (2, 3, 1):
        last = parallelism == 1
        env = jobs.checkpointed(parallelism, 150, **RETAIN, **pointer)
        journal = Journal(jobs.folder / f"journal-{parallelism}")
        counts = running_counts(env, SPREAD, None if last else SLOWLY).map(Holding(journal))
        counts.uid("holding").sink_to(LedgerSink(jobs.folder / "out")).uid("ledger")
        client = jobs.start(env, f"spread over {parallelism}")
        if last:
            finished(client)
        else:
            pointer = {restores.RESTORE_PATH: stopped_with_checkpoint(client).pointer}
        opened = journal.notes("open")
        assert len(opened) == parallelism
        split = [note["list"] for note in opened]
        held = sorted(number for part in split for number in part)
        assert len(set(held)) == len(held)
        assert bool(held) == (parallelism != 2)
        assert max(map(len, split)) - min(map(len, split)) <= 1
        assert all(note["union"] == held for note in opened)
    [closed] = journal.notes("close")
    assert sorted(closed["list"]) == list(range(SPREAD))
    check_each_counted_once(ledger_rows(jobs.folder / "out"), SPREAD)


@pytest.mark.feature("F193")
def test_a_checkpoint_is_named_by_its_folder_or_by_its_metadata_file(jobs: Jobs) -> None:
    before = stopped_with_checkpoint(start_counts(jobs, 1))
    pointers = (before.pointer, f"{before.pointer}/_metadata", f"file://{before.pointer}/")
    for out, pointer in zip(("folder", "file", "url"), pointers, strict=True):
        finished(start_counts(jobs, 1, rate=None, pointer=pointer, out=out))
        rows = ledger_rows(jobs.folder / "out", jobs.folder / out)
        check_each_counted_once(rows, restores.TOTAL)


def test_what_a_slot_left_goes_at_the_end_though_the_snapshot_started_from_is_still_kept(
    jobs: Jobs,
) -> None:
    before = stopped_with_checkpoint(start_counts(jobs, 1))
    settings = {RESTORE_PATH: before.pointer, "execution.checkpointing.num-retained": 100}
    env = jobs.checkpointed(1, 100, **settings)
    running_counts(env, TOTAL, 10 * SLOWLY).sink_to(LedgerSink(jobs.folder / "out")).uid("ledger")
    client = jobs.start(env, "counts again")
    wait_completed(client, 1)
    left = jobs.checkpoints / client.get_job_id() / "shared" / f"1-0-{0:016x}"
    left.write_bytes(b"written behind the end of its checkpoint")
    finished(client)
    assert not left.exists()
    assert before.pointer is not None and Path(before.pointer, "_metadata").is_file()


@pytest.mark.feature("F192", "F193")
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("", "checkpoint"),
        ("empty", "Cannot find meta data file '_metadata' in directory"),
        ("nowhere/chk-1", "Cannot find checkpoint or savepoint file/directory"),
    ],
)
def test_a_pointer_to_no_checkpoint_is_refused_before_anything_runs(
    jobs: Jobs, wrong: str, text: str
) -> None:
    (jobs.folder / "empty").mkdir()
    pointer = str(jobs.folder / wrong) if wrong else ""
    with pytest.raises(UserError, match=text) as refused:
        start_counts(jobs, 2, pointer=pointer)
    assert refused.value.remedy
    assert not ledger_rows(jobs.folder / "out")


@pytest.mark.feature("F195")
def test_a_failure_before_the_first_checkpoint_goes_back_to_the_snapshot_that_was_named(
    jobs: Jobs,
) -> None:
    before = stopped_with_checkpoint(start_counts(jobs, 1))
    broken = Latch(jobs.folder / "broken")
    broken.set()
    env = jobs.checkpointed(1, 3_600_000, **{restores.RESTORE_PATH: before.pointer})
    numbers = running_counts(env, TOTAL, None).map(BreakingOnce(broken))
    numbers.sink_to(LedgerSink(jobs.folder / "on")).uid("ledger")
    client = jobs.start(env, "on")
    finish_by_checkpoints(client)
    seen = view(client)
    assert (seen.restarts, seen.checkpoints.counts.restored) == (1, 2)
    assert seen.checkpoints.latest_restored is not None
    assert seen.checkpoints.latest_restored.pointer == before.pointer
    rows = ledger_rows(jobs.folder / "out", jobs.folder / "on")
    check_each_counted_once(rows, TOTAL)


@pytest.mark.feature("F042")
def test_the_newest_is_restored_whatever_an_old_setting_says(jobs: Jobs) -> None:
    def start(**settings: object) -> JobClient:
        env = jobs.checkpointed(1, 100, **RETAIN, **settings)
        running_counts(env, TOTAL, SLOWLY).sink_to(LedgerSink(jobs.folder / "out"))
        return jobs.start(env, "counts")

    newest = stopped_with_checkpoint(start())
    old = {"execution.checkpointing.prefer-checkpoint-for-recovery": "false"}
    with structlog.testing.capture_logs() as logs:
        client = start(**{restores.RESTORE_PATH: "latest"}, **old)
    told = [log["setting"] for log in logs if log["event"] == "a setting has no effect"]
    assert [text.partition(" ")[0] for text in told] == list(old)
    restored = wait_running(client).checkpoints.latest_restored
    assert restored is not None and restored.checkpoint == newest.checkpoint


@pytest.mark.feature("F040")
def test_as_many_checkpoints_are_kept_as_was_asked_for(jobs: Jobs) -> None:
    env = jobs.checkpointed(1, 50, **RETAIN, **{"execution.checkpointing.num-retained": 3})
    running_counts(env, None, 500).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "counts")
    wait_completed(client, 6)
    client.cancel().result(timeout=100)
    newest = [checkpoint.pointer for checkpoint in completed(view(client))][-3:]
    kept = sorted((jobs.checkpoints / client.get_job_id()).glob("chk-*"), key=number_of)
    assert [str(folder) for folder in kept] == newest
    assert all((folder / "_metadata").is_file() for folder in kept)


def number_of(folder: Path) -> int:
    return int(folder.name.removeprefix("chk-"))


@pytest.mark.feature("F019")
def test_two_jobs_over_one_folder_keep_apart(jobs: Jobs) -> None:
    clients = []
    for name in ("one", "two"):
        env = jobs.checkpointed(1, 50, **RETAIN)
        running_counts(env, TOTAL, SLOWLY).sink_to(LedgerSink(jobs.folder / name)).uid("ledger")
        clients.append(jobs.start(env, name))
    stopped = [stopped_with_checkpoint(client, 1) for client in clients]
    folders = {Path(checkpoint.pointer or "").parent.name for checkpoint in stopped}
    assert folders == {client.get_job_id() for client in clients} and len(folders) == 2
    for name, checkpoint in zip(("one", "two"), stopped, strict=True):
        finished(start_counts(jobs, 1, rate=None, pointer=checkpoint.pointer, out=f"{name}-on"))
        rows = ledger_rows(jobs.folder / name, jobs.folder / f"{name}-on")
        check_each_counted_once(rows, TOTAL)


KEPT = {
    ("NO_EXTERNALIZED_CHECKPOINTS", "FINISHED"): False,
    ("NO_EXTERNALIZED_CHECKPOINTS", "CANCELED"): False,
    ("NO_EXTERNALIZED_CHECKPOINTS", "FAILED"): False,
    ("DELETE_ON_CANCELLATION", "FINISHED"): False,
    ("DELETE_ON_CANCELLATION", "CANCELED"): False,
    ("DELETE_ON_CANCELLATION", "FAILED"): True,
    ("RETAIN_ON_CANCELLATION", "FINISHED"): False,
    ("RETAIN_ON_CANCELLATION", "CANCELED"): True,
    ("RETAIN_ON_CANCELLATION", "FAILED"): True,
}
"""Checkpoint coordination §10.4, without SUSPENDED."""


@pytest.mark.parametrize(("policy", "end"), KEPT)
def test_the_retention_policy_decides_what_stays_at_the_end(
    jobs: Jobs, policy: str, end: str
) -> None:
    broken = Latch(jobs.folder / "broken")
    settings = {
        "execution.checkpointing.externalized-checkpoint-retention": policy,
        "restart-strategy.type": "disable",
    }
    env = jobs.checkpointed(1, 50, **settings)
    rows = 200 if end == "FINISHED" else None
    numbers = running_counts(env, rows, 1_000).map(Breaking(broken))
    numbers.sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "counts")
    if end != "FINISHED":
        wait_completed(client, 2)
    if end == "CANCELED":
        client.cancel()
    elif end == "FAILED":
        broken.set()
    error = failure_of(client)
    assert (error is None) == (end == "FINISHED")
    assert view(client).status.value == end
    left = list((jobs.checkpoints / client.get_job_id()).glob("chk-*"))
    assert bool(left) == KEPT[policy, end]
    check_left_over(jobs.checkpoints, client.get_job_id())
