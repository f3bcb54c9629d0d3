"""One program finds the same as a stream here, as one on Spark, and as a batch of its stages."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.e2e.examples import EXAMPLES, Example, check
from tests.e2e.runtimes import Jobs
from tests.spark.batch_programs import PROGRAMS, Program
from tidegate import RuntimeExecutionMode, StreamExecutionEnvironment

pytestmark = pytest.mark.slow

BY_ARRIVAL = {"previous_by_time", "previous_of_texts_by_time"}
"""Programs that tell in which order records have come; one subtask has them in that of time."""

ROLLING = {
    "reduced_numbers",
    "words",
    "records_of_classes_with_nothing",
    "asynchronous_calls",
    "aggregates_of_batches",
    "reduced_rows_of_batches",
}
"""Programs that give a key's result again with each record, and once at the end of a batch."""


def found(env: StreamExecutionEnvironment, build: Program) -> list[Any]:
    with build(env).execute_and_collect() as results:
        return list(results)


def in_batch(env: StreamExecutionEnvironment) -> StreamExecutionEnvironment:
    return env.set_runtime_mode(RuntimeExecutionMode.BATCH)


def last_of_each_key(results: Sequence[Any]) -> list[Any]:
    return list({result[0]: result for result in results}.values())


@pytest.mark.feature("F302")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_finds_the_same_in_each_way(jobs: Jobs, local_jobs: Jobs, name: str) -> None:
    build = PROGRAMS[name]
    streams = [
        found(local_jobs.env(1), build),
        found(jobs.env(1 if name in BY_ARRIVAL else 2), build),
    ]
    if name in ROLLING:
        streams = [last_of_each_key(each) for each in streams]
    batches = [found(in_batch(env), build) for env in (local_jobs.env(1), jobs.env(3))]
    first, *others = (sorted(each, key=repr) for each in streams + batches)
    assert first or name == "nothing_at_all"
    for other in others:
        assert other == first


def by_time(example: Example, time_of: Callable[[Any], int]) -> Example:
    """The example over its rows in the order of their times, in which a batch has them."""
    return replace(example, plain=lambda rows: example.plain(sorted(rows, key=time_of)))


def rolled_up(example: Example) -> Example:
    """The example with the last result of each key alone."""
    return replace(example, plain=lambda rows: last_of_each_key(example.plain(rows)))


IN_BATCH = EXAMPLES | {
    "late_data": by_time(EXAMPLES["late_data"], lambda event: event[1]),
    "word_count": rolled_up(EXAMPLES["word_count"]),
}
BY_THE_CLOCK = {"deduplicate", "heartbeats", "cache"}
"""Programs of processing time, which stands still in a batch."""


@pytest.mark.feature("F302")
@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - BY_THE_CLOCK))
def test_an_example_finds_in_batch_what_plain_python_finds(jobs: Jobs, name: str) -> None:
    check(jobs, IN_BATCH[name], 2, **{"execution.runtime-mode": "BATCH"})
