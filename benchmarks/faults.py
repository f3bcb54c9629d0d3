"""Functions that take long, or never return: what somebody who watches the job waits for.

Guards that one call of a function is all that anybody waits for: rows, windows, checkpoints, a
cancel; and that no call is taken for a dead slot, outlives its job, or is made again without need.
Each figure is the longest time of a session, with many of its kind; of several rounds the median.

Sketch, for a function of 50 ms: a row leaves behind its call, at a checkpoint a call later, and its
reader in another slot may be in a call too: 150 ms. A barrier waits for one call in each subtask;
the driver, the slots and a local disk need 20 ms for all else.
"""

import statistics
import sys
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Contender, keep, run_once, whole

PYTHON, IN_C = ("sleeps", "computes"), ("waits in C", "computes in C")
WATCH_S = 8.0
STATUS = {"status, median": 0.05, "status, p99": 0.2}
AT_EASE = STATUS | {"failed checkpoints": 0, "restarts": 0, "processes left": 0}
ONE_CALL = AT_EASE | {
    "first row": 0.3,
    "gap between rows": 0.15,
    "window late": 0.15,
    "checkpoint": 0.25,
    "cancel": 1.0,
}
TWO_CALLS = ONE_CALL | {"first row": 0.35, "gap between rows": 0.2, "checkpoint": 0.3}
ALIGNED = TWO_CALLS | {"checkpoint": 2.0}
NOT_TAKEN_FOR_DEAD = STATUS | {
    "restarts": 0,
    "calls made": 1,
    "call is named": 12.0,
    "processes left": 0,
}
LONG_CALL = AT_EASE | dict.fromkeys(
    ("first row", "gap between rows", "window late", "checkpoint"), 5.3
)
UNDER_WAY = STATUS | {
    "checkpoint": 0.3,
    "failed checkpoints": 0,
    "calls lost": 0,
    "other calls made": 0,
    "rows doubled": 0,
    "processes left": 0,
}


@dataclass(frozen=True)
class Work:
    """What a job does. program: its name; at_most: the limit of each figure, in seconds or number.

    watch_s: how long it is watched, at scale 1; for at least so long as shortest_s.
    """

    name: str
    program: tuple[str, ...]
    at_most: dict[str, float]
    functions: tuple[str, ...] = PYTHON
    watch_s: float = WATCH_S
    shortest_s: float = 1.0


WORKS = (
    Work("map of 50 ms", ("map",), ONE_CALL),
    Work("two maps of 50 ms in a chain", ("two-maps",), TWO_CALLS),
    Work("two maps behind key_by", ("key-by",), ALIGNED),
    Work("two maps behind key_by, unaligned", ("key-by", "--unaligned"), TWO_CALLS),
    Work("two maps behind rebalance", ("rebalance",), ALIGNED),
    Work("two maps behind rebalance, unaligned", ("rebalance", "--unaligned"), TWO_CALLS),
    Work(
        "map of 5 s",
        ("long-map",),
        LONG_CALL | {"cancel": 1.5},
        watch_s=2 * WATCH_S,
        shortest_s=6.0,
    ),
    Work(
        "a call that never returns",
        ("stuck",),
        STATUS | {"cancel": 3.0, "processes left": 0},
        functions=(*PYTHON, "waits in C"),
    ),
    Work(
        "a call of 20 s that holds the interpreter",
        ("held",),
        NOT_TAKEN_FOR_DEAD,
        functions=IN_C,
    ),
    Work(
        "8 calls of 60 s in threads, and a kill",
        ("threads", "--checkpoint-ms", "1000"),
        UNDER_WAY,
        shortest_s=3.0,
    ),
)


@dataclass
class Measured:
    """The figures of one work on one runtime, by function and parallelism, then by name."""

    work: Work
    runtime: str
    columns: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        """Whether there are figures, and all keep within their limits."""
        return all(
            column.get(figure, limit + 1) <= limit
            for column in self.columns.values()
            for figure, limit in self.work.at_most.items()
        )

    def table(self) -> Table:
        """A line for each figure that has a limit."""
        table = Table("", *self.columns, "at most", "", title=f"{self.work.name}, {self.runtime}")
        for figure, limit in self.work.at_most.items():
            values = [column.get(figure) for column in self.columns.values()]
            held = all(value is not None and value <= limit for value in values)
            verdict = "held" if held else "[red]missed[/]"
            table.add_row(figure, *map(shown, values), f"{limit:g}", verdict)
        return table


def shown(value: float | None) -> str:
    """Three digits; a dash for what was not measured."""
    return "–" if value is None else f"{value:.3g}"


def main(console: Console, rounds: int, only: str, scale: float, *, spark: bool = False) -> bool:
    """Watch each job, print its table, keep the result; whether all limits held."""
    sessions: list[Measured] = []
    for runtime in ("local", "spark") if spark else ("local",):
        for work in WORKS:
            measured = measure(console, work, runtime, rounds, only, scale)
            if measured.columns:
                console.print(measured.table())
                sessions.append(measured)
    if whole(only, scale):
        columns = {f"{one.work.name}, {one.runtime}": one.columns for one in sessions}
        held = {f"{one.work.name}, {one.runtime}": one.held for one in sessions}
        keep("faults.jsonl", {"rounds": rounds, "medians": columns, "held": held})
    return all(one.held for one in sessions) and bool(sessions)


def measure(
    console: Console, work: Work, runtime: str, rounds: int, only: str, scale: float
) -> Measured:
    """Run one work as often as there are rounds, in each of its ways that ``only`` chooses."""
    measured = Measured(work, runtime)
    for function in work.functions:
        for parallelism in (1, 2):
            name = f"{runtime}: {work.name}, {function}, {parallelism}"
            if only not in name:
                continue
            seconds = max(work.shortest_s, work.watch_s * scale)
            command = (sys.executable, "-m", "benchmarks.faults_tidegate", "--runtime", runtime)
            command += ("--work", *work.program, "--function", function)
            command += ("--parallelism", str(parallelism), "--seconds", str(seconds))
            runs = []
            for number in range(1, rounds + 1):
                with console.status(f"{name}: round {number} of {rounds}"):
                    result = run_once(Contender(name, command), console)
                runs += [result["figures"]] if result else []
            measured.columns[f"{function}, {parallelism}"] = medians(runs)
    return measured


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure that every run gave; of none where a run failed."""
    return (
        {figure: statistics.median(run[figure] for run in runs) for figure in runs[0]}
        if runs
        else {}
    )
