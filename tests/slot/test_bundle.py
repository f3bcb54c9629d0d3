"""What goes into the bundle of a step that failed, by what is at hand in its subtask."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from tests.worlds.clock import StepClock
from tests.worlds.subtask import WITHOUT_CHECKPOINTS, Recorder, World, rows
from tidegate.api.functions import TimeDomain
from tidegate.errors import ConfigError, FailedCall, StorageFailed, UserCodeFailed
from tidegate.model.elements import ArrowBatch, Batch, RowBatch
from tidegate.model.settings import ReplaySettings
from tidegate.slot.subtask.bundle import ON_TIMER, bundle_of
from tidegate.slot.subtask.chain import LastInputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.api.operator import Output, Steps

NAMES = ("operator 0", "operator 1")


class Broken(Recorder):
    """Fails at each batch, as a user's function does that was given its first row."""

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        raise failure("another name", 1)


def failure(operator: str, row: object, call: str = "", at: int | None = None) -> UserCodeFailed:
    error = UserCodeFailed("it failed")
    error.call = FailedCall(operator, row, call, at)
    return error


def world_of(*operators: Recorder, bytes_max: int = 1 << 20) -> World:
    replay = ReplaySettings("/bundles", bytes_max)
    slot = replace(WITHOUT_CHECKPOINTS.slot, replay=replay)
    made = operators or tuple(Recorder(name, []) for name in NAMES)
    return World(*made, settings=replace(WITHOUT_CHECKPOINTS, slot=slot))


def given(world: World, batches: Sequence[Batch], operator: int = 0, port: int = 0) -> None:
    """These are the last batches that an operator was given."""
    inputs = world.subtask.chain.operators[operator].inputs
    assert inputs is not None
    for batch in batches:
        inputs.add(batch, port)


def facts_of(world: World, error: Exception) -> dict[str, Any]:
    failed = bundle_of(world.subtask, error, world.clock)
    assert failed is not None
    with zipfile.ZipFile(io.BytesIO(failed.bundle)) as file:
        facts: dict[str, Any] = json.loads(file.read("facts.json"))
    assert facts["operator"] == failed.operator
    return facts


@pytest.mark.parametrize(
    "error",
    [StorageFailed("no disk"), UserCodeFailed("by none of its calls"), failure("elsewhere", 1)],
    ids=str,
)
def test_there_is_a_bundle_of_failures_in_functions_of_the_subtask_alone(error: Exception) -> None:
    world = world_of()
    given(world, [rows(1)])
    assert bundle_of(world.subtask, error, world.clock) is None


@pytest.mark.parametrize("name", NAMES)
def test_the_step_is_found_by_its_name(name: str) -> None:
    world, row = world_of(), "bad"
    given(world, [rows("good", row)], NAMES.index(name))
    facts = facts_of(world, failure(name, row))
    assert (facts["operator"], facts["row"], facts["rows"]) == (name, "'bad'", 1)
    assert facts["last_inputs"] == ["'bad'", "'good'"]


def test_the_step_is_found_by_the_frames_in_which_it_failed() -> None:
    world = world_of(Recorder("first", []), Broken("second", []))
    with pytest.raises(UserCodeFailed) as raised:
        world.subtask.chain.operators[1].accept(rows(1))
    assert facts_of(world, raised.value)["operator"] == "operator 1"


def test_the_row_itself_is_found_among_equal_ones_with_its_time_and_key() -> None:
    world, wanted = world_of(), [7]
    first = RowBatch([[7], wanted], [10, 20], ["a", "b"], [3, 4])
    given(world, [first, RowBatch([[8]], [30], ["c"], [5])])
    facts = facts_of(world, failure(NAMES[0], wanted))
    assert (facts["row"], facts["timestamp_ms"], facts["key"]) == ("[7]", 20, "'b'")


def test_of_rows_that_are_one_object_the_cell_tells_the_one_in_hand() -> None:
    world = world_of()
    given(world, [RowBatch([7, 7, 7, 7], [10, 20, 30, 30], ["a", "a", "a", "b"], [3, 3, 3, 4])])
    cell = world.subtask.chain.head.backend.cell
    for cell.key, cell.timestamp_ms, expected in (
        ("a", 20, (20, "'a'")),
        ("a", 30, (30, "'a'")),
        ("b", 30, (30, "'b'")),
    ):
        facts = facts_of(world, failure(NAMES[0], 7))
        assert (facts["timestamp_ms"], facts["key"]) == expected


def test_of_rows_that_are_one_object_the_call_may_tell_the_place() -> None:
    world = world_of()
    given(world, [RowBatch([7, 7, 7], [10, 20, 30])])
    facts = facts_of(world, failure(NAMES[0], 7, at=1))
    assert (facts["row"], facts["timestamp_ms"]) == ("7", 20)


