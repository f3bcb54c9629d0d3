"""A job whose last step is slow, so that all channels in front of it fill up."""

import time
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.jobs import Counted, running_counts
from tests.e2e.journal import Latch
from tests.e2e.ledger import LedgerSink
from tidegate import StreamExecutionEnvironment

UNALIGNED = {"execution.checkpointing.unaligned.enabled": "true"}


@dataclass(frozen=True)
class Slow:
    """Passes values on; each takes its time while the latch is set."""

    latch: Latch
    row_s: float

    def __call__(self, value: Counted) -> Counted:
        if self.latch.is_set:
            time.sleep(self.row_s)
        return value


def slow_counts(
    env: StreamExecutionEnvironment,
    folder: Path,
    *,
    rows: int | None,
    rate: float | None,
    row_s: float,
) -> Latch:
    """Running counts that a slow step behind a rebalance writes down; the latch is set."""
    latch = Latch(folder / "slow")
    latch.set()
    counts = running_counts(env, rows, rate).rebalance()
    counts.map(Slow(latch, row_s)).uid("slow").sink_to(LedgerSink(folder / "out")).uid("ledger")
    return latch
