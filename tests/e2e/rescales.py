"""What must hold when a job with state of every kind is rescaled, again and again."""

import json
from collections import Counter
from pathlib import Path

from tests.e2e.backpressure import UNALIGNED, wait_persisted
from tests.e2e.every_state import KEYS, TOTAL, every_state
from tests.e2e.journal import Journal, Latch
from tests.e2e.ledger import ledger_rows
from tests.e2e.restores import RESTORE_PATH, stopped_with_checkpoint
from tests.e2e.runtimes import RETAIN, Jobs, finished
from tests.e2e.savepoints import END_S, committed, wait_rows
from tests.e2e.watch import completed, view, wait_running
from tidegate import JobClient
from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics
from tidegate.jobmaster.view import JobView
from tidegate.model.ids import CheckpointId

RATE = 2_000.0
PARALLELISMS = (1, 2, 4, 3, 1)
BACKEND = "state.backend.type"
FIXED = {
    "count": TOTAL,
    "column": TOTAL,
    "running": TOTAL,
    "running column": TOTAL,
    "alarm": KEYS,
    "end": KEYS,
}
TIMED = ("timer", "rules", "window", "pane")
Found = Counter[str]


def check_rescaled_with_every_state(jobs: Jobs) -> None:
    """A run that is rescaled four times gives what one gives that nobody touches: on each backend.

    Both all rows of its sinks, and what is in operator state at the end.
    """
    untouched = jobs.folder / "untouched"
    finished(start(jobs, untouched, 1, None, None, {}, alarm_ms=0))
    expected = found(untouched)
    kinds = Counter(json.loads(row)["kind"] for row in expected.elements())
    assert {kind: kinds[kind] for kind in FIXED} == FIXED and set(kinds) == {*FIXED, *TIMED}
    for backend in ("hashmap", "rocksdb"):
        folder = jobs.folder / backend
        rescale_four_times(jobs, folder, {BACKEND: backend})
        assert found(folder) == expected
        check_operator_state(folder)


def rescale_four_times(jobs: Jobs, folder: Path, settings: dict[str, object]) -> None:
    """From 1 to 2 by a savepoint, to 4 by a checkpoint, to 3 alive, to 1 by a checkpoint again.

    All but the first with rows in flight.
    """
    client = start(jobs, folder, 1, RATE, None, settings)
    wait_rows(client, TOTAL // 8)
    path = client.stop_with_savepoint(False, folder / "savepoints").result(END_S)
    slow = Latch(folder / "slow")
    slow.set()
    before = stopped_in_flight(start(jobs, folder, 2, None, path, settings))
    client = start(jobs, folder, 4, None, before, settings)
    wait_persisted(client)
    client.rescale(3).result(END_S)
    seen = wait_running(client)
    restored = seen.checkpoints.latest_restored
    assert restored is not None and {vertex.parallelism for vertex in seen.vertices} == {3}
    assert found_in(seen, restored.checkpoint).persisted_bytes
    before = stopped_in_flight(client)
    slow.release()
    finished(start(jobs, folder, 1, None, before, settings))


def stopped_in_flight(client: JobClient) -> str:
    """Cancel a job behind a checkpoint of this run with rows in flight; where that one is."""
    known = len([each for each in completed(view(client)) if each.persisted_bytes])
    wait_persisted(client, known + 1)
    newest = stopped_with_checkpoint(client)
    assert newest.persisted_bytes, "the last checkpoint has in-flight data too"
    assert newest.pointer is not None
    return newest.pointer


def found_in(seen: JobView, checkpoint: CheckpointId) -> CheckpointStatistics:
    return next(each for each in completed(seen) if each.checkpoint == checkpoint)


def start(
    jobs: Jobs,
    folder: Path,
    parallelism: int,
    rate: float | None,
    start_from: str | None,
    settings: dict[str, object],
    *,
    alarm_ms: int = 2_000,
) -> JobClient:
    folder.mkdir(exist_ok=True)
    restore = {} if start_from is None else {RESTORE_PATH: start_from}
    given = {**UNALIGNED, **RETAIN, "tidegate.batch.rows": 64, **restore, **settings}
    env = jobs.checkpointed(parallelism, 200, **given)
    every_state(env, folder, rate, alarm_ms)
    return jobs.start(env, f"every state at {parallelism}")


def found(folder: Path) -> Found:
    """All rows of both sinks."""
    rows = [*ledger_rows(folder / "ledger"), *committed(folder / "files")]
    return Found(json.dumps(row, sort_keys=True) for row in rows)


def check_operator_state(folder: Path) -> None:
    """At each start the list was split evenly and the union list given whole to all."""
    journal = Journal(folder / "journal")
    opened = journal.notes("open")
    assert len(opened) == sum(PARALLELISMS)
    for parallelism in PARALLELISMS:
        run, opened = opened[:parallelism], opened[parallelism:]
        split = [note["list"] for note in run]
        held = sorted(number for part in split for number in part)
        assert len(set(held)) == len(held)
        assert max(map(len, split)) - min(map(len, split)) <= 1
        assert all(note["union"] == held for note in run)
    assert sorted(journal.notes("close")[-1]["list"]) == list(range(TOTAL))
