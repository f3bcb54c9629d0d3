"""Savepoints: asked for, stopped with, started from."""

import shutil
from functools import partial
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from flinkformat.snapshots import PostCheckpointAction, SavepointType
from tests.e2e.jobs import running_counts, same
from tests.e2e.journal import Latch
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.leftovers import decoded, referenced
from tests.e2e.probes import Breaking
from tests.e2e.restores import RESTORE_PATH
from tests.e2e.runtimes import Jobs, failure_of, finished
from tests.e2e.savepoints import (
    END_S,
    NAME,
    NEVER_MS,
    WINDOW,
    check_stopped_and_gone_on,
    committed,
    counting,
    is_whole,
    numbers_in,
    status,
    wait_rows,
    windows,
)
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import view, wait_completed, wait_for, wait_running
from tidegate import (
    CheckpointAborted,
    ConfigError,
    JobFailed,
    SavepointFormatType,
    StopWithSavepointFailed,
    TidegateError,
    Types,
)
from tidegate.errors import OperatorMissing
from tidegate.model.control import JobStatus

pytestmark = pytest.mark.slow

SAVEPOINTS = "execution.checkpointing.savepoint-dir"
IN_FILES: dict[str, object] = {"execution.checkpointing.data-inline-threshold": "0 b"}


@pytest.mark.feature("F022", "F078")
@pytest.mark.parametrize("format", list(SavepointFormatType))
def test_a_savepoint_is_a_folder_of_its_own_that_needs_nothing_outside(
    jobs: Jobs, format: SavepointFormatType
) -> None:
    client = counting(jobs, 1, None, 500, interval_ms=100, settings=IN_FILES)
    wait_rows(client, 200)
    path = client.trigger_savepoint(jobs.folder / "savepoints", format=format).result(END_S)
    folder = Path(path)
    assert folder.parent == jobs.folder / "savepoints" and NAME.fullmatch(folder.name)
    assert folder.name[10:16] == client.get_job_id()[:6]
    files = referenced(folder / "_metadata")
    assert files and {file.parent for file in files} == {folder}
    properties = decoded(folder / "_metadata").properties
    assert properties is not None
    assert properties.snapshot_type == SavepointType("Savepoint", format, PostCheckpointAction.NONE)
    assert status(client) is JobStatus.RUNNING


@pytest.mark.feature("F077")
def test_a_savepoint_outlives_its_job_however_that_ends(jobs: Jobs) -> None:
    for end in ("finish", "cancel", "fail"):
        broken = Latch(jobs.folder / "broken")
        settings = {
            "restart-strategy.type": "disable",
            "execution.checkpointing.externalized-checkpoint-retention": (
                "NO_EXTERNALIZED_CHECKPOINTS"
            ),
            SAVEPOINTS: str(jobs.folder / end),
        }
        env = jobs.checkpointed(1, 100, **settings)
        rows = 300 if end == "finish" else None
        counts = running_counts(env, rows, 300).map(Breaking(broken))
        counts.sink_to(LedgerSink(jobs.folder / f"out-{end}"))
        client = jobs.start(env, end)
        wait_running(client)
        path = Path(client.trigger_savepoint().result(END_S))
        if end == "fail":
            broken.set()
            assert isinstance(failure_of(client), JobFailed)
        elif end == "cancel":
            client.cancel().result(END_S)
        finished_well = failure_of(client) is None
        assert finished_well == (end == "finish")
        assert path.parent == jobs.folder / end and (path / "_metadata").is_file()
        assert not list(jobs.checkpoints.glob("*/chk-*"))


@pytest.mark.feature("F264")
def test_a_job_that_was_stopped_goes_on_at_another_parallelism(jobs: Jobs) -> None:
    check_stopped_and_gone_on(jobs, 1, 3, 6_000)


