"""Files in and out over failures and restores: each part read once, each row committed once."""

from pathlib import Path

import pytest

from tests.e2e.files import committed_rows, write_numbers
from tests.e2e.jobs import COUNT_SCHEMA, KEYS, RunningCount, running_counts
from tests.e2e.journal import Journal, Latch
from tests.e2e.ledger import LedgerSink, ledger_files, ledger_rows
from tests.e2e.probes import Probe
from tests.e2e.restores import RESTORE_PATH, stopped_with_checkpoint
from tests.e2e.runtimes import RETAIN, Jobs, finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import kill_slot, until, view, wait_completed, wait_for, wait_recovered
from tidegate import JobClient, Types
from tidegate.connectors import FileSink, FileSource

pytestmark = pytest.mark.slow

FILES, ROWS_EACH = 10, 200


def start_reading(
    jobs: Jobs, *, rate: float | None, pointer: str | None = None, watch: bool = False
) -> JobClient:
    """Numbers from files, counted into files, in one process."""
    restore = {} if pointer is None else {RESTORE_PATH: pointer}
    env = jobs.checkpointed(1, 100, **RETAIN, **restore)
    source = FileSource.parquet(str(jobs.folder / "in")).rate(rate)
    if watch:
        source = source.monitor_continuously(50)
    numbers = env.from_source(source).uid("files in").map(lambda row: row["number"])
    keyed = numbers.key_by(lambda number: number % KEYS, key_type=Types.LONG())
    sink = FileSink.parquet(str(jobs.folder / "out"), COUNT_SCHEMA)
    keyed.process(RunningCount()).uid("counts").sink_to(sink).uid("files out")
    return jobs.start(env, f"files to {pointer}")


@pytest.mark.feature("F208")
def test_files_that_were_read_are_not_read_again(jobs: Jobs) -> None:
    """They are not even there any more when the job goes on."""
    write_numbers(jobs.folder / "in", FILES, ROWS_EACH)
    client = start_reading(jobs, rate=1_000)
    wait_for(
        client, lambda _: len(committed_rows(jobs.folder / "out")) > 4 * ROWS_EACH, "four files"
    )
    before = stopped_with_checkpoint(client)
    done = finished_files(jobs.folder)
    assert 4 <= len(done) < FILES
    for file in done:
        file.unlink()
    finished(start_reading(jobs, rate=None, pointer=before.pointer))
    check_each_counted_once(committed_rows(jobs.folder / "out"), FILES * ROWS_EACH)


def finished_files(folder: Path) -> list[Path]:
    """The files of which each row is committed."""
    numbers = {row["number"] for row in committed_rows(folder / "out")}
    return [
        file
        for index, file in enumerate(sorted((folder / "in").iterdir()))
        if numbers.issuperset(range(index * ROWS_EACH, (index + 1) * ROWS_EACH))
    ]


@pytest.mark.feature("F289")
def test_a_watched_folder_gives_each_new_file_once(jobs: Jobs) -> None:
    write_numbers(jobs.folder / "in", 2, ROWS_EACH)
    write_numbers(jobs.folder / "later", 4, ROWS_EACH)
    out = jobs.folder / "out"

    def appears(index: int) -> None:
        (jobs.folder / "later" / f"{index:03}.parquet").rename(
            jobs.folder / "in" / f"{index:03}.parquet"
        )

    client = start_reading(jobs, rate=None, watch=True)
    wait_for(client, lambda _: len(committed_rows(out)) == 2 * ROWS_EACH, "what was there")
    appears(2)
    wait_for(client, lambda _: len(committed_rows(out)) == 3 * ROWS_EACH, "the new file")
    before = stopped_with_checkpoint(client)
    appears(3)
    client = start_reading(jobs, rate=None, pointer=before.pointer, watch=True)
    wait_for(client, lambda _: len(committed_rows(out)) >= 4 * ROWS_EACH, "the newest file")
    wait_completed(client, 3)
    check_each_counted_once(committed_rows(out), 4 * ROWS_EACH)


@pytest.mark.feature("F285")
def test_what_a_crash_kept_from_being_committed_is_committed_after_it(jobs: Jobs) -> None:
    locked, out = Latch(jobs.folder / "locked"), jobs.folder / "out"
    locked.set()
    env = jobs.checkpointed(2, 100)
    running_counts(env, 2_000, 2_000).sink_to(LedgerSink(out, broken_while=locked.path))
    client = jobs.start(env, "counts")
    wait_completed(client, 2)
    assert not ledger_files(out)
    kill_slot(client, 0)
    wait_for(client, lambda seen: seen.restored is not None, "a restore")
    locked.release()
    finished(client)
    check_each_counted_once(ledger_rows(out), 2_000)


@pytest.mark.feature("F099", "F104")
def test_operators_of_a_chain_find_their_state_again(jobs: Jobs) -> None:
    """What each subtask of each holds after a kill is what it held at the barrier."""
    journal = Journal(jobs.folder / "journal")
    env = jobs.checkpointed(2, 100)
    chain = running_counts(env, None, 1_000)
    for name in ("one", "two", "three"):
        chain = chain.map(Probe(journal, name)).uid(name)
    chain.sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "chain")
    wait_completed(client, 3)
    kill_slot(client, 1)
    seen = wait_recovered(client, 1)
    until(lambda: len(journal.notes("open", attempt=1)) == 6, "all are open again")
    for note in journal.notes("open", attempt=1):
        at_barrier = journal.notes(
            "snapshot", name=note["name"], subtask=note["subtask"], checkpoint=seen.restored
        )
        assert [each["rows"] for each in at_barrier] == note["restored"] != []
    assert view(client).vertices[-1].parallelism == 2
