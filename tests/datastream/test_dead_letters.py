"""Rows for which a step's function fails, in a side output; and steps that cannot tell them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.datastream.fakes import KeepingRuntime, Nowhere, environment, numbers
from tidegate import (
    AsyncDataStream,
    AsyncFunction,
    CheckpointedFunction,
    Configuration,
    DeadLetter,
    GraphError,
    JobFailed,
    MapFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Time,
    Types,
)
from tidegate.api.state import OperatorStateDescriptor
from tidegate.testing import OperatorHarness

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from tidegate import DataStream
    from tidegate.api.functions import SnapshotContext

BAD = OutputTag[DeadLetter]("bad")
LONG = Time.minutes(1)
ROWS = [{"n": n} for n in range(6)]


def both(step: Callable[[DataStream[Any]], DataStream[Any]]) -> tuple[list[Any], list[DeadLetter]]:
    """What a step gives of six rows, and the letters of its dead."""
    made = step(StreamExecutionEnvironment.local().from_collection(ROWS)).dead_letters(BAD)
    with made.union(made.get_side_output(BAD)).execute_and_collect() as results:
        found = list(results)
    letters = [each for each in found if isinstance(each, DeadLetter)]
    return [each for each in found if not isinstance(each, DeadLetter)], letters


def dividing(row: dict[str, int]) -> int:
    row["seen"] = row.get("seen", 0) + 1
    assert row["seen"] == 1, "a row is given as it came"
    return 12 // (row["n"] - 3)


def some(row: dict[str, int]) -> Iterator[int]:
    yield row["n"]
    yield dividing(row)


class Some(ProcessFunction[dict[str, int], int]):
    def process_element(self, value: dict[str, int], ctx: ProcessFunction.Context) -> Iterator[int]:
        yield from some(value)


async def asked(row: dict[str, int]) -> int:
    return dividing(row)


class Model(AsyncFunction[dict[str, int], int]):
    async def async_invoke_batch(self, values: list[dict[str, int]]) -> list[list[int]]:
        return [[dividing(value)] for value in values]


def in_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow.compute as pc

    return batch.set_column(0, "n", pc.divide(12, pc.subtract(batch["n"], 3)))


DIVIDED = [-4, -6, -12, 12, 6]
TWICE = [0, -4, 1, -6, 2, -12, 4, 12, 5, 6]


@pytest.mark.parametrize(
    ("step", "given"),
    [
        (lambda s: s.map(dividing), DIVIDED),
        (lambda s: s.flat_map(some), TWICE),
        (lambda s: s.process(Some()), TWICE),
        (lambda s: s.filter(lambda row: 12 // (row["n"] - 3) > 0), ROWS[4:]),
        (lambda s: s.map_batches(in_columns), [{"n": n} for n in DIVIDED]),
        (lambda s: s.flat_map_batches(lambda b: [in_columns(b)]), [{"n": n} for n in DIVIDED]),
        (lambda s: AsyncDataStream.ordered_wait(s, asked, LONG), DIVIDED),
        (lambda s: AsyncDataStream.ordered_wait(s, Model(), LONG), DIVIDED),
    ],
    ids=[
        *("map", "flat_map", "process", "filter", "map_batches", "flat_map_batches"),
        *("async", "async batches"),
    ],
)
def test_a_row_that_fails_is_told_alone_and_gives_nothing(
    step: Callable[[DataStream[Any]], DataStream[Any]], given: list[object]
) -> None:
    found, letters = both(lambda rows: step(rows).name("dividing"))
    assert found == given
    (letter,) = letters
    assert letter.value == {"n": 3} and letter.raw is None
    assert letter.where == "operator 'dividing'"
    assert "ZeroDivisionError" in letter.why or "divide by zero" in letter.why


def test_without_dead_letters_the_job_fails() -> None:
    rows = StreamExecutionEnvironment.local().from_collection(ROWS)
    with pytest.raises(JobFailed, match="ZeroDivisionError"):
        list(rows.map(dividing).execute_and_collect())


class Keyed(MapFunction[int, int]):
    def map(self, value: int) -> int:
        return value


class Remembering(MapFunction[int, int], CheckpointedFunction):
    def map(self, value: int) -> int:
        return value

    def snapshot_state(self, context: SnapshotContext) -> None:
        pass


@pytest.mark.parametrize(
    "step",
    [
        lambda s: s.map(Remembering()),
        lambda s: s.key_by(str).map(Keyed()),
        lambda s: s.key_by(str).reduce(max),
        lambda s: s.union(s).map(Remembering()),
    ],
)
def test_a_step_with_state_cannot_tell_rows_that_fail(
    step: Callable[[DataStream[int]], DataStream[Any]],
) -> None:
    with pytest.raises(GraphError, match="cannot send rows that fail to a side output") as caught:
        step(numbers(environment())).dead_letters(BAD)
    assert caught.value.where == "dead_letters" and caught.value.remedy


class Counting(MapFunction[int, float]):
    """Keeps state without being a CheckpointedFunction."""

    def __init__(self, asks: Callable[[RuntimeContext], object]) -> None:
        self._asks = asks

    def open(self, runtime_context: RuntimeContext) -> None:
        self._asks(runtime_context)

    def map(self, value: int) -> float:
        return 1 / value


def list_state(context: RuntimeContext) -> object:
    return context.get_operator_list_state(OperatorStateDescriptor("seen"))


@pytest.mark.parametrize(
    "asks",
    [
        list_state,
        lambda c: c.get_broadcast_state(
            MapStateDescriptor("rules", Types.STRING(), Types.STRING())
        ),
    ],
)
def test_a_step_that_asks_for_state_when_it_opens_is_refused(
    asks: Callable[[RuntimeContext], object],
) -> None:
    with pytest.raises(GraphError, match="asks for state in a step with dead_letters") as caught:
        OperatorHarness(lambda s: s.map(Counting(asks)).name("counting").dead_letters(BAD))
    assert caught.value.where == "operator 'counting'"


def test_with_a_folder_rows_of_a_step_with_state_fail_the_job(tmp_path: Path) -> None:
    settings = Configuration().set_string("pipeline.dead-letters", str(tmp_path))
    env = StreamExecutionEnvironment.local(configuration=settings)
    counted = env.from_collection([1, 2, 0]).map(Counting(list_state))
    with pytest.raises(JobFailed, match="ZeroDivisionError"):
        list(counted.execute_and_collect())


def test_rows_that_fail_in_any_step_go_to_a_folder_where_that_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "dead"
    settings = Configuration().set_string("pipeline.dead-letters", str(folder))
    env = StreamExecutionEnvironment.local(configuration=settings)
    rows = env.from_collection([*ROWS, {"n": "x"}, {"n": {5}}])
    divided = rows.map(dividing).name("dividing").map(lambda n: 1 // (n + 4)).name("again")
    with divided.key_by(lambda n: n).reduce(max).execute_and_collect() as results:
        assert sorted(results) == [-1, -1, 0, 0]
    lines = [line for part in folder.rglob("part*") for line in part.read_text().splitlines()]
    told = sorted(map(json.loads, lines), key=lambda each: (each["where"], str(each["value"])))
    assert [(each["where"], each["value"]) for each in told] == [
        ("operator 'again'", -4),
        ("operator 'dividing'", {"n": "x"}),
        ("operator 'dividing'", {"n": 3}),
        ("operator 'dividing'", {"n": [5]}),
    ]
    assert all(each["why"] and each["raw"] is None for each in told)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def failing(row: str | Exception) -> str:
    if row == "text":
        raise Unspeakable
    raise ValueError("half a pair: \ud800")


def test_a_letter_is_written_whatever_its_row_and_error_are(tmp_path: Path) -> None:
    settings = Configuration().set_string("pipeline.dead-letters", str(tmp_path))
    env = StreamExecutionEnvironment.local(configuration=settings)
    rows = env.from_collection(["text", "pair", "\udfff", Unspeakable()])
    assert list(rows.map(failing).name("failing").execute_and_collect()) == []
    lines = [line for part in tmp_path.rglob("part*") for line in part.read_text().splitlines()]
    raised = "the function of operator 'failing' raised"
    pair = f"{raised} ValueError: half a pair: \\ud800"
    assert sorted((each["why"], each["value"]) for each in map(json.loads, lines)) == [
        (f"{raised} Unspeakable, whose text raises RuntimeError", "text"),
        (pair, "'\\udfff'"),
        (pair, "<Unspeakable whose repr raises RuntimeError>"),
        (pair, "pair"),
    ]


def test_a_folder_for_dead_letters_leaves_the_uids_of_steps_alone(tmp_path: Path) -> None:
    def ids(**settings: str) -> set[object]:
        runtime = KeepingRuntime()
        env = environment(runtime, settings)
        kept = numbers(env).map(str).uid("texts").key_by(str).reduce(max).uid("greatest")
        kept.sink_to(Nowhere()).uid("out")
        env.execute()
        (graph,) = runtime.submitted
        infos = [info for vertex in graph.topology.vertices for info in vertex.operators]
        return {info.id for info in infos if info.uid is not None}

    assert ids() < ids(**{"pipeline.dead-letters": str(tmp_path)})
