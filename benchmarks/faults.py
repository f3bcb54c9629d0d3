"""Functions that take long, or never return: what somebody who watches the job waits for.

Guards that one call of a function is all that anybody waits for: rows, windows, checkpoints, a
cancel; and that no call is taken for a dead slot, outlives its job, or is made again without need.
Each figure is the longest time of a session, with many of its kind; of several rounds the median.

Sketch, for a function of 50 ms: a row leaves behind its call, at a checkpoint a call later, and its
reader in another slot may be in a call too: 100 ms, or 150. A barrier waits for one call in each
subtask; the driver, the slots and a local disk need 20 ms for all else.
"""

import statistics
import sys
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Contender, keep, run_once, whole

PYTHON, IN_C = ("sleeps", "computes"), ("waits in C", "computes in C")
WATCH_S = 8.0
GAP = "gap between rows"
STATUS = {"status, median": 0.05, "status, p99": 0.2}
AT_EASE = STATUS | {"failed checkpoints": 0, "restarts": 0, "processes left": 0}
ONE_CALL = AT_EASE | {
    "first row": 0.3,
    GAP: 0.15,
    "window late": 0.15,
    "checkpoint": 0.25,
    "cancel": 1.0,
}
TWO_CALLS = ONE_CALL | {"first row": 0.35, GAP: 0.2, "checkpoint": 0.3}
ALIGNED = TWO_CALLS | {"checkpoint": 2.0}
NOT_TAKEN_FOR_DEAD = STATUS | {
    "restarts": 0,
    "calls made": 1,
    "call is named": 12.0,
    "processes left": 0,
}
LONG_CALL = AT_EASE | dict.fromkeys(("first row", GAP, "window late", "checkpoint"), 5.3)
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
    """Work of a job. program: its name; at_most: the limit of each figure, in seconds or number.

    call_s: how long a call takes, where rows are waited for. watch_s: how long the job is watched,
    at scale 1; for at least so long as shortest_s.
    """

    name: str
    program: tuple[str, ...]
    at_most: dict[str, float]
    functions: tuple[str, ...] = PYTHON
    call_s: float = 0.05
    watch_s: float = WATCH_S
    shortest_s: float = 1.0

    def limit(self, figure: str, parallelism: int) -> float:
        elsewhere = figure == GAP and parallelism > 1
        return self.at_most[figure] + (self.call_s if elsewhere else 0.0)


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
        call_s=5.0,
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
    columns: dict[tuple[str, int], dict[str, float]] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        return all(map(self.keeps, self.work.at_most))

    def keeps(self, figure: str) -> bool:
        return all(
            figure in column and column[figure] <= self.work.limit(figure, parallelism)
            for (_, parallelism), column in self.columns.items()
        )

    def table(self) -> Table:
        """A line for each figure that has a limit."""
        titles = (f"{function}, {parallelism}" for function, parallelism in self.columns)
        table = Table("", *titles, "at most", "", title=f"{self.work.name}, {self.runtime}")
        for figure in self.work.at_most:
            values = (column.get(figure) for column in self.columns.values())
            limits = {self.work.limit(figure, parallelism) for _, parallelism in self.columns}
            verdict = "held" if self.keeps(figure) else "[red]missed[/]"
            at_most = "; ".join(f"{limit:g}" for limit in sorted(limits))
            table.add_row(figure, *map(shown, values), at_most, verdict)
        return table

    @property
    def record(self) -> dict[str, object]:
        medians = {f"{way}, {count}": column for (way, count), column in self.columns.items()}
        return {"medians": medians, "held": self.held}


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
        works = {f"{one.work.name}, {one.runtime}": one.record for one in sessions}
        keep("faults.jsonl", {"rounds": rounds, "works": works})
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
                runs.append(result["figures"] if result else {})
            measured.columns[function, parallelism] = medians(runs)
    return measured


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure that every run gave; of none where a run failed."""
    figures = set.intersection(*map(set, runs)) if runs else set()
    return {figure: statistics.median(run[figure] for run in runs) for figure in sorted(figures)}
