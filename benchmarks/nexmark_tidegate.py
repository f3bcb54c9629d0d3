"""One query of Nexmark on Tidegate, to a sink that counts.

Time is taken from when a source has passed on a tenth of its share until the sinks have seen the
end of their input, and the last line printed is the result. --verify compares the results with
plain Python, at one subtask and a low rate.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import tidegate.pyflink
from benchmarks.nexmark import plain
from benchmarks.nexmark.generator import Generator
from benchmarks.nexmark.measures import EndSink
from benchmarks.nexmark.source import EventSource
from benchmarks.workload import environment, job_arguments, printed, processor_ns
from tidegate import DataStream, WatermarkStrategy

BLOCKS = {"records": 10_000, "batches": 50_000}


def main() -> int:
    tidegate.pyflink.install()
    parser = job_arguments(__doc__ or "", checkpoint_ms=10_000)
    parser.add_argument("--query", required=True)
    parser.add_argument("--api", choices=list(BLOCKS), default="records")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=10_000, help="events a second of event time")
    parser.add_argument("--verify", action="store_true", help="compare with plain Python")
    args = parser.parse_args()
    return printed("nexmark", lambda folder: run(args, folder))


def run(args: argparse.Namespace, folder: Path) -> dict[str, object]:
    """One job from start to end; the result as the peers report theirs."""
    stats = folder / "stats"
    stats.mkdir()
    env = environment(args, folder / "checkpoints")
    warm = int(args.events // args.parallelism * args.warmup_frac)
    generator, block = Generator(rate=args.rate), BLOCKS[args.api]
    source = EventSource(generator, args.events, args.api == "batches", warm, str(stats), block)
    events = env.from_source(source, WatermarkStrategy.no_watermarks(), "events")
    results = query(args, events, folder)
    if args.verify:
        return {"system": "tidegate", "verified": agrees(args, generator, results)}
    began = time.monotonic()
    if args.query == "q10":
        from benchmarks.nexmark.queries.stateless import files

        results.sink_to(files(str(folder / "files")))
    results.sink_to(EndSink(str(stats)))
    env.execute(f"nexmark {args.query} {args.api}")
    total_s = time.monotonic() - began
    measured = [json.loads(path.read_text()) for path in stats.glob("*.json")]
    start_ns = min(each["warm_at_ns"] for each in measured if each.get("warm_at_ns"))
    seconds = (max(each.get("last_at_ns", 0) for each in measured) - start_ns) / 1e9
    counted = sum(each.get("counted", 0) for each in measured)
    return {
        "system": f"tidegate-{args.runtime}-{args.api}",
        "workload": "nexmark",
        "query": args.query,
        "records": args.events,
        "rate": args.rate,
        "parallelism": args.parallelism,
        "checkpoint_ms": args.checkpoint_ms,
        "seconds": round(seconds, 4),
        "records_counted": counted,
        "records_per_s": round(counted / seconds, 1),
        "processor_ns": round(processor_ns(measured) / counted, 1),
        "outputs": sum(each.get("outputs", 0) for each in measured),
        "total_s": round(total_s, 3),
    }


def query(args: argparse.Namespace, events: DataStream, folder: Path) -> DataStream:
    """The stream of results."""
    # The names of PyFlink are there only now.
    from benchmarks.nexmark.queries.catalogue import QUERIES
    from benchmarks.nexmark.queries.shared import Settings
    from benchmarks.nexmark.queries.stateless import write_side_input

    side_input = folder / "side-input.csv"
    write_side_input(side_input)
    settings = Settings(str(side_input))
    if args.api == "batches":
        from benchmarks.nexmark import batches

        return batches.QUERIES[args.query](events, settings)
    return QUERIES[args.query](events, settings)


def agrees(args: argparse.Namespace, generator: Generator, results: DataStream) -> bool:
    """True if the results are those of plain Python; prints what differs."""
    with results.execute_and_collect() as collected:
        rows = [plain.row_of(result) for result in collected]
    events = generator.events(0, args.events)
    wrong = plain.differences(args.query, rows, events, window_ms=10_000)
    for line in wrong:
        print("WRONG:", line, file=sys.stderr)
    return not wrong


if __name__ == "__main__":
    sys.exit(main())
