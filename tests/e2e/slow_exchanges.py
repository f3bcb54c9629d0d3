"""Functions that take long behind an exchange, and how many calls come before a barrier."""

import time
from pathlib import Path

from tests.e2e.jobs import key_of, same
from tests.e2e.journal import Journal
from tests.e2e.ledger import LedgerSink
from tests.e2e.runtimes import Jobs
from tests.e2e.watch import wait_completed
from tidegate import CheckpointedFunction, DataStream, MapFunction, SnapshotContext, Types

CALL_S = 0.03
NO_RESTART = {"restart-strategy.type": "none"}

CALLS_ALIGNED_MAX = 60
"""Two senders of two subtasks: some batches of one row each, and what comes until both are cut."""

CALLS_FIRST_MAX = 300
"""What a quick step is given before it has seen that rows wait behind it."""

CALLS_UNALIGNED_MAX = 2
"""The one under way may have begun after the barrier left, and so may one more."""


class Marks(MapFunction[int, int], CheckpointedFunction):
    """Notes when its subtask is cut."""

    def __init__(self, journal: Journal, where: str) -> None:
        self.journal = journal
        self.where = where

    def map(self, value: int) -> int:
        return value

    def snapshot_state(self, context: SnapshotContext) -> None:
        self.journal.note(f"{self.where} cut", checkpoint=context.checkpoint)


class Slow(Marks):
    """Takes its time for each row, and notes each call."""

    def __init__(self, journal: Journal, kind: str) -> None:
        super().__init__(journal, "slow")
        self.kind = kind

    def map(self, value: int) -> int:
        self.journal.note("call")
        if self.kind == "sleeps":
            time.sleep(CALL_S)
        else:
            until = time.thread_time() + CALL_S
            while time.thread_time() < until:
                pass
        return value


def exchanged(stream: DataStream, exchange: str) -> DataStream:
    if exchange == "key_by":
        return stream.key_by(key_of, key_type=Types.LONG())
    return stream.rebalance()


def calls_before_barriers(journal: Journal) -> list[int]:
    """Calls of a slow subtask between the first source's cut and its own, for each checkpoint."""
    found: list[int] = []
    began_at: dict[int, dict[int, int]] = {}
    calls: dict[int, int] = {}
    for note in journal.notes():
        pid, checkpoint = note["pid"], note.get("checkpoint")
        match note["event"]:
            case "call":
                calls[pid] = calls.get(pid, 0) + 1
            case "source cut":
                began_at.setdefault(checkpoint, dict(calls))
            case _:  # the barrier may be here before the note of who sent it
                began = began_at.setdefault(checkpoint, dict(calls))
                found.append(calls.get(pid, 0) - began.get(pid, 0))
    return found


def check_few_rows_in_front_of_a_slow_function(
    jobs: Jobs, exchange: str, unaligned: bool, kind: str
) -> None:
    """A barrier comes before the second next call, or behind a few rows where it is aligned."""
    journal = Journal(jobs.folder / "journal")
    settings = {
        "execution.checkpointing.unaligned.enabled": str(unaligned).lower(),
        **NO_RESTART,
    }
    env = jobs.checkpointed(2, 500, **settings)
    marked = env.generate(same, None, None, Types.LONG()).uid("numbers")
    marked = marked.map(Marks(journal, "source"), Types.LONG()).uid("marks")
    slow = exchanged(marked, exchange).map(Slow(journal, kind), Types.LONG()).uid("slow")
    slow.sink_to(LedgerSink(Path(jobs.folder / "out"))).uid("ledger")
    client = jobs.start(env, f"slow behind {exchange}")
    wait_completed(client, 4)
    client.cancel().result(timeout=60)
    found = calls_before_barriers(journal)
    print(f"{exchange}, unaligned {unaligned}, {kind}: {found} calls before a barrier")
    assert len(found) >= 8
    if unaligned:
        assert max(found) <= CALLS_UNALIGNED_MAX
    else:
        assert CALLS_UNALIGNED_MAX < max(found) <= CALLS_ALIGNED_MAX