@pytest.mark.feature("F264")
def test_windows_that_are_open_when_a_job_is_suspended_go_on_with_it(jobs: Jobs) -> None:
    out, total = jobs.folder / "out", 2_000
    env = jobs.checkpointed(1, NEVER_MS)
    windows(env, out, total, 500)
    client = jobs.start(env, "windows")
    wait_rows(client, 2 * WINDOW)
    path = client.stop_with_savepoint(False, jobs.folder / "savepoints").result(END_S)
    before = committed(out)
    assert before and all(map(is_whole, before))
    env = jobs.checkpointed(1, 100, **{RESTORE_PATH: path})
    windows(env, out, total, None)
    finished(jobs.start(env, "windows go on"))
    rows = committed(out)
    assert all(map(is_whole, rows)) and numbers_in(rows) == dict.fromkeys(range(total), 1)


@pytest.mark.feature("F265")
def test_a_job_that_is_drained_fires_its_windows_and_commits_them(jobs: Jobs) -> None:
    out, total = jobs.folder / "out", 2_000
    env = jobs.checkpointed(1, NEVER_MS)
    windows(env, out, total, 500)
    client = jobs.start(env, "windows")
    wait_rows(client, 2 * WINDOW + 1)
    path = client.stop_with_savepoint(True, jobs.folder / "savepoints").result(END_S)
    assert status(client) is JobStatus.FINISHED
    before = numbers_in(committed(out))
    read = len(before)
    assert before == dict.fromkeys(range(read), 1) and 2 * WINDOW < read < total
    env = jobs.checkpointed(1, 100, **{RESTORE_PATH: path})
    windows(env, out, total, None)
    finished(jobs.start(env, "behind the end"))
    assert numbers_in(committed(out)) == dict.fromkeys(range(total), 1)


@pytest.mark.feature("F266")
def test_a_job_that_fails_behind_its_last_savepoint_goes_on_from_it(jobs: Jobs) -> None:
    out, locked = jobs.folder / "out", Latch(jobs.folder / "locked")
    env = jobs.checkpointed(2, NEVER_MS, **{"sink.committer.retries": 0})
    running_counts(env, 4_000, 1_000).sink_to(LedgerSink(out, locked.path)).uid("ledger")
    client = jobs.start(env, "failing")
    wait_rows(client, 100)
    locked.set()
    asked = client.stop_with_savepoint(False, jobs.folder / "savepoints")
    error = asked.exception(END_S)
    assert isinstance(error, StopWithSavepointFailed)
    assert error.savepoint in error.what and Path(error.savepoint, "_metadata").is_file()
    assert "the ledger is locked" in error.what
    locked.release()
    seen = wait_for(client, lambda seen: seen.checkpoints.latest_restored, "it is restored")
    assert seen.checkpoints.latest_restored is not None
    assert seen.checkpoints.latest_restored.pointer == error.savepoint
    wait_running(client)
    path = client.stop_with_savepoint(False, jobs.folder / "savepoints").result(END_S)
    finished(counting(jobs, 1, 4_000, None, start_from=path, interval_ms=100))
    check_each_counted_once(ledger_rows(out), 4_000)


@pytest.mark.feature("F267")
def test_a_job_is_cancelled_behind_a_savepoint_that_holds_what_sinks_had_not_committed(
    jobs: Jobs,
) -> None:
    client = counting(jobs, 1, 4_000, 1_000)
    wait_rows(client, 200)
    path = client.cancel_with_savepoint(jobs.folder / "savepoints").result(END_S)
    assert status(client) is JobStatus.CANCELED
    assert not ledger_rows(jobs.folder / "out")
    finished(counting(jobs, 1, 4_000, None, start_from=path, interval_ms=100))
    check_each_counted_once(ledger_rows(jobs.folder / "out"), 4_000)


