"""What a runtime must make of bad input: one clear error, soon, with nothing lost or hung."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.e2e.jobs import running_counts, same
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.runtimes import END_S, Jobs, failure_of, finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import view, wait_completed, wait_for
from tidegate import (
    ConfigError,
    GraphError,
    JobFailed,
    StreamExecutionEnvironment,
    TidegateError,
    Types,
)
from tidegate.connectors import FileSource

SOON_S = 120.0
"""A time limit, where nothing may hang: a busy machine takes most of a minute to start a slot."""


@contextmanager
def soon() -> Iterator[None]:
    """Whatever happens within happens soon."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < SOON_S


def check_clear(error: BaseException | None, *texts: object) -> None:
    """The error says what happened, where, and what to do; the texts are in it."""
    assert isinstance(error, TidegateError), error
    assert error.what and error.where and error.remedy, error
    for text in texts:
        assert str(text) in str(error)


def check_refused(
    jobs: Jobs,
    build: Callable[[StreamExecutionEnvironment], object],
    kind: type[TidegateError],
    *texts: object,
    **settings: object,
) -> None:
    """The program is refused before anything runs. Raises nothing else."""
    env = jobs.env(2, **settings)
    with soon(), pytest.raises(kind) as refused:
        build(env)
        jobs.start(env, "refused")
    check_clear(refused.value, *texts)


def check_fails(
    jobs: Jobs, build: Callable[[StreamExecutionEnvironment], object], *texts: object
) -> None:
    """The job fails when its restarts are used up: the data are the same each time."""
    env = jobs.checkpointed(2, 100, **{"restart-strategy.fixed-delay.attempts": 2})
    build(env)
    with soon():
        client = jobs.start(env, "failing")
        error = failure_of(client)
    assert isinstance(error, JobFailed)
    check_clear(error, *texts)
    assert view(client).restarts == 2


def check_missing_path(jobs: Jobs) -> None:
    missing = jobs.folder / "nowhere"
    check_refused(
        jobs,
        lambda env: env.from_source(FileSource.parquet(str(missing))).print(),
        ConfigError,
        missing,
    )


def check_unreadable_file(jobs: Jobs) -> None:
    """The first file is looked at before the job starts."""
    broken = jobs.folder / "broken.parquet"
    broken.write_bytes(b"this is no parquet")
    check_refused(
        jobs,
        lambda env: env.from_source(FileSource.parquet(str(broken))).print(),
        TidegateError,
        broken,
    )


def check_unreadable_later_file(jobs: Jobs) -> None:
    """Another one is found when its turn comes; the job says which."""
    folder = jobs.folder / "in"
    folder.mkdir()
    pq.write_table(pa.table({"number": [1]}), folder / "a.parquet")
    (folder / "b.parquet").write_bytes(b"this is no parquet")

    def build(env: StreamExecutionEnvironment) -> None:
        rows = env.from_source(FileSource.parquet(str(folder)))
        rows.sink_to(LedgerSink(jobs.folder / "out"))

    env = jobs.env(2)
    build(env)
    with soon():
        error = failure_of(jobs.start(env, "unreadable"))
    check_clear(error, folder / "b.parquet")


def malformed(folder: Path) -> Path:
    """JSON lines of which the third is none."""
    file = folder / "rows.jsonl"
    file.write_text('{"number": 1}\n{"number": 2}\n{"number": oops}\n{"number": 4}\n')
    return file


def check_malformed_row_fails(jobs: Jobs) -> None:
    file = malformed(jobs.folder)
    check_fails(
        jobs,
        lambda env: env.from_source(FileSource.json(str(file))).sink_to(
            LedgerSink(jobs.folder / "out")
        ),
        file,
        "3",
    )
    assert not ledger_rows(jobs.folder / "out")


def check_malformed_row_is_skipped_and_counted(jobs: Jobs) -> None:
    file = malformed(jobs.folder)
    env = jobs.checkpointed(2, 100, **{"heartbeat.interval": "50 ms"})
    source = FileSource.json(str(file)).on_malformed("skip")
    env.from_source(source).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "skipping")
    finished(client)
    numbers = sorted(row["number"] for row in ledger_rows(jobs.folder / "out"))
    assert numbers == [1, 2, 4]
    figures = [subtask.figures for vertex in view(client).vertices for subtask in vertex.subtasks]
    assert sum(figure.counts.skipped for figure in figures) == 1


