"""The program that cluster tests run: numbers counted by key, written to a ledger by witnesses.

Its argument is JSON, see `Orders`; the cluster that it is on is in Spark's settings.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.backpressure import Slow
from tests.e2e.jobs import Counted, counted, same
from tests.e2e.journal import Journal, Latch
from tests.e2e.ledger import LedgerCommitter, LedgerSink, LedgerWriter
from tidegate import StreamExecutionEnvironment, Types
from tidegate.connectors import FileSink

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidegate import Prepared, WriterContext
    from tidegate.model.elements import Batch

NAME = "counts on a cluster"


@dataclass(frozen=True)
class Orders:
    """Input of the program. spark: settings of the session.

    row_s: that a reader takes for each row while there is a file `slow` in the folder. by_count:
    the sink comes behind a step of its own, as slow, where rows go by what was counted: if a count
    were another in a second try, a row would be lost there, or come twice. They go to files, too.
    """

    folder: str
    rows: int
    row_s: float
    slots: int
    spark: Mapping[str, str]
    by_count: bool = False


class WitnessedWriter(LedgerWriter):
    """Notes that it writes, and in which process."""

    def __init__(self, name: str, journal: Journal) -> None:
        super().__init__(name)
        self._journal = journal

    def write(self, batch: Batch) -> None:
        super().write(batch)
        self._journal.note("write", wall_ms=time.time_ns() // 1_000_000)

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        prepared = super().prepare_commit(end_of_input=end_of_input)
        self._journal.note("prepare", wall_ms=time.time_ns() // 1_000_000)
        return prepared


class WitnessedCommitter(LedgerCommitter):
    """Notes that it commits, and in which process."""

    def __init__(self, folder: Path, journal: Journal) -> None:
        super().__init__(folder, None)
        self._journal = journal

    def commit(self, committables: Sequence[bytes]) -> None:
        super().commit(committables)
        self._journal.note("commit", wall_ms=time.time_ns() // 1_000_000)


class WitnessedSink(LedgerSink):
    """A ledger whose writers and committers note when they write."""

    def __init__(self, folder: Path, journal: Journal) -> None:
        super().__init__(folder)
        self._ledger = folder
        self._journal = journal

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> WitnessedWriter:
        return WitnessedWriter(f"{context.job}-{context.attempt_name}", self._journal)

    def committer(self) -> WitnessedCommitter:
        return WitnessedCommitter(self._ledger, self._journal)


def count_of(row: Counted) -> int:
    return row["count"]


def main() -> None:
    """Runs the job to its end."""
    from pyspark.sql import SparkSession

    orders = Orders(**json.loads(sys.argv[1]))
    folder = Path(orders.folder)
    journal = Journal(folder / "journal")
    builder = SparkSession.builder.appName(NAME)
    for key, value in orders.spark.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    env = StreamExecutionEnvironment.on_spark(spark, orders.slots)
    journal.note("session", wall_ms=time.time_ns() // 1_000_000)
    slow = Slow[int](Latch(folder / "slow"), orders.row_s)
    numbers = env.generate(same, orders.rows, None, Types.LONG()).uid("numbers").map(slow)
    counts = counted(numbers.uid("slow"))
    if orders.by_count:
        again = Slow[Counted](Latch(folder / "slow"), orders.row_s)
        counts = counts.key_by(count_of, key_type=Types.LONG()).map(again).uid("by count")
        counts.sink_to(FileSink.json(folder / "files")).uid("files")
    counts.sink_to(WitnessedSink(folder / "out", journal)).uid("ledger")
    env.execute(NAME)
    spark.stop()


if __name__ == "__main__":
    from tests.cluster import counts

    counts.main()  # so that its classes are importable ones on the executors