def test_a_job_without_checkpoints_stops_with_a_savepoint_too(jobs: Jobs) -> None:
    env = jobs.env(1)
    running_counts(env, 4_000, 1_000).sink_to(LedgerSink(jobs.folder / "out")).uid("ledger")
    client = jobs.start(env, "by hand")
    wait_rows(client, 200)
    path = client.stop_with_savepoint(False, jobs.folder / "savepoints").result(END_S)
    assert len(ledger_rows(jobs.folder / "out")) >= 200
    finished(counting(jobs, 1, 4_000, None, start_from=path, interval_ms=100))
    check_each_counted_once(ledger_rows(jobs.folder / "out"), 4_000)


@pytest.mark.feature("F187", "F253")
@pytest.mark.parametrize("format", list(SavepointFormatType))
def test_a_savepoint_that_has_been_moved_is_started_from_where_it_is(
    jobs: Jobs, format: SavepointFormatType
) -> None:
    client = counting(jobs, 1, 4_000, 1_000, settings=IN_FILES)
    wait_rows(client, 100)
    asked = client.stop_with_savepoint(False, jobs.folder / "savepoints", format=format)
    moved = jobs.folder / "elsewhere" / "kept"
    shutil.copytree(asked.result(END_S), moved)
    shutil.rmtree(jobs.folder / "savepoints")
    finished(counting(jobs, 2, 4_000, None, start_from=f"file://{moved}", interval_ms=100))
    check_each_counted_once(ledger_rows(jobs.folder / "out"), 4_000)


def test_two_savepoints_may_be_taken_at_once_but_only_one_stop(jobs: Jobs) -> None:
    client = counting(jobs, 1, None, 500)
    wait_running(client)
    target = jobs.folder / "savepoints"
    first, second = (client.trigger_savepoint(target) for _ in range(2))
    assert first.result(END_S) != second.result(END_S)
    stops = [client.stop_with_savepoint(False, target) for _ in range(2)]
    assert stops[0].exception(END_S) is None
    refused = stops[1].exception(END_S)
    assert isinstance(refused, CheckpointAborted)
    assert refused.reason == "CHECKPOINT_COORDINATOR_SUSPEND"
    late = client.trigger_savepoint(target).exception(END_S)
    assert isinstance(late, JobFailed) and "has ended" in late.what


def test_who_asks_again_under_the_same_id_gets_the_same_savepoint(jobs: Jobs) -> None:
    client = counting(jobs, 1, None, 500)
    wait_running(client)
    target = jobs.folder / "savepoints"
    asked = [client.trigger_savepoint(target, trigger_id="nightly") for _ in range(3)]
    paths = {done.result(END_S) for done in asked}
    assert client.trigger_savepoint(target, trigger_id="nightly").result(0) in paths
    assert client.trigger_savepoint(target, trigger_id="other").result(END_S) not in paths
    assert len(paths) == 1 and len(list(target.iterdir())) == 2


def test_a_savepoint_that_cannot_be_written_is_told_and_the_job_goes_on(jobs: Jobs) -> None:
    client = counting(jobs, 1, None, 500, interval_ms=100)
    wait_running(client)
    nowhere = client.trigger_savepoint().exception(END_S)
    assert isinstance(nowhere, ConfigError) and SAVEPOINTS in nowhere.remedy
    (jobs.folder / "file").write_text("no folder")
    for asked in (client.trigger_savepoint, partial(client.stop_with_savepoint, True)):
        error = asked(jobs.folder / "file" / "savepoints").exception(END_S)
        assert isinstance(error, CheckpointAborted) and error.reason == "IO_EXCEPTION"
        assert str(jobs.folder / "file") in str(error) and error.remedy
    with pytest.raises(ConfigError, match="not a format of savepoints"):
        client.trigger_savepoint(jobs.folder, format="native")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="has no name"):
        client.stop_with_savepoint(False, " ")
    seen = view(client)
    assert seen.restarts == 0
    wait_completed(client, seen.checkpoints.counts.completed + 2)


def cut_short(path: Path) -> str:
    (path / "_metadata").write_bytes((path / "_metadata").read_bytes()[:100])
    return "_metadata"


def of_another_kind(path: Path) -> str:
    (path / "_metadata").write_text("this was never a savepoint")
    return "_metadata"


