"""Random jobs whose right answer is known: numbers, counted by key, once or twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.functions import (
    Checking,
    Counting,
    Dropping,
    Ledger,
    LedgerInParts,
    Lookup,
    Numbers,
    SlowHook,
    Spreading,
    is_mark,
)
from tests.simulation.outside import OUTSIDE
from tidegate import AsyncDataStream, Configuration, StreamExecutionEnvironment, Time, Types

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.datastream.stream import DataStream
    from tidegate.graph.job_graph import JobGraph

FOLDER = "memory:/checkpoints"
SAVEPOINTS = "memory:/savepoints"
ROWS_MAX = 240
TICKS_MAX = 24

LASTING = 1000
"""Restarts that no run uses up."""

SHAPES = ("chain", "keyed", "keyed", "twice", "diamond")
"""Of a pipeline: forward only; one keyed exchange; two; two branches that meet before it."""

_UNALIGNED = "execution.checkpointing.unaligned.enabled"
_TIMEOUT = "execution.checkpointing.aligned-checkpoint-timeout"

CALLS_S = (0.00002, 0.0005, 0.03, 0.03, 0.2)
"""How long a call of a function takes, where calls take time."""

MODES: Mapping[str, Mapping[str, str]] = {
    "aligned": {},
    "unaligned": {_UNALIGNED: "true"},
    "aligned with timeout": {_UNALIGNED: "true", _TIMEOUT: "60 ms"},
    "at least once": {"execution.checkpointing.mode": "AT_LEAST_ONCE"},
}
"""How barriers are handled, as options of the job."""


_LOGGED = {
    "state.changelog.enabled": "true",
    "state.changelog.periodic-materialize.interval": "150 ms",
    "state.changelog.dstl.dfs.preemptive-persist-threshold": "100 b",
    "state.changelog.max-failures-allowed": "1000",
}
"""Changes of state are logged."""

_IN_PARTS = {
    "tidegate.snapshot.part-size": "0 b",
    "tidegate.snapshot.slice-idle-ms": "0.001",
    "tidegate.snapshot.slice-busy-ms": "0.001",
}
"""Each key group is written as soon as it is encoded, before there is another one."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One part of a job, which shares nothing with its other parts. sources: united.

    lookup: ``ordered`` or ``unordered`` where each number is looked up first; else empty. calls_s:
    how long calls take, one after the other in a chain; empty where they take no time.
    """

    name: str
    shape: str
    sources: tuple[Numbers, ...]
    keys: int
    rebalance: bool
    sink: Ledger
    lookup: str = ""
    calls_s: tuple[float, ...] = ()

    def build(
        self, env: StreamExecutionEnvironment, run: int, *, exactly_once: bool, timed: bool
    ) -> None:
        """Add it to a job."""
        streams = [
            env.from_source(source, None, f"{self.name}{index}").uid(self.source_uid(index))
            for index, source in enumerate(self.sources)
        ]
        numbers = streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]
        numbers = self._looked_up(self._spread(numbers, run), run)
        rows = numbers
        if self.shape != "chain":
            branched = self._branched(numbers)
            rows = self._counted(branched, run, exactly_once=exactly_once, timed=timed)
        elif len(streams) == 1 and self.rebalance:
            rows = numbers.map(lambda n: n).uid(f"{self.name} map").rebalance()
        rows.sink_to(self.sink).uid(self.sink_uid)

    def _spread(self, numbers: DataStream[int], run: int) -> DataStream[int]:
        """Each number, after calls that take their time, in the chain of the source."""
        if not self.calls_s:
            return numbers
        first, second, _ = self.calls_s
        name = f"{self.name} spreading"
        in_hand = self.sources[0].rows if len(self.sources) == 1 else 0
        spreading = Spreading(run, name, first, others=1, in_hand=in_hand)
        spread = numbers.flat_map(spreading).uid(name)
        return spread.filter(Dropping(run, second)).uid(f"{self.name} dropping")

    def _looked_up(self, numbers: DataStream[int], run: int) -> DataStream[int]:
        if not self.lookup:
            return numbers
        ordered = self.lookup == "ordered"
        wait = AsyncDataStream.ordered_wait if ordered else AsyncDataStream.unordered_wait
        return wait(numbers, Lookup(run), Time.minutes(5), capacity=3).uid(self.lookup_uid)

    def _branched(self, numbers: DataStream[int]) -> DataStream[int]:
        if self.shape != "diamond":
            return numbers.rebalance() if self.rebalance else numbers
        even = numbers.map(lambda n: 2 * n).uid(f"{self.name} even")
        odd = (numbers.rebalance() if self.rebalance else numbers).map(lambda n: 2 * n + 1)
        return even.union(odd.uid(f"{self.name} odd"))

    def _counted(
        self, numbers: DataStream[int], run: int, *, exactly_once: bool, timed: bool
    ) -> DataStream[object]:
        keys = self.keys
        call_s = self.calls_s[-1] if self.calls_s else 0.0
        counting = Counting(run, self.counting_uid, keys, timed=timed, call_s=call_s)
        keyed = numbers.key_by(lambda n: n % keys, Types.LONG())
        rows: DataStream[object] = keyed.process(counting).uid(self.counting_uid)
        if self.shape == "twice":
            checking = Checking(run, self.checking_uid, exactly_once=exactly_once)
            again = rows.key_by(lambda row: row[1], Types.LONG())
            rows = again.process(checking).uid(self.checking_uid)
        return rows

    def source_uid(self, index: int) -> str:
        return f"{self.name} source {index}"

    @property
    def lookup_uid(self) -> str:
        return f"{self.name} lookup"

    @property
    def counting_uid(self) -> str:
        return f"{self.name} counting"

    @property
    def checking_uid(self) -> str:
        return f"{self.name} checking"

    @property
    def sink_uid(self) -> str:
        return f"{self.name} ledger"

    @property
    def committer_uid(self) -> str:
        """Of the step whose state holds what the sink has prepared."""
        in_parts = isinstance(self.sink, LedgerInParts)
        return f"{self.sink_uid}: LedgerInParts: Committer 1" if in_parts else self.sink_uid

    def values(self, number: int) -> tuple[int, ...]:
        """What a number of a source becomes."""
        return (2 * number, 2 * number + 1) if self.shape == "diamond" else (number,)

    @property
    def expected(self) -> set[int]:
        """All values that reach the sink."""
        numbers = (n for s in self.sources for n in range(s.first, s.first + s.count))
        return {value for number in numbers for value in self.values(number)}

    def faults(self, rows: list[list[object]], *, exactly_once: bool, whole: bool) -> list[str]:
        """What is wrong with what its sink has committed. whole: whether the job has finished."""
        values = Counter(row[0] for row in rows if not is_mark(row))
        expected = self.expected
        faults = [f"{self.name}: {n} is lost" for n in sorted(expected - values.keys()) if whole]
        faults += [f"{self.name}: {n} was never made" for n in sorted(values.keys() - expected)]
        if not exactly_once:
            return faults[:10]
        faults += [f"{self.name}: {n} came {c} times" for n, c in values.items() if c != 1]
        counts: defaultdict[object, list[object]] = defaultdict(list)
        for value, key, count in rows:
            if not isinstance(value, str) and key != -1:
                counts[key].append(count)
        faults += [
            f"{self.name}: counts of key {key} are {sorted(found)[:20]}"
            for key, found in counts.items()
            if sorted(found) != list(range(1, len(found) + 1))
        ]
        return faults[:10]


class Plan:
    """A job drawn from a seed.

    mode: how barriers are handled; drawn too where it is None. lookup: of its pipelines. calls:
    whether calls of functions take time.
    storage_s, network_s: delays of the world. rescaled: whether it has run with another
    parallelism too. restarts: how many failures it survives. fell_back: whether it has gone back to
    an older checkpoint, and rows came again. timed: whether keys say when event time is over.
    drains: how often somebody wanted it to be over before the input's end. survivors: whether slots
    that live host the subtasks of lost ones; drawn too where it is False.
    """

    def __init__(
        self,
        chance: Random,
        run: int,
        mode: str | None,
        *,
        lookup: str,
        calls: bool,
        survivors: bool,
        parts: bool,
        storage_s: float,
        network_s: float,
    ) -> None:
        self.run = run
        drawn = chance.choice(["aligned", *MODES])
        self.mode = mode or drawn
        self.parallelism = chance.choice([1, 2, 2, 3])
        self.pipelines = [
            replace(_pipeline(chance, run, name), lookup=lookup)
            for name in chance.choice(["a", "a", "a", "ab"])
        ]
        self.batch = chance.choice([1, 4, 16])
        self.credit = chance.choice([1, 2, 4])
        self.interval_ms = chance.choice([50, 100, 200, 500])
        self.concurrent = 1 if self.unaligned else chance.choice([1, 2, 3])
        self.retained = chance.choice([1, 1, 2, 3])
        self.inline = chance.choice([0, 0, 20_480])
        # Some five calls of storage follow one another in a checkpoint, each of twice its delay,
        # and of its many messages one or two may take long.
        # In parts, each key group of each operator is such a call.
        self.in_parts = Random(f"in parts {run}").random() < 0.4
        least_ms = 300 + int((140_000 if self.in_parts else 12_000) * storage_s)
        least_ms += int(40_000 * network_s)
        self.timeout_ms = chance.choice([least_ms, 2 * least_ms, 60_000])
        self.lease_ms = chance.choice([3_000, 10_000])
        self.retain = chance.random() < 0.5
        self.hook = chance.random() < 0.35
        # Apart, so that a seed's other draws are what they were.
        self.incremental = Random(f"incremental {run}").random() < 0.4
        self.logged = Random(f"logged {run}").random() < 0.3
        if calls:
            self._draw_calls(Random(f"calls of {run}"))
        if parts:
            self._draw_parts(Random(f"parts of {run}"))
        self.rescaled = self.fell_back = False
        self.restarts = LASTING
        # Drawn apart, so that the other runs are still those that their seeds have always been.
        self.timed = Random(f"drains of {run}").random() < 0.15
        self.drains = 0
        self.survivors = survivors or Random(f"survivors of {run}").random() < 0.25

    def _draw_calls(self, chance: Random) -> None:
        """How long the functions' calls take: from microseconds to a good part of a second."""
        self.pipelines = [
            replace(each, calls_s=tuple(chance.choice(CALLS_S) for _ in range(3)))
            for each in self.pipelines
        ]
        # A checkpoint waits for calls at each step of its way, and is to have time for them. Where
        # barriers are aligned by force, all that stands before a slow step comes first.
        self.timeout_ms = 300_000
        self.lease_ms = 10_000

    def _draw_parts(self, chance: Random) -> None:
        """Sinks whose committers are a step of their own, and whose writers flush for long."""
        self.pipelines = [
            replace(each, sink=each.sink.in_parts(chance.choice([0.05, 0.3, 1.0])))
            for each in self.pipelines
        ]

    @property
    def call_s(self) -> float:
        """The longest call."""
        return max((call_s for each in self.pipelines for call_s in each.calls_s), default=0.0)

    def __repr__(self) -> str:
        return f"Plan({', '.join(f'{name}={value}' for name, value in vars(self).items())})"

    @property
    def exactly_once(self) -> bool:
        return self.mode != "at least once"

    @property
    def each_once(self) -> bool:
        """Whether each row came once: the job never went back behind what it had committed."""
        return self.exactly_once and not self.fell_back

    @property
    def unaligned(self) -> bool:
        """Whether barriers may overtake data."""
        return _UNALIGNED in MODES[self.mode]

    def graph(
        self,
        *,
        restore: str | None,
        parallelism: int | None = None,
        claim: bool = False,
        fall_back: bool = False,
    ) -> JobGraph:
        """The job. restore: ``latest``, or the folder of a checkpoint; None to begin anew."""
        retention = "RETAIN_ON_CANCELLATION" if self.retain else "NO_EXTERNALIZED_CHECKPOINTS"
        options = {
            "execution.checkpointing.interval": f"{self.interval_ms} ms",
            "execution.checkpointing.dir": FOLDER,
            "execution.checkpointing.savepoint-dir": SAVEPOINTS,
            "execution.checkpointing.timeout": f"{self.timeout_ms} ms",
            "execution.checkpointing.max-concurrent-checkpoints": str(self.concurrent),
            "execution.checkpointing.tolerable-failed-checkpoints": "100000",
            "execution.checkpointing.num-retained": str(self.retained),
            "execution.checkpointing.externalized-checkpoint-retention": retention,
            "execution.checkpointing.incremental": str(self.incremental).lower(),
            "state.storage.fs.memory-threshold": str(self.inline),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": str(self.restarts),
            "restart-strategy.fixed-delay.delay": "10 ms",
            "heartbeat.timeout": f"{self.lease_ms} ms",
            "tidegate.batch.rows": str(self.batch),
            "tidegate.net.credit": str(self.credit),
            "tidegate.recovery.on-survivors": str(self.survivors).lower(),
            **MODES[self.mode],
            **(_LOGGED if self.logged else {}),
            **(_IN_PARTS if self.in_parts else {}),
        }
        if restore is not None:
            options["execution.state-recovery.path"] = restore
            options["execution.state-recovery.claim-mode"] = "CLAIM" if claim else "NO_CLAIM"
            options["tidegate.restore.fall-back"] = str(fall_back).lower()
        configuration = Configuration.from_dict(options)
        env = StreamExecutionEnvironment.local(configuration=configuration)
        self.rescaled = self.rescaled or parallelism not in (None, self.parallelism)
        env.set_parallelism(parallelism or self.parallelism)
        env.set_max_parallelism(4 if self.incremental else 16)  # some keys change of several
        if self.hook:
            env.add_master_hook(SlowHook())
        for pipeline in self.pipelines:
            pipeline.build(env, self.run, exactly_once=self.exactly_once, timed=self.timed)
        return env.get_job_graph("simulated")

    def doubled(self) -> int:
        """Rows beyond one a number."""
        rows = [(row[0], row[1]) for row in OUTSIDE[self.run].rows() if not is_mark(row[1:])]
        return len(rows) - len(set(rows))

    def faults(self, *, whole: bool, drained: bool = False) -> list[str]:
        """What is wrong with what was committed: nothing where each number came as it may.

        whole: the job has finished. drained: it has stopped, once event time was over.
        """
        by_sink: defaultdict[object, list[list[object]]] = defaultdict(list)
        for sink, *row in OUTSIDE[self.run].rows():
            by_sink[sink].append(row)
        faults = []
        for pipeline in self.pipelines:
            rows = by_sink[pipeline.name]
            faults += pipeline.faults(rows, exactly_once=self.each_once, whole=whole)
            if whole and not self.rescaled:
                faults += self._ends(pipeline.name, rows)
            if self.timed and pipeline.shape != "chain":
                faults += self._times(pipeline, rows, over=whole or drained)
        return faults

    def _times(self, pipeline: Pipeline, rows: list[list[object]], *, over: bool) -> list[str]:
        """What is wrong with whom event time has told that it is over; whether it is by now.

        It need not be when all numbers have come: the end of the sources comes behind them.
        """
        told = Counter(key for value, key, _ in rows if value == "over")
        keys = {key for value, key, _ in rows if not isinstance(value, str)}
        ended = pipeline.expected <= {row[0] for row in rows}
        unheard = keys - told.keys() if over else ()
        faults = [f"{pipeline.name}: time was never over for key {key}" for key in unheard]
        # One subtask of a sink may have committed all of its rows, the mark too, before another.
        most = self.drains + (ended or not over) if self.each_once else len(rows)
        more = [key for key, times in told.items() if times > most]
        return faults + [f"{pipeline.name}: time was over too often for key {key}" for key in more]

    def _ends(self, name: str, rows: list[list[object]]) -> list[str]:
        ended = {row[1] for row in rows if row[0] == "end"}
        return [
            f"{name}: sink {n} has not ended" for n in range(self.parallelism) if n not in ended
        ]


def _pipeline(chance: Random, run: int, name: str) -> Pipeline:
    shape = chance.choice(SHAPES)
    sources: list[Numbers] = []
    first = 0
    for _ in range(chance.choice([1, 1, 2, 3])):
        ticks = chance.randint(1, TICKS_MAX)
        rows = chance.choice([1, 3, 8])
        count = min(ticks * rows, ROWS_MAX)
        split = chance.choice([4, 10, 40])
        sources.append(Numbers(first, count, split, chance.choice([5, 30, 100]), rows))
        first += count
    slow = chance.random() < 0.25
    sink = Ledger(
        run,
        name,
        slow=chance.choice([0, 1]) if slow else -1,
        write_s=chance.choice([0.01, 0.1]),
        durable_s=chance.choice([0.0, 0.0, 0.0, 0.05]),
    )
    keys = chance.choice([1, 5, 17])
    return Pipeline(name, shape, tuple(sources), keys, chance.random() < 0.3, sink)
