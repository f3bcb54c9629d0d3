"""Jobs whose keyed state is on disk, in RocksDB: what they give is what others give."""

import os
from collections.abc import Iterator

import pytest

from tests.e2e import restores
from tests.e2e.ledger import ledger_rows
from tests.e2e.programs import all_expected, all_found, build_all
from tests.e2e.runtimes import Jobs, finished
from tests.e2e.savepoints import NEVER_MS, counting, wait_rows
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import kill_slot, wait_completed, wait_recovered
from tidegate import (
    KeyedProcessFunction,
    RuntimeContext,
    SavepointFormatType,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

pytestmark = pytest.mark.slow

TOTAL = 6_000
MANY = 30_000
IN_MEMORY: dict[str, object] = {}
ON_DISK: dict[str, object] = {"state.backend.type": "rocksdb"}


class Times(KeyedProcessFunction[int, tuple[int, int]]):
    """How many times a key has come."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(
        self, value: int, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, int]]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield value, count


class JobsOnDisk(Jobs):
    """The same, with a cache of few entries, so that most of the state is not in it."""

    def __init__(self, jobs: Jobs) -> None:
        super().__init__(jobs.make, jobs.folder)
        self._inner = jobs

    def env(self, parallelism: int = 1, **settings: object) -> StreamExecutionEnvironment:
        on_disk: dict[str, object] = {
            **ON_DISK,
            "state.backend.rocksdb.localdir": str(self.folder / "local"),
            "tidegate.state.rocksdb.cache-entries": 1_000,
        }
        return self._inner.env(parallelism, **{**on_disk, **settings})


@pytest.fixture
def on_disk(jobs: Jobs) -> JobsOnDisk:
    return JobsOnDisk(jobs)


def test_programs_give_what_plain_python_gives(on_disk: JobsOnDisk) -> None:
    env = on_disk.checkpointed(2, 50)
    build_all(env, on_disk.folder / "out")
    finished(on_disk.start(env, "programs"))
    found = all_found(on_disk.folder / "out")
    for name, bag in all_expected().items():
        assert found[name] == bag, name
    assert not list((on_disk.folder / "local").rglob("*"))


@pytest.mark.feature("F014")
def test_state_of_many_more_keys_than_the_memory_may_hold_is_on_disk(on_disk: JobsOnDisk) -> None:
    """The cache of a slot holds a thousand entries, and each key comes twice, a second apart."""
    env = on_disk.checkpointed(1, 200)
    numbers = env.generate(lambda number: number % MANY, 2 * MANY, MANY, Types.LONG())
    counts = numbers.key_by(lambda key: key, key_type=Types.LONG()).process(Times())
    twice, files = set[int](), set[str]()
    with counts.execute_and_collect("many keys") as rows:
        for row, (key, count) in enumerate(rows):
            if count == 2:
                twice.add(key)
            if row % 1_000 == 0:
                for _, _, names in os.walk(on_disk.folder / "local"):  # folders come and go
                    files.update(name for name in names if name.endswith(".sst"))
    assert twice == set(range(MANY))
    assert files


@pytest.mark.feature("F015")
@pytest.mark.parametrize("storage", ["jobmanager", "filesystem"])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_any_backend_goes_with_any_storage(jobs: Jobs, backend: str, storage: str) -> None:
    settings: dict[str, object] = {
        "state.backend.type": backend,
        "execution.checkpointing.storage": storage,
    }
    client = counting(jobs, 2, TOTAL, 3_000, interval_ms=100, settings=settings)
    wait_completed(client, 2)
    kill_slot(client, 0)
    wait_recovered(client, 1)
    finished(client)
    check_each_counted_once(ledger_rows(jobs.folder / "out"), TOTAL)


def test_a_job_goes_on_at_other_parallelisms(on_disk: JobsOnDisk) -> None:
    restores.check_rescaled([(on_disk, 1), (on_disk, 2), (on_disk, 3), (on_disk, 1)])


@pytest.mark.feature("F252")
@pytest.mark.parametrize("first", ["memory", "disk"])
def test_a_savepoint_in_canonical_form_takes_state_from_one_backend_to_the_other(
    jobs: Jobs, first: str
) -> None:
    """And back again, at other parallelisms."""
    kinds = [IN_MEMORY, ON_DISK, IN_MEMORY] if first == "memory" else [ON_DISK, IN_MEMORY, ON_DISK]
    saved: str | None = None
    for step, settings in enumerate(kinds):
        last = step == len(kinds) - 1
        client = counting(
            jobs,
            step % 2 + 1,
            TOTAL,
            None if last else 2_000,
            start_from=saved,
            settings=settings,
            interval_ms=100 if last else NEVER_MS,
            name=f"step {step}",
        )
        if last:
            finished(client)
            break
        wait_rows(client, 500)
        saved = client.stop_with_savepoint(
            False,
            savepoint_directory=str(jobs.folder / "savepoints"),
            format=SavepointFormatType.CANONICAL,
        ).result(60)
    check_each_counted_once(ledger_rows(jobs.folder / "out"), TOTAL)
