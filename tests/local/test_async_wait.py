"""Calls in flight when a slot is killed: each record counts once."""

import pytest

from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.lookups import counted_lookups
from tests.e2e.runtimes import Jobs, finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import kill_slot, view, wait_completed, wait_recovered

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("ordered", [True, False])
def test_a_killed_slot_loses_and_doubles_no_call(jobs: Jobs, ordered: bool) -> None:
    total, out = 3_000, jobs.folder / "out"
    env = jobs.checkpointed(2, 200)
    counted_lookups(env, total, 800, ordered=ordered).sink_to(LedgerSink(out))
    client = jobs.start(env, "lookups")
    wait_completed(client, 2)
    kill_slot(client, 0)
    wait_recovered(client, 1)
    finished(client)
    assert view(client).restarts == 1
    check_each_counted_once(ledger_rows(out), total)