def test_of_equal_rows_in_columns_the_cell_tells_the_one_in_hand() -> None:
    world = world_of()
    batch = pa.RecordBatch.from_pydict({"n": [5, 5]})
    given(world, [ArrowBatch(batch, np.array([10, 20]), "n", np.array([2, 2], np.int32))])
    cell = world.subtask.chain.head.backend.cell
    cell.key, cell.timestamp_ms = 5, 20
    facts = facts_of(world, failure(NAMES[0], {"n": 5}))
    assert (facts["rows"], facts["timestamp_ms"], facts["key"]) == (1, 20, "5")


def columns(*numbers: int, keyed: bool = False) -> ArrowBatch:
    batch = pa.RecordBatch.from_pydict({"n": numbers})
    if keyed:
        return ArrowBatch(batch, None, "n", np.arange(len(numbers), dtype=np.int32))
    return ArrowBatch(batch)


def test_a_row_of_keyed_columns_is_found_by_its_value() -> None:
    world = world_of()
    given(world, [columns(4, 5, 6, keyed=True)])
    facts = facts_of(world, failure(NAMES[0], {"n": 5}))
    assert (facts["rows"], facts["row"], facts["key"]) == (1, "{'n': 5}", "5")


def test_a_row_that_is_not_found_in_keyed_columns_comes_with_all_of_them() -> None:
    world = world_of()
    given(world, [columns(4, 5, keyed=True)])
    facts = facts_of(world, failure(NAMES[0], {"n": 9}))
    assert (facts["rows"], facts["row"], facts["key"]) == (2, "{'n': 9}", None)


def test_a_function_of_batches_was_given_the_whole_last_one() -> None:
    world = world_of()
    given(world, [rows("before"), columns(4, 5)])
    facts = facts_of(world, failure(NAMES[0], {"n": 4}))
    assert (facts["rows"], facts["row"]) == (2, "{'n': 4}")
    assert facts["last_inputs"] == ["{'n': 5}", "{'n': 4}", "'before'"]


def test_a_call_without_a_row_and_one_before_the_first_row_have_none() -> None:
    world = world_of()
    assert facts_of(world, failure(NAMES[0], "x"))["rows"] == 0
    given(world, [rows("x")])
    facts = facts_of(world, failure(NAMES[0], None, "close"))
    assert (facts["call"], facts["rows"], facts["row"]) == ("close", 0, None)
    assert facts["last_inputs"] == ["'x'"]


class TimerRow:
    """Where an operator of timers says of which time the one is that it calls."""

    domain = TimeDomain.PROCESSING_TIME


@pytest.mark.parametrize("taken_out", [True, False], ids=["taken out", "still there"])
@pytest.mark.parametrize("domain", ["event", "processing"])
def test_the_timer_that_was_called_is_there_once_for_its_key(domain: str, taken_out: bool) -> None:
    world = world_of()
    chained = world.subtask.chain.head
    chained.backend.cell.key, chained.backend.cell.group = "k", 2
    timers = chained.backend.timers("user-timers", None, lambda ms: None)
    if domain == "processing":
        vars(chained.operator)["_row"] = TimerRow()
    if not taken_out:
        (timers.event if domain == "event" else timers.processing).register(500)
    facts = facts_of(world, failure(NAMES[0], 500, ON_TIMER))
    assert (facts["timer_ms"], facts["key"], facts["rows"]) == (500, "'k'", 0)
    assert facts["timers"] == {f"{domain}_user-timers": ["('k', 500)"]}


def test_code_and_row_that_are_too_large_by_themselves_are_refused() -> None:
    world, row = world_of(bytes_max=900), "x" * 100_000
    given(world, [rows(row)])
    with pytest.raises(ConfigError, match="larger than a bundle may be") as raised:
        bundle_of(world.subtask, failure(NAMES[0], row), world.clock)
    assert raised.value.where == "tidegate.replay.max-size"


def test_as_many_of_the_last_batches_are_kept_as_the_rows_take() -> None:
    inputs = LastInputs(3)
    for batch in (rows(1, 2), rows(3), rows(4, 5)):
        inputs.add(batch, 0)
    assert [batch for batch, _ in inputs.batches] == [rows(3), rows(4, 5)]
    inputs.add(rows(6, 7, 8, 9), 1)
    assert list(inputs.batches) == [(rows(6, 7, 8, 9), 1)]


def test_the_hour_of_the_failure_is_that_of_the_slots_wall() -> None:
    world = world_of()
    world.clock = StepClock(5_000, stands_at_ms=77)
    assert facts_of(world, failure(NAMES[0], None, "open"))["failed_ms"] == 77
