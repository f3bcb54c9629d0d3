"""History in a batch on Spark, then live with a killed slot: is it what one long run finds?

python -m benchmarks.history_and_live --rows 50000000. Sums by key and window of a minute, from
Parquet files to Parquet files, exactly once; the batch ends with a savepoint, from which the live
job goes on while a new file comes each second. All results are held against NumPy's sums.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.e2e.watch import kill_slot, until
from tidegate import (
    Duration,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
)
from tidegate.connectors import FileSink, FileSource

if TYPE_CHECKING:
    from numpy.typing import NDArray

FILES, WINDOW_MS, A_SECOND = 16, 60_000, 20_000
SUMS = pa.schema([("key", pa.int64()), ("time", pa.int64()), ("total", pa.int64())])
LATE_MS = 5_000


def write_rows(file: Path, seed: int, count: int, keys: int, begin_ms: int, end_ms: int) -> None:
    """Rows in no order of time but for the span of the file."""
    draw = np.random.default_rng(seed)
    columns = {
        "key": draw.integers(0, keys, count),
        "time": np.sort(draw.integers(begin_ms, end_ms, count)),
        "value": draw.integers(0, 1_000, count),
    }
    pq.write_table(pa.table(columns), file.with_suffix(".part"))
    file.with_suffix(".part").rename(file)


def sums(env: StreamExecutionEnvironment, rows: Path, out: Path, *, live: bool) -> None:
    source = FileSource.parquet(f"{rows}/*.parquet", columns=["key", "time", "value"])
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(LATE_MS))
    if live:
        source = source.monitor_continuously(Duration.of_millis(200))
        strategy = strategy.with_idleness(Duration.of_millis(500))
    row = Types.TUPLE([Types.LONG()] * 3)
    read = env.from_source(source, WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    tuples = read.map(lambda row: (row["key"], row["time"], row["value"]), row).uid("tuples")
    timed = tuples.assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda row, _: row[1])
    ).uid("timed")
    windows = timed.key_by(lambda row: row[0], Types.LONG()).window(
        TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS))
    )
    totals = windows.reduce(lambda a, b: (a[0], a[1], a[2] + b[2])).uid("sums")
    lines = totals.map(lambda row: {"key": row[0], "time": row[1], "total": row[2]}).uid("lines")
    lines.sink_to(FileSink.parquet(out, SUMS)).uid("files")


def found(out: Path) -> dict[tuple[int, int], int]:
    """The sums by key and window; each may be there once."""
    sums: dict[tuple[int, int], int] = {}
    for file in sorted(out.glob("[!.]*.parquet")):
        columns = pq.read_table(file).to_pydict()
        for key, at, total in zip(columns["key"], columns["time"], columns["total"], strict=True):
            window = (key, at // WINDOW_MS)
            assert window not in sums, f"{window} is there twice"
            sums[window] = total
    return sums


def expected(rows: Path, keys: int, end_ms: int) -> dict[tuple[int, int], int]:
    """NumPy's sums of the windows that have ended by then."""
    windows = end_ms // WINDOW_MS
    totals: NDArray[np.int64] = np.zeros(windows * keys, np.int64)
    counts = np.zeros_like(totals)
    for file in sorted(rows.glob("*.parquet")):
        table = pq.read_table(file)
        key, at, value = (table[name].to_numpy() for name in ("key", "time", "value"))
        place = at // WINDOW_MS * keys + key
        ended = at // WINDOW_MS < windows
        totals += np.bincount(place[ended], value[ended], len(totals)).astype(np.int64)
        counts += np.bincount(place[ended], minlength=len(totals))
    held = counts.nonzero()[0].tolist()
    return {(place % keys, place // keys): int(totals[place]) for place in held}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=60, help="of the live job")
    parser.add_argument("--parallelism", type=int, default=8, help="of the batch")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidegate-") as made:
        folder = Path(made)
        rows, out = folder / "rows", folder / "out"
        rows.mkdir()
        # A thousandth of a second for each row at the speed of the live part.
        span_ms = args.rows * 1_000 // A_SECOND
        for file in range(FILES):
            bounds = (span_ms * file // FILES, span_ms * (file + 1) // FILES)
            write_rows(rows / f"{file:05}.parquet", file, args.rows // FILES, args.keys, *bounds)
        savepoint, took_s = history(args.parallelism, rows, out, folder)
        print(f"batch: {args.rows:,} rows in {took_s:.1f} s, {args.rows / took_s:,.0f} a second")
        end_ms = live(savepoint, rows, out, folder, span_ms, args.seconds, args.keys)
        own, plain = found(out), expected(rows, args.keys, end_ms)
        assert own == plain, f"{len(own):,} sums, and NumPy has {len(plain):,}"
        print(f"{len(own):,} sums are NumPy's, each there once, with a slot killed while live")


def history(parallelism: int, rows: Path, out: Path, folder: Path) -> tuple[str, float]:
    env = StreamExecutionEnvironment.on_spark(parallelism=parallelism)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH).end_with_savepoint(folder / "savepoints")
    env.spark.range(1).count()
    sums(env, rows, out, live=False)
    began_s = time.monotonic()
    savepoint = env.execute("history").get_savepoint()
    took_s = time.monotonic() - began_s
    env.spark.stop()
    assert savepoint is not None, "it was to end with one"
    return savepoint, took_s


def live(
    savepoint: str, rows: Path, out: Path, folder: Path, span_ms: int, seconds: int, keys: int
) -> int:
    """Runs the live job until all windows of what has come have fired; gives their end."""
    env = StreamExecutionEnvironment.local(2).enable_checkpointing(1_000)
    env.configure(
        {
            "execution.state-recovery.path": savepoint,
            "execution.checkpointing.dir": str(folder / "checkpoints"),
        }
    )
    sums(env, rows, out, live=True)
    client = env.execute_async("live")
    for second in range(seconds):
        at_ms = span_ms + 1_000 * second
        write_rows(
            rows / f"{FILES + second:05}.parquet",
            1_000 + second,
            A_SECOND,
            keys,
            at_ms,
            at_ms + 1_000,
        )
        if second == seconds // 2:
            kill_slot(client, 0)
        time.sleep(1)
    end_ms = (span_ms + 1_000 * seconds - 1_000 - LATE_MS) // WINDOW_MS * WINDOW_MS
    last = end_ms // WINDOW_MS - 1
    until(lambda: sum(window == last for _, window in found(out)) >= keys, "the last window", 300)
    client.stop_with_savepoint(False, str(folder / "savepoints")).result(120)
    return end_ms


if __name__ == "__main__":
    main()
