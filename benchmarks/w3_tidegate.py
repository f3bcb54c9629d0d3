"""W3 on Tidegate: lines of CSV in, two thirds of them changed into files, exactly once.

The same work as in peers/: rows with value mod 3 != 0 are kept, and id, key, value * 2 written.
Time is taken from when a source has passed on a tenth of its share until the job has ended, when
all files are committed. The last line printed is the result.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from benchmarks.workload import PEERS, environment, job_arguments, printed
from tidegate import MapFunction, Types, WatermarkStrategy
from tidegate.connectors import Encoder, FileSink, FileSource, StreamFormat


def main() -> int:
    parser = job_arguments(__doc__ or "", checkpoint_ms=1000)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--input", type=Path, required=True, help="CSV made by common/gen_w3.py")
    parser.add_argument("--verify", action="store_true", help="compare with plain Python")
    args = parser.parse_args()
    return printed("w3", lambda folder: measure(args, folder))


def measure(args: argparse.Namespace, folder: Path) -> dict[str, object]:
    """One job from start to end; the result as the peers report theirs."""
    stats = folder / "stats"
    stats.mkdir()
    warm = int(args.records / args.parallelism * args.warmup_frac)
    env = environment(args, folder / "checkpoints")
    lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(args.input))
    text = FileSink.for_row_format(str(folder / "result"), Encoder.simple_string_encoder())
    env.from_source(lines.build(), WatermarkStrategy.no_watermarks(), "csv").map(
        Probe(stats, warm), Types.STRING()
    ).filter(wanted).map(doubled, Types.STRING()).sink_to(text.build())
    env.execute("w3")
    ended_ns = time.monotonic_ns()
    probes = [json.loads(path.read_text()) for path in stats.glob("*.json")]
    start_ns = min(each["warm_at_ns"] for each in probes if each["warm_at_ns"])
    counted, seconds = sum(each["counted"] for each in probes), (ended_ns - start_ns) / 1e9
    result: dict[str, object] = {
        "system": f"tidegate-{args.runtime}",
        "workload": "w3",
        "records": args.records,
        "parallelism": args.parallelism,
        "checkpoint_ms": args.checkpoint_ms,
        "seconds": round(seconds, 4),
        "records_counted": counted,
        "records_per_s": round(counted / seconds, 1),
    }
    if args.verify:
        sys.path.insert(0, str(PEERS))
        import w3data

        wrong = w3data.verify_csv(str(folder / "result"), str(args.input))
        result["verified"] = not wrong
        if wrong:
            print("WRONG:", wrong, file=sys.stderr)
    return result


class Probe(MapFunction):
    """Passes lines on, and notes when its share begins to count."""

    def __init__(self, stats: Path, warm: int) -> None:
        self._stats, self._warm = stats, warm

    def open(self, runtime_context) -> None:
        index = runtime_context.get_index_of_this_subtask()
        self._path = self._stats / f"source-{index}.json"
        self._passed = self._warm_at_ns = 0

    def map(self, line: str) -> str:
        self._passed += 1
        if self._passed == self._warm:
            self._warm_at_ns = time.monotonic_ns()
        return line

    def close(self) -> None:
        counted = max(0, self._passed - self._warm)
        self._path.write_text(json.dumps({"warm_at_ns": self._warm_at_ns, "counted": counted}))


def wanted(line: str) -> bool:
    """True for rows whose value is no multiple of three."""
    return int(line.rsplit(",", 2)[1]) % 3 != 0


def doubled(line: str) -> str:
    rest, value, _ = line.rsplit(",", 2)
    return f"{rest},{int(value) * 2}"


if __name__ == "__main__":
    sys.exit(main())
