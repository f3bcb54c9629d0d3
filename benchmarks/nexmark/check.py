"""Compares the results of a query, pickled by another program, with plain Python.

python -m benchmarks.nexmark.check FILE QUERY EVENTS RATE BASE_MS
Exit status 1 where they differ.
"""

import pickle
import sys
from pathlib import Path

from benchmarks.nexmark import plain
from benchmarks.nexmark.generator import Generator


def main() -> int:
    file, query, *numbers = sys.argv[1:]
    count, rate, base_ms = map(int, numbers)
    rows = pickle.loads(Path(file).read_bytes())
    events = Generator(rate=rate, base_ms=base_ms).events(0, count)
    wrong = plain.differences(query, rows, events, window_ms=10_000)
    for line in wrong:
        print("WRONG:", line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
