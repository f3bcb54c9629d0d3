"""Slots killed with SIGKILL: nothing is lost, nothing doubled, the others stay."""


from tests.e2e.jobs import running_counts
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.runtimes import Jobs, finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import kill_slot, pids, wait_completed, wait_recovered


def test_two_killed_slots_lose_and_double_nothing(jobs: Jobs) -> None:
    out = jobs.folder / "out"
    env = jobs.checkpointed(2, 200)
    running_counts(env, 8_000, 2_000).sink_to(LedgerSink(out))
    client = jobs.start(env, "counts")
    before = pids(wait_completed(client, 2))
    first = kill_slot(client, 0)
    between = pids(wait_recovered(client, 1))
    second = kill_slot(client, 1)
    wait_recovered(client, 2)
    finished(client)
    check_each_counted_once(ledger_rows(out), 8_000)
