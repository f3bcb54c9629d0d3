"""Broadcast state beside keyed state and timers, in several subtasks, through restores."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.operators.backed import BackedJob
from tests.operators.world import World
from tidegate import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    RuntimeContext,
    Types,
)
from tidegate.errors import UserError
from tidegate.model.elements import MAX_WATERMARK_MS
from tidegate.operators.process.process_functions import BroadcastOperator, KeyedBroadcastOperator

RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
SHAPES = MapStateDescriptor("shapes", Types.STRING(), Types.STRING())
BOTH = (RULES, SHAPES)


class Waiting(KeyedBroadcastProcessFunction[Any, int, tuple[str, int], tuple[Any, ...]]):
    """Values wait for their timer, which tells of them and of all rules."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.values = runtime_context.get_list_state(ListStateDescriptor("values", Types.LONG()))

    def process_element(
        self, value: int, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> None:
        self.timers = ctx.timer_service()
        self.values.add(value)
        self.timers.register_event_time_timer(value)

    def process_broadcast_element(
        self, value: tuple[str, int], ctx: KeyedBroadcastProcessFunction.Context
    ) -> None:
        if value[0] == "timer":
            self.timers.register_event_time_timer(value[1])
        ctx.get_broadcast_state(RULES).put(*value)
        ctx.get_broadcast_state(SHAPES)[value[0]] = str(value[1])

    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext
    ) -> Iterator[tuple[Any, ...]]:
        rules = ctx.get_broadcast_state(RULES)
        yield ctx.get_current_key(), list(self.values.get()), dict(rules.items())


def keyed_job(world: World, parallelism: int) -> BackedJob:
    return BackedJob(world, lambda: KeyedBroadcastOperator(Waiting(), BOTH), parallelism)


@pytest.mark.feature("F240", "F259")
@pytest.mark.parametrize("scales", [(2, 3), (3, 1), (1, 4, 2), (4, 1, 3)])
def test_each_subtask_has_a_copy_after_a_restore(world: World, scales: tuple[int, ...]) -> None:
    keys = "abcdefgh"
    job = keyed_job(world, scales[0])
    job.feed(0, *((key, 10 * n, 0) for n, key in enumerate(keys, start=1)))
    rules: dict[str, int] = {}
    for number, scale in enumerate(scales[1:]):
        job.tell(1, ("limit", number), (f"rule {number}", number))
        rules |= {"limit": number, f"rule {number}": number}
        job = job.restored(scale)
        for subtask in job.subtasks:
            assert dict(subtask.backend.broadcast_state(RULES).items()) == rules
            shapes = dict(subtask.backend.broadcast_state(SHAPES).items())
            assert shapes == {name: str(value) for name, value in rules.items()}
    job.tell(1, ("last", 9))
    rules["last"] = 9
    assert sorted(job.watermark(40), key=repr) == due(keys[:4], rules)
    assert sorted(job.watermark(MAX_WATERMARK_MS), key=repr) == due(keys[4:], rules, first=5)


def due(keys: str, rules: dict[str, int], first: int = 1) -> list[tuple[object, int]]:
    """What the timers of these keys tell, by key."""
    return [((key, [10 * n], rules), 10 * n) for n, key in enumerate(keys, start=first)]


def test_a_broadcast_record_sets_no_timer_for_the_key_before_it(world: World) -> None:
    job = keyed_job(world, 1)
    job.feed(0, ("a", 10, 0))
    with pytest.raises(UserError, match="without a current key") as caught:
        job.tell(1, ("timer", 5))
    assert "for a broadcast record" in caught.value.where


def test_timers_fire_for_their_keys_after_a_broadcast_record(world: World) -> None:
    job = keyed_job(world, 1)
    job.feed(0, ("a", 10, 0), ("b", 20, 0))
    job.tell(1, ("limit", 1))
    assert job.watermark(15) == [(("a", [10], {"limit": 1}), 10)]
    job.tell(1, ("limit", 2))
    assert job.watermark(25) == [(("b", [20], {"limit": 2}), 20)]


class Stamped(BroadcastProcessFunction[int, str, tuple[Any, ...]]):
    def process_element(
        self, value: int, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Iterator[tuple[Any, ...]]:
        yield value, ctx.timestamp(), ctx.current_watermark()

    def process_broadcast_element(
        self, value: str, ctx: BroadcastProcessFunction.Context
    ) -> Iterator[tuple[Any, ...]]:
        yield value, ctx.timestamp(), ctx.current_watermark()


def test_results_of_both_sides_keep_their_records_time(world: World) -> None:
    job = BackedJob(world, lambda: BroadcastOperator(Stamped(), BOTH))
    job.watermark(7)
    assert job.feed(0, ("a", 1, 11)) == [((1, 11, 7), 11)]
    assert job.tell(1, "rule") == [(("rule", 0, 7), 0)]
