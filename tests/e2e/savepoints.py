"""What must hold of savepoints, whatever a job runs on; and the programs that they are taken of."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.e2e.jobs import key_of, running_counts, same
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.restores import RESTORE_PATH
from tests.e2e.runtimes import Jobs, finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import wait_for
from tidegate import (
    Duration,
    JobClient,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    TimeWindow,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
)
from tidegate.connectors import FileSink
from tidegate.model.control import JobStatus

END_S = 180
NEVER_MS = 24 * 3_600_000
WINDOW = 50
"""Numbers in a window: a number's event time is itself, in milliseconds."""

NAME = re.compile(r"savepoint-[0-9a-f]{6}-[0-9a-f]{12}")


def counting(
    jobs: Jobs,
    parallelism: int,
    rows: int | None,
    rate: float | None,
    *,
    start_from: str | None = None,
    out: Path | None = None,
    interval_ms: int = NEVER_MS,
    settings: dict[str, object] | None = None,
    name: str = "",
) -> JobClient:
    """Running counts into a ledger, and nothing committed but by a checkpoint asked for."""
    given = dict(settings or {})
    if start_from is not None:
        given[RESTORE_PATH] = start_from
    env = jobs.checkpointed(parallelism, interval_ms, **given)
    counts = running_counts(env, rows, rate)
    counts.sink_to(LedgerSink(out or jobs.folder / "out")).uid("ledger")
    return jobs.start(env, name or f"counts at {parallelism}")


def wait_rows(client: JobClient, count: int) -> None:
    """Wait until the last step has taken that many rows in."""
    wait_for(
        client,
        lambda seen: sum(s.figures.rows_in for s in seen.vertices[-1].subtasks) >= count,
        f"{count} rows",
    )


def status(client: JobClient) -> JobStatus:
    return client.get_job_status().result(timeout=END_S)


class Numbers(ProcessWindowFunction[int, dict[str, Any], int, TimeWindow]):
    """The numbers of a window."""

    def process(
        self, key: int, context: ProcessWindowFunction.Context, elements: Iterable[int]
    ) -> Iterable[dict[str, Any]]:
        window: TimeWindow = context.window()
        yield {"key": key, "start": window.start, "numbers": sorted(elements)}


def event_time_of(number: int, _: int = 0) -> int:
    return number


def windows(
    env: StreamExecutionEnvironment, folder: Path, rows: int | None, rate: float | None
) -> None:
    """The numbers of each window of each key, into files."""
    numbers = env.generate(same, rows, rate, Types.LONG()).set_parallelism(1).uid("numbers")
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    timed = numbers.assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(event_time_of)
    ).uid("times")
    keyed = timed.key_by(key_of, key_type=Types.LONG())
    windowed = keyed.window(TumblingEventTimeWindows.of(Duration.of_millis(WINDOW)))
    windowed.process(Numbers()).uid("windows").sink_to(FileSink.json(str(folder))).uid("files")


def committed(folder: Path) -> list[dict[str, Any]]:
    """The rows of all files that are not hidden."""
    files = sorted(folder.glob("[!.]*")) if folder.is_dir() else []
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def is_whole(row: dict[str, Any]) -> bool:
    """Whether a window holds all numbers of its key that fall into it."""
    span = range(row["start"], row["start"] + WINDOW)
    return row["numbers"] == [number for number in span if key_of(number) == row["key"]]


def numbers_in(rows: Iterable[dict[str, Any]]) -> Counter[int]:
    return Counter(number for row in rows for number in row["numbers"])


def check_stopped_and_gone_on(jobs: Jobs, parallelism: int, afterwards: int, total: int) -> None:
    """A job is stopped in the middle, and goes on at another parallelism: as if it had not been."""
    client = counting(jobs, parallelism, total, 1_000)
    wait_rows(client, total // 10)
    assert not ledger_rows(jobs.folder / "out")
    path = client.stop_with_savepoint(False, jobs.folder / "savepoints").result(timeout=END_S)
    assert status(client) is JobStatus.FINISHED
    assert NAME.fullmatch(Path(path).name) and (Path(path) / "_metadata").is_file()
    before = ledger_rows(jobs.folder / "out")
    check_each_counted_once(before, len(before))
    assert total // 10 <= len(before) < total
    client = counting(jobs, afterwards, total, None, start_from=path, interval_ms=100)
    finished(client)
    check_each_counted_once(ledger_rows(jobs.folder / "out"), total)
