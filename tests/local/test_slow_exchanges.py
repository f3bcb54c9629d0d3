"""Functions that take long behind an exchange: how many calls come before a barrier."""

from pathlib import Path

import pytest

from tests.e2e.jobs import key_of, same
from tests.e2e.journal import Journal
from tests.e2e.ledger import LedgerSink
from tests.e2e.runtimes import WITHOUT_CHECKPOINTS, Jobs
from tests.e2e.slow_exchanges import (
    CALLS_ALIGNED_MAX,
    CALLS_FIRST_MAX,
    NO_RESTART,
    Marks,
    Slow,
    calls_before_barriers,
    check_few_rows_in_front_of_a_slow_function,
)
from tests.e2e.watch import wait_completed
from tidegate import Types

pytestmark = pytest.mark.slow


@pytest.mark.feature("F237")
@pytest.mark.parametrize("kind", ["sleeps", "computes"])
@pytest.mark.parametrize("unaligned", [False, True], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("exchange", ["key_by", "rebalance"])
def test_a_barrier_finds_few_rows_in_front_of_a_slow_function_behind_an_exchange(
    jobs: Jobs, exchange: str, unaligned: bool, kind: str
) -> None:
    check_few_rows_in_front_of_a_slow_function(jobs, exchange, unaligned, kind)


def test_a_step_between_a_source_and_a_slow_one_is_given_few_rows_too(jobs: Jobs) -> None:
    journal = Journal(jobs.folder / "journal")
    env = jobs.checkpointed(1, 500, **NO_RESTART)
    marked = env.generate(same, None, None, Types.LONG()).uid("numbers")
    quick = marked.map(Marks(journal, "source"), Types.LONG()).uid("marks").rebalance()
    quick = quick.map(same, Types.LONG()).uid("quick").key_by(key_of, key_type=Types.LONG())
    slow = quick.map(Slow(journal, "sleeps"), Types.LONG()).uid("slow")
    slow.sink_to(LedgerSink(Path(jobs.folder / "out"))).uid("ledger")
    client = jobs.start(env, "slow behind two exchanges")
    wait_completed(client, 4)
    client.cancel().result(timeout=60)
    first, *later = calls_before_barriers(journal)
    assert first <= CALLS_FIRST_MAX and max(later) <= CALLS_ALIGNED_MAX


def test_all_rows_of_a_fast_job_go_through_channels_that_begin_with_one(jobs: Jobs) -> None:
    env = jobs.env(2, **WITHOUT_CHECKPOINTS)
    numbers = env.from_collection(list(range(20_000)), Types.LONG()).rebalance()
    keyed = numbers.map(same, Types.LONG()).key_by(key_of, key_type=Types.LONG())
    with keyed.map(same, Types.LONG()).execute_and_collect() as rows:
        assert sorted(rows) == list(range(20_000))
