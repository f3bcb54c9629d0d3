"""Random jobs whose right answer is known: numbers, counted by key, once or twice."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tidegate import (
    Configuration,
    KeyedProcessFunction,
    Prepared,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    WriterContext,
)
from tidegate.api.batches import as_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.elements import Batch
    from tidegate.model.ids import CheckpointId

LEDGERS: dict[int, dict[str, bytes]] = defaultdict(dict)
"""What each run has committed, by its number: the world outside of the job."""

Row = tuple[int, int, int]  # number, key, how many of the key so far


class Counting(KeyedProcessFunction):
    """How many of the key came so far, this one included."""

    def __init__(self, keys: int) -> None:
        self._keys = keys

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield value, value % self._keys, count


class Checking(KeyedProcessFunction):
    """Passes rows on, and holds that the counts of a key come in order, each once."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        last = self._last.value() or 0
        if value[2] != last + 1:
            raise AssertionError(f"key {value[1]}: count {value[2]} came after {last}")
        self._last.update(value[2])
        yield value


class Writer:
    def __init__(self, ledger: int, name: str) -> None:
        self._ledger, self._name = ledger, name
        self._prepared = 0
        self._rows: list[object] = []

    def write(self, batch: Batch) -> None:
        self._rows += as_rows(batch).values

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        if not self._rows:
            return Prepared()
        self._prepared += 1
        name = f"{self._name}-{self._prepared}"
        committable = json.dumps([name, self._rows]).encode()
        self._rows = []
        return Prepared((committable,))

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[bytes]:
        return ()

    def close(self) -> None:
        self._rows = []


class Committer:
    def __init__(self, ledger: int) -> None:
        self._ledger = ledger

    def commit(self, committables: Sequence[bytes]) -> None:
        for committable in committables:
            name = json.loads(committable)[0]
            known = LEDGERS[self._ledger].setdefault(name, committable)
            assert known == committable, "one name, two contents"

    def close(self) -> None:
        pass


class Ledger:
    """A transactional sink into the world outside."""

    def __init__(self, number: int) -> None:
        self._number = number

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> Writer:
        return Writer(self._number, f"{context.job}-{context.attempt_name}")

    def committer(self) -> Committer:
        return Committer(self._number)


class Plan:
    """A job drawn from a seed. numbers: how many each source gives."""

    def __init__(self, chance: Random, ledger: int) -> None:
        self.ledger = ledger
        self.parallelism = chance.choice([1, 2, 2, 3])
        self.keys = chance.choice([1, 5, 17])
        self.numbers = [chance.randint(1, 400) for _ in range(chance.choice([1, 1, 2, 3]))]
        self.rates = [chance.choice([50, 100, 200]) for _ in self.numbers]
        self.rows = chance.choice([1, 4, 16])
        self.credit = chance.choice([1, 2, 4])
        self.interval_ms = chance.choice([50, 200, 500])
        self.concurrent = chance.choice([1, 1, 2])
        self.inline = chance.choice([0, 20_480])
        self.timeout_ms = chance.choice([2_500, 5_000])
        self.exactly_once = chance.random() < 0.8
        self.twice = chance.random() < 0.5

    def __repr__(self) -> str:
        return f"Plan({', '.join(f'{name}={value}' for name, value in vars(self).items())})"

    def graph(self, *, resume: bool, parallelism: int | None = None) -> JobGraph:
        configuration = Configuration.from_dict(
            {
                "execution.checkpointing.interval": f"{self.interval_ms} ms",
                "execution.checkpointing.dir": "memory:/checkpoints",
                "execution.checkpointing.mode": "EXACTLY_ONCE"
                if self.exactly_once
                else "AT_LEAST_ONCE",
                "execution.checkpointing.timeout": f"{self.timeout_ms} ms",
                "execution.checkpointing.max-concurrent-checkpoints": str(self.concurrent),
                "execution.checkpointing.tolerable-failed-checkpoints": "1000",
                "state.storage.fs.memory-threshold": str(self.inline),
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": "1000",
                "restart-strategy.fixed-delay.delay": "10 ms",
                "tidegate.batch.rows": str(self.rows),
                "tidegate.net.credit": str(self.credit),
                **({"execution.state-recovery.path": "latest"} if resume else {}),
            }
        )
        env = StreamExecutionEnvironment.local(configuration=configuration)
        env.set_parallelism(parallelism or self.parallelism).set_max_parallelism(16)
        keys = self.keys
        streams = []
        start = 0
        for index, (count, rate) in enumerate(zip(self.numbers, self.rates, strict=True)):
            first = start
            streams.append(
                env.generate(lambda n, first=first: first + n, count, rate).uid(f"source-{index}")
            )
            start += count
        numbers = streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]
        counted = numbers.key_by(lambda n: n % keys, Types.LONG()).process(Counting(keys))
        rows = counted.uid("counting")
        if self.twice and self.exactly_once:
            rows = rows.key_by(lambda row: row[1], Types.LONG()).process(Checking()).uid("checking")
        rows.sink_to(Ledger(self.ledger)).uid("ledger")
        return env.get_job_graph("simulated")

    def committed(self) -> list[list[int]]:
        """All that was committed."""
        return [row for data in LEDGERS[self.ledger].values() for row in json.loads(data)[1]]

    def doubled(self) -> int:
        """Rows beyond one a number."""
        rows = self.committed()
        return len(rows) - len({row[0] for row in rows})

    def faults(self) -> list[str]:
        """What is wrong with what was committed: nothing where each number came as it may."""
        rows = self.committed()
        total = sum(self.numbers)
        seen = Counter(row[0] for row in rows)
        faults = [f"{n} is lost" for n in range(total) if n not in seen]
        if not self.exactly_once:
            return faults[:10]
        faults += [f"{n} came {c} times" for n, c in sorted(seen.items()) if c != 1]
        counts: dict[int, list[int]] = defaultdict(list)
        for _, key, count in rows:
            counts[key].append(count)
        faults += [
            f"counts of key {key} are {sorted(found)[:20]}"
            for key, found in counts.items()
            if sorted(found) != list(range(1, len(found) + 1))
        ]
        return faults[:10]
