"""Simulates jobs, a run a seed: python -m scripts.simulate SEEDS [FIRST [KIND …]].

FIRST is a number, or ``fresh``: then every seed that ever failed is run, and a range that nobody
has run before. KIND: with ``calls``, calls of functions take time and block their slots; with
``ends``, people end the job and go on with it; with ``survivors``, slots that live host the
subtasks of lost ones; with ``parts``, committers of sinks are a step of their own, behind writers
that flush for long. The last line sums up; a seed that fails is told at once. One seed alone
prints its story.
"""

import gc
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.simulation.seeds import FAILED
from tests.simulation.simulation import Run, simulate

CHUNK = 20


def main() -> int:
    """Exit status 1 where a run has faults."""
    count, first = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "1"
    kinds = {kind: True for kind in sys.argv[3:]}
    began_s = time.monotonic()
    if first == "fresh":
        start = int(time.time() * 1000) % 1_000_000_000
        failed_once = [] if kinds else list(FAILED)
        seeds = [*failed_once, *range(start, start + count)]
        print(
            f"simulating seeds {start} to {start + count - 1}, and {len(failed_once)} that failed "
            "once"
        )
    else:
        seeds = list(range(int(first), int(first) + count))
    runs = in_parallel(seeds, kinds) if len(seeds) > 1 else told(simulate(seeds[0], **kinds))
    failed: list[int] = []
    virtual_s = 0.0
    for run in runs:
        virtual_s += run.virtual_s
        if run.faults:
            failed.append(run.seed)
            print(f"seed {run.seed}: {'; '.join(run.faults)}", flush=True)
    took_s = time.monotonic() - began_s
    print(
        f"simulated {len(seeds)} runs, {virtual_s / 3600:.1f} hours of virtual time, in "
        f"{took_s:.1f} s: {len(failed)} failed"
    )
    if failed:
        chosen = f" KINDS='{' '.join(kinds)}'" if kinds else ""
        print(f"replay with: make simulate SEEDS=1 FIRST={failed[0]}{chosen}; all: {failed[:50]}")
    return 1 if failed else 0


def told(run: Run) -> Iterator[Run]:
    """The run, after its story."""
    print("\n".join(run.story))
    yield run


def in_parallel(seeds: Iterable[int], kinds: Mapping[str, bool]) -> Iterator[Run]:
    """In processes of their own, one a core."""
    with ProcessPoolExecutor(os.cpu_count(), initializer=gc.freeze) as pool:
        yield from pool.map(partial(one, **kinds), seeds, chunksize=CHUNK)


def one(seed: int, **kinds: bool) -> Run:
    """Run a seed; garbage is collected after it, which is cheaper than within."""
    gc.disable()
    try:
        return simulate(seed, **kinds)
    except Exception as error:
        error.add_note(f"simulating seed {seed}")
        raise
    finally:
        gc.enable()
        gc.collect(1)


if __name__ == "__main__":
    sys.exit(main())
