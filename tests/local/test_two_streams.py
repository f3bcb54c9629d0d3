"""Steps of two streams through a killed slot and other parallelisms: nothing lost or doubled."""

import pytest

from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.meetings import check_ruled, meetings, ruled
from tests.e2e.runtimes import Jobs, finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import kill_slot, view, wait_completed, wait_recovered, wait_running
from tidegate import JobClient

pytestmark = pytest.mark.slow

TOTAL, RATE, RULES = 8_000, 1_200, 900
RESCALE_S = 60.0

ALIGNED = {}
UNALIGNED = {"execution.checkpointing.unaligned.enabled": "true"}
MODES = pytest.mark.parametrize("settings", [ALIGNED, UNALIGNED], ids=["aligned", "unaligned"])


def killed_and_rescaled(client: JobClient) -> None:
    """Kill a slot, then run in three subtasks, then in one; each time on from a checkpoint."""
    wait_completed(client, 2)
    kill_slot(client, 0)
    seen = wait_recovered(client, 1)
    for parallelism in (3, 1):
        wait_completed(client, seen.checkpoints.counts.completed + 2)
        client.rescale(parallelism).result(RESCALE_S)
        seen = wait_running(client)
    finished(client)
    assert (view(client).restarts, view(client).rescales) == (1, 2)
    assert view(client).checkpoints.counts.restored >= 3


@MODES
def test_two_keyed_streams_meet_each_number_once(jobs: Jobs, settings: dict[str, str]) -> None:
    env, out = jobs.checkpointed(2, 150, **settings), jobs.folder / "out"
    meetings(env, TOTAL, RATE).sink_to(LedgerSink(out)).uid("ledger")
    killed_and_rescaled(jobs.start(env, "meetings"))
    check_each_counted_once(ledger_rows(out), TOTAL)


@pytest.mark.feature("F240", "F259")
@MODES
def test_each_subtask_is_told_each_rule_once(jobs: Jobs, settings: dict[str, str]) -> None:
    env, out = jobs.checkpointed(2, 150, **settings), jobs.folder / "out"
    ruled(env, TOTAL, RATE, rules=RULES).sink_to(LedgerSink(out)).uid("ledger")
    killed_and_rescaled(jobs.start(env, "ruled"))
    check_ruled(ledger_rows(out), TOTAL, rules=RULES)
