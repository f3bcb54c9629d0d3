"""Only what is connected with a failed subtask is restored; the rest goes on, exactly once."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.e2e.files import write_numbers
from tests.e2e.jobs import running_counts
from tests.e2e.journal import Latch
from tests.e2e.ledger import LedgerSink, Rows, ledger_rows
from tests.e2e.probes import BreakingOnce
from tests.e2e.regions import DyingOnce, pipeline, strands
from tests.e2e.runtimes import WITHOUT_CHECKPOINTS, Jobs, failure_of, finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import (
    attempts,
    kill_slot,
    pids,
    until,
    view,
    wait_completed,
    wait_for,
    wait_recovered,
)
from tidegate import (
    ConfigError,
    FailureContext,
    FailureEnricher,
    FailureKind,
    JobClient,
    TidegateError,
)
from tidegate.connectors import FileSource
from tidegate.jobmaster.view import JobView
from tidegate.model.control import ExecutionState, JobStatus

pytestmark = pytest.mark.slow

FILES, ROWS, RATE = 1_200, 10, 1_000
"""Small files: in the time of `SINCE` rows a reader is given new ones."""

SINCE = 180

AFTER_A_WHILE = {"restart-strategy.fixed-delay.delay": "500 ms"}


@pytest.mark.feature("F010", "F275")
def test_of_two_pipelines_only_the_one_that_failed_is_restored(jobs: Jobs) -> None:
    total, broken = 4_000, Latch(jobs.folder / "broken")
    left, right = jobs.folder / "left", jobs.folder / "right"
    env = jobs.checkpointed(2, 100, **AFTER_A_WHILE)
    pipeline(env, "left", total, 1_000).map(BreakingOnce(broken)).sink_to(LedgerSink(left))
    pipeline(env, "right", total, 1_000).sink_to(LedgerSink(right))
    client = jobs.start(env, "two")
    wait_for(client, lambda _: ledger_rows(left), "the first committed row")
    before = wait_completed(client, 3)
    broken.set()
    wait_for(client, lambda seen: seen.status is JobStatus.RESTARTING, "the restart")
    seen = wait_recovered(client, 1)
    assert attempts(seen, "left") == {1} and attempts(seen, "right") == {0}
    assert pids(seen) == pids(before)
    assert seen.restored is not None and seen.checkpoints.counts.restored == 1
    wait_completed(client, seen.checkpoints.counts.completed + 1)
    finished(client)
    assert view(client).restarts == 1
    check_each_counted_once(ledger_rows(left), total)
    check_each_counted_once(ledger_rows(right), total)
    assert {row["attempt"] for row in ledger_rows(right)} == {0}
    assert {row["attempt"] for row in ledger_rows(left)} == {0, 1}
    check_went_on(view(client), ledger_rows(left), ledger_rows(right))


def wait_rows(client: JobClient, out: Path, subtasks: set[int]) -> None:
    """Until a checkpoint has committed rows of each: the first may hold none."""
    those = f"committed rows of subtasks {subtasks}"
    wait_for(client, lambda _: {row["subtask"] for row in ledger_rows(out)} >= subtasks, those)


def check_went_on(seen: JobView, failed: Rows, others: Rows) -> None:
    """The others gave rows between the failure and the first row of what was restored."""
    failed_ms = seen.failures[0].wall_ms
    back_ms = min(row["emitted_ms"] for row in failed if row["attempt"] == 1)
    assert any(failed_ms < row["emitted_ms"] < back_ms for row in others)


@pytest.mark.feature("F275", "F282")
def test_a_killed_slot_takes_its_own_strand_along_and_its_splits_are_read_once(
    jobs: Jobs,
) -> None:
    folder, out, killed_once = jobs.folder / "in", jobs.folder / "out", Latch(jobs.folder / "kill")
    write_numbers(folder, files=FILES, rows_each=ROWS)
    env = jobs.checkpointed(2, 600)
    stamped = strands(env, FileSource.parquet(str(folder)).rate(RATE))
    stamped.map(DyingOnce(killed_once, SINCE, only=0, killed=True)).sink_to(LedgerSink(out))
    client = jobs.start(env, "strands")
    wait_rows(client, out, {0, 1})
    before = view(client)
    subtasks = before.vertices[0].subtasks
    hosts = {slot.id: slot.pid for slot in before.slots}
    killed, kept = (hosts[subtask.slot] for subtask in subtasks if subtask.slot)
    killed_once.set()
    seen = wait_recovered(client, 1)
    assert [subtask.attempt for subtask in seen.vertices[0].subtasks] == [1, 0]
    assert pids(before) - pids(seen) == {killed}
    finished(client)
    rows = ledger_rows(out)
    assert Counter(row["number"] for row in rows) == Counter(range(FILES * ROWS))
    assert {(r["attempt"], r["pid"]) for r in rows if r["subtask"] == 1} == {(0, kept)}
    assert {row["attempt"] for row in rows if row["subtask"] == 0} == {0, 1}
    by_strand = [[row for row in rows if row["subtask"] == subtask] for subtask in (0, 1)]
    check_went_on(view(client), *by_strand)


def test_a_strand_that_fails_again_and_again_reads_each_split_once(jobs: Jobs) -> None:
    folder, out, broken = jobs.folder / "in", jobs.folder / "out", Latch(jobs.folder / "broken")
    write_numbers(folder, files=FILES, rows_each=ROWS)
    env = jobs.checkpointed(2, 600)
    stamped = strands(env, FileSource.parquet(str(folder)).rate(RATE))
    stamped.map(DyingOnce(broken, SINCE)).sink_to(LedgerSink(out))
    client = jobs.start(env, "strands")
    for restarts in range(1, 4):
        broken.set()
        wait_recovered(client, restarts)
    finished(client)
    rows = ledger_rows(out)
    assert Counter(row["number"] for row in rows) == Counter(range(FILES * ROWS))
    (source,) = view(client).vertices
    assert sum(subtask.attempt for subtask in source.subtasks) == view(client).restarts == 3


def test_a_strand_that_has_finished_stays_so_when_another_fails(jobs: Jobs) -> None:
    folder, out, broken = jobs.folder / "in", jobs.folder / "out", Latch(jobs.folder / "broken")
    folder.mkdir()
    (folder / "numbers.csv").write_text("\n".join(["number", *map(str, range(2_000))]) + "\n")
    env = jobs.checkpointed(2, 150)
    source = FileSource.csv(str(folder)).rate(800)
    strands(env, source).map(BreakingOnce(broken)).sink_to(LedgerSink(out))
    client = jobs.start(env, "strands")
    seen = wait_for(client, lambda seen: has_finished(seen) == 1, "one subtask has finished")
    wait_completed(client, seen.checkpoints.counts.completed + 2)
    broken.set()
    seen = wait_for(client, lambda seen: seen.restarts, "a restart")
    finished(client)
    rows = ledger_rows(out)
    assert Counter(row["number"] for row in rows) == Counter(range(2_000))
    assert sorted(s.attempt for s in view(client).vertices[0].subtasks) == [0, 1]
    assert view(client).restored is not None


def has_finished(seen: JobView) -> int:
    """How many subtasks have."""
    states = [subtask.state for vertex in seen.vertices for subtask in vertex.subtasks]
    return states.count(ExecutionState.FINISHED)


def test_with_the_strategy_full_a_failure_restores_all(jobs: Jobs) -> None:
    broken = Latch(jobs.folder / "broken")
    full = {"jobmanager.execution.failover-strategy": "full"}
    env = jobs.checkpointed(2, 100, **full)
    left = pipeline(env, "left", None, 500).map(BreakingOnce(broken))
    left.sink_to(LedgerSink(jobs.folder / "left"))
    pipeline(env, "right", None, 500).sink_to(LedgerSink(jobs.folder / "right"))
    client = jobs.start(env, "two")
    wait_completed(client, 1)
    broken.set()
    seen = wait_recovered(client, 1)
    assert attempts(seen, "left") == attempts(seen, "right") == {1}


# --- labels ---------------------------------------------------------------------------------------


class BlamesData(FailureEnricher):
    """Says of each failure whether the data were to blame."""

    def __init__(self) -> None:
        self.contexts: list[FailureContext] = []

    def get_output_keys(self) -> set[str]:
        return {"blame"}

    def process_failure(self, cause: TidegateError, context: FailureContext) -> Mapping[str, str]:
        self.contexts.append(context)
        return {"blame": "data" if "ValueError" in cause.what else "world"}


@pytest.mark.feature("F277")
def test_an_enricher_labels_failures_and_they_are_found_by_it(jobs: Jobs) -> None:
    broken, enricher = Latch(jobs.folder / "broken"), BlamesData()
    env = jobs.checkpointed(2, 100)
    env.add_failure_enricher(enricher)
    counts = running_counts(env, None, 500).map(BreakingOnce(broken)).name("breaking")
    counts.sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "labelled")
    slots = {slot.id for slot in wait_completed(client, 1).slots}
    broken.set()
    wait_recovered(client, 1)
    until(lambda: view(client).failures_labelled("blame", "data"), "the first label")
    kill_slot(client, 0)
    wait_recovered(client, 2)
    until(lambda: view(client).failures_labelled("blame", "world"), "the second label")
    newest, oldest = view(client).failures
    assert view(client).failures_labelled("blame", "data") == (oldest,)
    assert dict(oldest.labels) == {"blame": "data"} and "told to fail once" in oldest.error
    assert dict(newest.labels) == {"blame": "world"}
    first = enricher.contexts[0]
    assert (first.kind, first.job_name) == (FailureKind.TASK, "labelled")
    assert "breaking" in first.task and first.slot in slots
    assert FailureKind.SLOT in {context.kind for context in enricher.contexts[1:]}


def test_the_failure_that_ends_a_job_is_labelled_too(jobs: Jobs) -> None:
    broken = Latch(jobs.folder / "broken")
    broken.set()
    env = jobs.env(1, **{"restart-strategy.type": "none", **WITHOUT_CHECKPOINTS})
    env.add_failure_enricher(BlamesData())
    running_counts(env, None, 500).map(BreakingOnce(broken)).sink_to(LedgerSink(jobs.folder / "o"))
    client = jobs.start(env, "labelled")
    assert failure_of(client) is not None
    assert view(client).failures_labelled("blame", "data") == view(client).failures


def test_two_enrichers_cannot_share_a_key(jobs: Jobs) -> None:
    env = jobs.env(1)
    env.add_failure_enricher(BlamesData())
    with pytest.raises(ConfigError, match=r"keys \['blame'\]"):
        env.add_failure_enricher(BlamesData())