def with_a_changed_bit(path: Path) -> str:
    data = (path / "_metadata").read_bytes()
    (path / "_metadata").write_bytes(data.replace(b'"job_name"', b'"kob_name"'))
    return "is not as it was written"


def newer(path: Path) -> str:
    data = bytearray((path / "_metadata").read_bytes())
    data[4:8] = (99).to_bytes(4)
    (path / "_metadata").write_bytes(data)
    return "version"


def never_completed(path: Path) -> str:
    (path / "_metadata").unlink()
    return "Cannot find meta data file"


def without_a_file(path: Path) -> str:
    lost = next(file for file in path.iterdir() if file.name != "_metadata")
    lost.unlink()
    return lost.name


def gone(path: Path) -> str:
    shutil.rmtree(path)
    return "Cannot find checkpoint or savepoint"


def test_a_folder_that_is_no_savepoint_of_the_job_is_refused_before_anything_starts(
    jobs: Jobs,
) -> None:
    client = counting(jobs, 1, None, 500, settings=IN_FILES)
    wait_rows(client, 1)
    asked = client.stop_with_savepoint(False, jobs.folder / "savepoints")
    path = Path(asked.result(END_S))
    harms = (
        cut_short,
        of_another_kind,
        with_a_changed_bit,
        newer,
        never_completed,
        without_a_file,
        gone,
    )
    for harm in harms:
        harmed = jobs.folder / harm.__name__
        shutil.copytree(path, harmed)
        named = harm(harmed)
        with pytest.raises(TidegateError) as refused:
            counting(jobs, 1, None, 500, start_from=str(harmed), name=harm.__name__)
        assert named in str(refused.value) and str(harmed) in str(refused.value), harm
        assert refused.value.remedy, harm
    env = jobs.checkpointed(1, NEVER_MS, **{RESTORE_PATH: str(path)})
    env.generate(same, None, 100, Types.LONG()).uid("other-uid").print()
    with pytest.raises(OperatorMissing) as unfit:
        jobs.start(env, "another job")
    assert "counts" in str(unfit.value)


class OfThisProcess(LocalFileSystem):
    """Files that only the process which has registered this can open."""

    protocol = "mine"
    auto_mkdir = True


def test_a_savepoint_where_slots_can_open_nothing_fails_and_the_job_goes_on(jobs: Jobs) -> None:
    fsspec.register_implementation("mine", OfThisProcess, clobber=True)
    env = jobs.checkpointed(2, 100)
    env.generate(lambda n: n, rate=100).filter(lambda n: False).print()
    client = jobs.start(env, "numbers")
    wait_completed(client, 1)
    refused = client.stop_with_savepoint(False, f"mine://{jobs.folder}/there").exception(END_S)
    assert "no driver for mine: files" in str(refused) and "Source" in str(refused)
    wait_completed(client, view(client).checkpoints.counts.completed + 2)
    client.cancel().result(END_S)


def test_a_savepoint_that_only_the_driver_can_read_is_none_and_who_cannot_is_named(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder has one name and is another for each process, as a disk of each machine.

    State as small as here is in the ``_metadata``, so that no slot has written a file.
    """
    env = jobs.checkpointed(2, 100)
    env.generate(lambda n: n, rate=100).filter(lambda n: False).print()
    client = jobs.start(env, "numbers")
    wait_completed(client, 1)
    monkeypatch.chdir(jobs.folder)
    refused = client.stop_with_savepoint(False, "/proc/self/cwd/savepoints").exception(END_S)
    slots = [slot.id for slot in view(client).slots]
    assert any(f"slot {slot} on " in str(refused) for slot in slots), refused
    assert "no file _metadata" in str(refused) and "share" in str(refused)
    wait_completed(client, view(client).checkpoints.counts.completed + 2)
    assert status(client) is JobStatus.RUNNING
    folder = str(jobs.folder / "savepoints")
    assert client.stop_with_savepoint(False, folder).result(END_S).startswith(folder)
