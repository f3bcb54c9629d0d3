"""Changes bytes and lets every reader read them: python -m scripts.fuzz MINUTES FIRST READER.

A reader may refuse with the errors that it documents. Any other, a hang, a crash or unbounded
memory is a fault, told with the command that reads the same input again. MINUTES: of all
processors, shared out among the readers; 0 reads one input of each. FIRST: number of the first
input, or ``fresh`` for half of the time on inputs from 1 on, and half on inputs that nobody has
read yet. READER: the one to run, by its name; all where it is empty.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from tests.fuzzing.catalogue import all_readers
from tests.fuzzing.children import watched

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.fuzzing.cases import Fault
    from tests.fuzzing.children import Tally

POLL_S = 0.05
FRESH = "fresh"
AT_ONCE = os.cpu_count() or 1
ENDLESS_S = 3_600.0


def main() -> int:
    """Exit status 1 where there is a fault, 2 for a reader that is not known."""
    minutes, first, name = float(sys.argv[1]), sys.argv[2], sys.argv[3]
    readers = [each for each in all_readers() if name in ("", each.name)]
    if not readers:
        known = "\n  ".join(each.name for each in all_readers())
        print(f"fuzz: there is no reader {name!r}; there are\n  {known}")
        return 2
    firsts = [1, time.time_ns()] if first == FRESH else [int(first)]
    if minutes == 0:
        tallies = side_by_side([watched(each, firsts[:1], ENDLESS_S, 1) for each in readers])
    else:
        print(
            f"fuzz: {len(readers)} readers, {minutes:g} minutes, inputs from {firsts}", flush=True
        )
        share_s = minutes * 60 * min(AT_ONCE, len(readers)) / len(readers)
        tallies = side_by_side([watched(each, firsts, share_s) for each in readers])
    print("\n".join(report(tallies, with_traces=bool(name))))
    return 1 if any(tally.faults for tally in tallies) else 0


def side_by_side(runs: Sequence[Iterator[Tally]]) -> list[Tally]:
    """Goes on with a few at once, telling of each fault; the last tally of each run."""
    tallies: dict[int, Tally] = {}
    told: set[Fault] = set()
    waiting = list(enumerate(runs))
    running: list[tuple[int, Iterator[Tally]]] = []
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            running.append(waiting.pop(0))
        time.sleep(POLL_S)
        for place, run in list(running):
            tally = next(run, None)
            if tally is None:
                running.remove((place, run))
            else:
                tallies[place] = tally
                for fault in set(tally.faults.values()) - told:
                    told.add(fault)
                    print(f"fuzz: {fault.reader}: {fault.what}; again: {fault.replay}", flush=True)
    return [tallies[place] for place in sorted(tallies)]


def report(tallies: Sequence[Tally], *, with_traces: bool) -> Iterator[str]:
    """A line for each reader, what was found, and last what there is to say of all."""
    yield f"{'reader':36} {'inputs':>10} {'a second':>9} {'most MB':>8} faults"
    for tally in tallies:
        rate = tally.inputs / max(tally.cpu_s, 1e-3)
        yield (
            f"{tally.reader.name:36} {tally.inputs:10,} {rate:9,.0f} {tally.most_mb:8.0f} "
            f"{len(tally.faults) or '-'}"
        )
    for tally in tallies:
        for kind, fault in tally.faults.items():
            yield f"fuzz: {fault.reader}: {fault.what}"
            yield f"    in {fault.place}, {tally.times[kind]} times; again: {fault.replay}"
            if with_traces:
                yield fault.trace
    below = [each.reader.name for each in tallies if each.inputs < each.reader.floor]
    inputs = sum(tally.inputs for tally in tallies)
    faults = sum(len(tally.faults) for tally in tallies)
    yield f"fuzz: {inputs:,} inputs, {faults} faults; below their floor: {len(below)} readers"


if __name__ == "__main__":
    sys.exit(main())
