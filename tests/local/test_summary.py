"""What a job says at its end of its rows, checkpoints and restarts."""

from pathlib import Path

import pytest

from examples.late_data import EachRecord
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.runtimes import Jobs, failure_of, finished
from tests.e2e.staged import KILL, StagedSource
from tidegate import (
    DeadLetter,
    JobFailed,
    JobStatus,
    JobSummary,
    OutputTag,
    Time,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from tidegate.connectors import FileSource
from tidegate.model.control import RowCounts

BAD = OutputTag[DeadLetter]("bad")


def test_a_summary_is_a_few_lines() -> None:
    rows = RowCounts(1_250, 998, late=2, skipped=1, dead_letters=3)
    summary = JobSummary("orders", JobStatus.FAILED, 12_345, rows, 12, 1, 1)
    assert str(summary) == (
        "job 'orders' is FAILED after 12.3 s: 1,250 rows read, 998 written, repeats included\n"
        "  2 rows too late and dropped, 1 row skipped as unreadable, 3 rows sent to dead letters\n"
        "  12 checkpoints (1 more given up), 1 restart"
    )
    quiet = JobSummary("orders", JobStatus.FINISHED, 50, RowCounts(1, 1))
    assert str(quiet) == "job 'orders' is FINISHED after 0.1 s: 1 row read, 1 written"
    failed = JobSummary("orders", JobStatus.FINISHED, 50, RowCounts(1, 1), checkpoints_failed=2)
    assert str(failed).endswith("\n  0 checkpoints (2 more given up)")


def write_lines(folder: Path) -> FileSource:
    file = folder / "lines.json"
    times = [1_000, 2_000, 30_000, 3_000, 31_000]
    lines = [f'{{"key": "a", "time": {time}}}' for time in times]
    file.write_text("\n".join([*lines, "oops", '{"key": "a", "time": "x"}', ""]))
    return FileSource.json(str(file)).on_malformed("skip")


@pytest.mark.slow
@pytest.mark.parametrize("told", [True, False])
def test_a_job_says_at_its_end_what_became_of_its_rows(
    jobs: Jobs, capsys: pytest.CaptureFixture[str], told: bool
) -> None:
    env = jobs.env(1, **{"tidegate.job.summary": told})
    each_record = WatermarkStrategy.for_generator(EachRecord).with_timestamp_assigner("time")
    timed = (
        env.from_source(write_lines(jobs.folder))
        .map(lambda row: {**row, "time": int(row["time"])})
        .dead_letters(BAD)
        .assign_timestamps_and_watermarks(each_record)
    )
    windows = timed.key_by("key").window(TumblingEventTimeWindows.of(Time.seconds(10)))
    windows.reduce(lambda one, other: other).sink_to(LedgerSink(jobs.folder / "out"))
    result = env.execute("rows")
    summary = result.get_summary()
    assert summary is not None and summary.status is JobStatus.FINISHED
    assert summary.rows == RowCounts(read=6, written=2, late=1, skipped=1, dead_letters=1)
    assert len(ledger_rows(jobs.folder / "out")) == 2
    assert (f"{summary}\n" in capsys.readouterr().err) == told


@pytest.mark.slow
def test_a_summary_file_that_cannot_be_written_is_told_and_costs_the_job_nothing(
    jobs: Jobs, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = jobs.folder / "nowhere" / "told.jsonl"
    env = jobs.env(1, **{"tidegate.job.summary-file": str(missing)})
    env.from_collection([1]).sink_to(LedgerSink(jobs.folder / "out"))
    assert env.execute("rows").get_summary() is not None
    said = capsys.readouterr().err
    assert "the summary of the job could not be written" in said and str(missing) in said


@pytest.mark.slow
def test_a_killed_slot_and_its_restart_are_in_the_summary(
    jobs: Jobs, capsys: pytest.CaptureFixture[str]
) -> None:
    env = jobs.checkpointed(2, 100)
    script = [*range(10), KILL, *range(10, 30)]
    rows = env.from_source(StagedSource(script), None, "input").set_parallelism(1).uid("input")
    rows.rebalance().sink_to(LedgerSink(jobs.folder / "out")).uid("out")
    client = jobs.start(env, "killed")
    finished(client)
    summary = client.get_job_execution_result().result().get_summary()
    assert summary is not None and (summary.restarts, summary.name) == (1, "killed")
    # What the killed slot did last is told to nobody.
    assert summary.rows.read >= 20 and summary.rows.written >= 20 and summary.checkpoints >= 1
    assert f"{summary}\n" in capsys.readouterr().err


@pytest.mark.slow
def test_a_job_that_fails_says_it_too(jobs: Jobs, capsys: pytest.CaptureFixture[str]) -> None:
    env = jobs.env(1)
    env.from_collection(["1", "2", "x"]).map(int).print()
    assert isinstance(failure_of(jobs.start(env, "broken")), JobFailed)
    assert "job 'broken' is FAILED after" in capsys.readouterr().err