def check_unpicklable_function(jobs: Jobs) -> None:
    lock = threading.Lock()

    def build(env: StreamExecutionEnvironment) -> None:
        env.from_collection([1]).map(lambda number: (number, lock)).name("locked").print()

    check_refused(jobs, build, GraphError, "locked", "lock")


class Opaque:
    """A key without a stable hash."""


def opaque(number: int) -> object:
    return Opaque()


def mixed(number: int) -> object:
    return number if number % 2 else str(number)


def check_unstable_key(jobs: Jobs) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        env.from_collection([1, 2, 3]).key_by(opaque).reduce(max).print()

    check_fails(jobs, build, "Opaque")


def check_mixed_keys(jobs: Jobs) -> None:
    """Two types in one key stream: both values are shown."""

    def build(env: StreamExecutionEnvironment) -> None:
        env.from_collection([1, 2, 3]).key_by(mixed).reduce(max).print()

    check_fails(jobs, build, "1", "'2'")


def check_folder_that_cannot_be_written(jobs: Jobs) -> None:
    (jobs.folder / "file").touch()
    folder = jobs.folder / "file" / "checkpoints"
    check_refused(
        jobs,
        lambda env: env.from_collection([1]).print(),
        TidegateError,
        folder,
        **{"execution.checkpointing.interval": 100, "execution.checkpointing.dir": str(folder)},
    )


def check_second_execute(jobs: Jobs) -> None:
    """A job of the same name over the same folder is refused; the first goes on unharmed."""
    env = jobs.checkpointed(1, 100)
    running_counts(env, None, 1_000).sink_to(LedgerSink(jobs.folder / "out"))
    first = jobs.start(env, "twice")
    wait_completed(first, 1)
    again = jobs.checkpointed(1, 100)
    running_counts(again, 10, None).sink_to(LedgerSink(jobs.folder / "second"))
    with soon(), pytest.raises(ConfigError) as refused:
        jobs.start(again, "twice")
    check_clear(refused.value, "twice", "already running")
    first.stop_with_savepoint(False, jobs.folder / "savepoints").result(END_S)
    rows = ledger_rows(jobs.folder / "out")
    check_each_counted_once(rows, len(rows))
    assert rows and not ledger_rows(jobs.folder / "second")
    third = jobs.checkpointed(1, 100)
    running_counts(third, 10, None).sink_to(LedgerSink(jobs.folder / "third"))
    finished(jobs.start(third, "twice"))
    check_each_counted_once(ledger_rows(jobs.folder / "third"), 10)


def divide_by_zero_at_seven(number: int) -> float:
    return number / (number - 7)


def check_user_exception(jobs: Jobs, parallelism: int) -> None:
    """It arrives with its traceback, the operator and the row."""
    env = jobs.env(parallelism)
    numbers = env.generate(same, 20, None, Types.LONG())
    numbers.map(divide_by_zero_at_seven).name("divide").print()
    with soon(), pytest.raises(JobFailed) as failed:
        finished(jobs.start(env, "dividing"))
    check_clear(failed.value, "ZeroDivisionError", "divide", "7", "bad_input.py")
    assert "return number / (number - 7)" in str(failed.value)
    assert "in divide_by_zero_at_seven" in str(failed.value)


def check_user_exception_restarts(jobs: Jobs) -> None:
    """A function that fails once is restarted from the newest checkpoint, by the strategy."""
    env = jobs.checkpointed(2, 100)
    failing = FailingOnce(jobs.folder / "has failed")
    running_counts(env, 2_000, 2_000).map(failing).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "failing once")
    wait_for(client, lambda seen: seen.restarts == 1, "one restart")
    finished(client)
    check_each_counted_once(ledger_rows(jobs.folder / "out"), 2_000)
    assert view(client).restarts == 1


class FailingOnce:
    """Raises at one row, unless it has done so."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __call__(self, row: dict[str, int]) -> dict[str, int]:
        if row["number"] == 1_200 and not self._mark.exists():
            self._mark.touch()
            raise RuntimeError("once is enough")
        return row
