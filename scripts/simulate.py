"""Simulates jobs, a run a seed: python -m scripts.simulate SEEDS [FIRST].

The last line sums up; a seed that fails is told at once, with what befell it. One seed alone prints
its story.
"""

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.simulation import Run, simulate

CHUNK = 20


def main() -> int:
    """Exit status 1 where a run has faults."""
    seeds, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    began_s = time.monotonic()
    if seeds == 1:
        run = simulate(first)
        print("\n".join(run.story))
        runs = iter([run])
    else:
        runs = in_parallel(range(first, first + seeds))
    failed: list[int] = []
    virtual_s = 0.0
    for run in runs:
        virtual_s += run.virtual_s
        if run.faults:
            failed.append(run.seed)
            print(f"seed {run.seed}: {'; '.join(run.faults)}", flush=True)
    took_s = time.monotonic() - began_s
    print(
        f"simulated {seeds} runs, {virtual_s / 3600:.1f} hours of virtual time, in {took_s:.1f} s: "
        f"{len(failed)} failed{': ' + ', '.join(map(str, failed[:20])) if failed else ''}"
    )
    return 1 if failed else 0


def in_parallel(seeds: range) -> Iterator[Run]:
    """In processes of their own, one a core."""
    with ProcessPoolExecutor() as pool:
        yield from pool.map(simulate, seeds, chunksize=CHUNK)


if __name__ == "__main__":
    sys.exit(main())
