"""State with a time to live: every kind, on a clock that a test moves."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.state.aggregates import Mean, Sum
from tests.state.disk_world import Disk
from tests.state.on_disk import taken
from tests.state.world import Subtask, merged, restored, snapshot, stored
from tidegate import (
    AggregatingStateDescriptor,
    ConfigError,
    Duration,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    Time,
    TypeInformation,
    Types,
    ValueStateDescriptor,
)
from tidegate.errors import SerializerIncompatible
from tidegate.model.ids import CheckpointId

if TYPE_CHECKING:
    from collections.abc import Callable

TTL = 100
Update = StateTtlConfig.UpdateType
Visibility = StateTtlConfig.StateVisibility


def lives(
    update: Update = Update.OnCreateAndWrite,
    visibility: Visibility = Visibility.NeverReturnExpired,
) -> Any:
    """A builder for a time to live of 100 ms, without clean-up beside reads."""
    builder = StateTtlConfig.new_builder(Time.milliseconds(TTL)).disable_cleanup_in_background()
    return builder.set_update_type(update).set_state_visibility(visibility)


@dataclass(frozen=True)
class Kind:
    """How a test uses one kind of state. twice: what stands there after a second write."""

    make: Callable[[TypeInformation | None], StateDescriptor]
    type_info: TypeInformation
    write: Callable[[Any], None]
    read: Callable[[Any], object]
    once: object
    twice: object
    nothing: object = None


KINDS = {
    "value": Kind(
        lambda of: ValueStateDescriptor("s", of),
        Types.LONG(),
        lambda state: state.update(1),
        lambda state: state.value(),
        1,
        1,
    ),
    "list": Kind(
        lambda of: ListStateDescriptor("s", of),
        Types.LONG(),
        lambda state: state.update([1]),
        lambda state: state.get(),
        [1],
        [1],
        [],
    ),
    "map": Kind(
        lambda of: MapStateDescriptor("s", of, of),
        Types.LONG(),
        lambda state: state.put(7, 1),
        lambda state: state.get(7),
        1,
        1,
    ),
    "items": Kind(
        lambda of: MapStateDescriptor("s", of, of),
        Types.LONG(),
        lambda state: state.put_all({7: 1}),
        lambda state: dict(state.items()),
        {7: 1},
        {7: 1},
        {},
    ),
    "reducing": Kind(
        lambda of: ReducingStateDescriptor("s", Sum(), of),
        Types.LONG(),
        lambda state: state.add(1),
        lambda state: state.get(),
        1,
        2,
    ),
    "aggregating": Kind(
        lambda of: AggregatingStateDescriptor("s", Mean(), of),
        Types.LIST(Types.LONG()),
        lambda state: state.add(1),
        lambda state: state.get(),
        1.0,
        1.0,
    ),
}
EACH_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
EACH_UPDATE = pytest.mark.parametrize("update", [Update.OnCreateAndWrite, Update.OnReadAndWrite])


def opened(kind: Kind, config: StateTtlConfig) -> tuple[Subtask, Any]:
    subtask = Subtask().on("a").at(0)
    return subtask, subtask.backend.keyed_state(described(kind, config))


def described(kind: Kind, config: StateTtlConfig | None, *, typed: bool = True) -> StateDescriptor:
    descriptor = kind.make(kind.type_info if typed else None)
    if config is not None:
        descriptor.enable_time_to_live(config)
    return descriptor


@EACH_KIND
@EACH_UPDATE
def test_a_value_is_there_until_its_time_has_come(kind: Kind, update: Update) -> None:
    subtask, state = opened(kind, lives(update).build())
    assert kind.read(state) == kind.nothing
    kind.write(state)
    subtask.at(TTL - 1)
    assert kind.read(state) == kind.once
    subtask.at(TTL)
    still = kind.once if update is Update.OnReadAndWrite else kind.nothing
    assert kind.read(state) == still


@EACH_KIND
@EACH_UPDATE
def test_a_value_that_nobody_reads_is_gone_at_its_time(kind: Kind, update: Update) -> None:
    subtask, state = opened(kind, lives(update).build())
    kind.write(state)
    subtask.at(TTL)
    assert kind.read(state) == kind.nothing
    assert subtask.dump("s") == {}
    kind.write(state)
    assert kind.read(state) == kind.once


@EACH_KIND
@EACH_UPDATE
def test_a_write_makes_a_value_young_again(kind: Kind, update: Update) -> None:
    subtask, state = opened(kind, lives(update).build())
    kind.write(state)
    subtask.at(60)
    kind.write(state)
    subtask.at(60 + TTL - 1)
    assert kind.read(state) == kind.twice


@EACH_KIND
@EACH_UPDATE
def test_what_is_expired_may_be_shown_once(kind: Kind, update: Update) -> None:
    config = lives(update, Visibility.ReturnExpiredIfNotCleanedUp).build()
    subtask, state = opened(kind, config)
    kind.write(state)
    subtask.at(5 * TTL)
    assert kind.read(state) == kind.once
    assert kind.read(state) == kind.nothing
    assert subtask.dump("s") == {}


@EACH_KIND
def test_disabled_is_for_ever_and_stores_no_times(kind: Kind) -> None:
    subtask, state = opened(kind, lives(Update.Disabled).build())
    kind.write(state)
    subtask.at(100 * TTL)
    assert kind.read(state) == kind.once
    [plain] = restored([snapshot(subtask)])
    plain.backend.keyed_state(described(kind, None))
    assert plain.dump("s") == subtask.dump("s") != {}


@EACH_KIND
def test_a_cleared_value_is_gone(kind: Kind) -> None:
    subtask, state = opened(kind, lives().build())
    kind.write(state)
    state.clear()
    assert kind.read(state) == kind.nothing and subtask.dump("s") == {}


@EACH_KIND
def test_a_clock_that_goes_back_makes_nothing_expire(kind: Kind) -> None:
    subtask, state = opened(kind, lives().build())
    subtask.at(1_000)
    kind.write(state)
    subtask.at(0)
    assert kind.read(state) == kind.once
    subtask.at(1_000 + TTL - 1)
    assert kind.read(state) == kind.once
    subtask.at(1_000 + TTL)
    assert kind.read(state) == kind.nothing


def test_a_value_set_to_none_is_gone() -> None:
    subtask, state = opened(KINDS["value"], lives().build())
    state.update(1)
    state.update(None)
    assert state.value() is None and subtask.dump("s") == {}


def test_elements_of_a_list_expire_one_by_one() -> None:
    subtask, state = opened(KINDS["list"], lives().build())
    state.add(1)
    subtask.at(50)
    state.add_all([2, 3])
    subtask.at(TTL)
    assert state.get() == list(state) == [2, 3]
    assert subtask.dump("s") == {"a": [(50, 2), (50, 3)]}
    state.add(4)
    subtask.at(50 + TTL)
    assert state.get() == [4]
    state.update([])
    state.add_all([])
    assert subtask.dump("s") == {}


def test_expired_elements_that_may_be_shown_stand_in_their_places() -> None:
    config = lives(visibility=Visibility.ReturnExpiredIfNotCleanedUp).build()
    subtask, state = opened(KINDS["list"], config)
    state.add(1)
    subtask.at(50)
    state.add(2)
    subtask.at(TTL)
    assert state.get() == [1, 2]
    assert state.get() == [2]


def test_entries_of_a_map_expire_one_by_one() -> None:
    subtask, state = opened(KINDS["map"], lives().build())
    state.put(1, 10)
    subtask.at(50)
    state[2] = 20
    state.put_all([(3, 30)])
    subtask.at(TTL)
    assert dict(state.items()) == {2: 20, 3: 30}
    assert list(state) == list(state.keys()) == [2, 3] and list(state.values()) == [20, 30]
    assert 1 not in state and not state.contains(1) and state[1] is None
    assert 2 in state and state[2] == 20 and not state.is_empty()
    assert subtask.dump("s") == {"a": {2: (50, 20), 3: (50, 30)}}
    del state[2]
    state.remove(9)
    subtask.at(50 + TTL)
    assert state.is_empty() and list(state) == [] and 3 not in state
    assert state.get(3) is None
    assert subtask.dump("s") == {}


def test_what_gives_no_value_away_removes_none_that_may_be_shown() -> None:
    config = lives(visibility=Visibility.ReturnExpiredIfNotCleanedUp).build()
    subtask, state = opened(KINDS["map"], config)
    state.put(1, 10)
    subtask.at(TTL)
    assert 1 in state and list(state.keys()) == [1] and not state.is_empty()
    assert state.get(1) == 10
    assert 1 not in state and state.is_empty()


@pytest.mark.parametrize(
    "look",
    [
        lambda state: state.contains(1),
        lambda state: list(state.keys()),
        lambda state: list(state.values()),
        lambda state: state.is_empty(),
    ],
)
def test_each_look_at_a_map_is_a_read(look: Callable[[Any], object]) -> None:
    subtask, state = opened(KINDS["map"], lives(Update.OnReadAndWrite).build())
    state.put(1, 10)
    subtask.at(60)
    look(state)
    subtask.at(60 + TTL - 1)
    assert state.get(1) == 10


@EACH_UPDATE
def test_a_read_of_one_map_entry_leaves_the_others_their_age(update: Update) -> None:
    subtask, state = opened(KINDS["map"], lives(update).build())
    state.put_all({1: 10, 2: 20})
    subtask.at(60)
    state.get(1)
    subtask.at(TTL)
    assert dict(state.items()) == ({1: 10} if update is Update.OnReadAndWrite else {})


def test_reducing_begins_anew_after_what_is_expired() -> None:
    for visibility, then in (
        (Visibility.NeverReturnExpired, 1),
        (Visibility.ReturnExpiredIfNotCleanedUp, 2),
    ):
        subtask, state = opened(KINDS["reducing"], lives(visibility=visibility).build())
        state.add(1)
        subtask.at(TTL)
        state.add(1)
        assert state.get() == then


@pytest.mark.parametrize("kind", ["reducing", "aggregating"])
def test_a_batch_is_added_with_one_time(kind: str) -> None:
    subtask, state = opened(KINDS[kind], lives().build())
    keys = ["a", "b", "a"]
    groups = [subtask.on(key).cell.group for key in keys]
    emitted: list[object] = []
    emit = (emitted.append,) if kind == "reducing" else ()
    for at in (0, 50, 50 + TTL):
        subtask.at(at)
        state.add_rows(keys, groups, [1, 5, 3], *emit)
    assert emitted in ([1, 5, 4, 5, 10, 8, 1, 5, 4], [])
    assert {stamped[0] for stamped in subtask.dump("s").values()} == {50 + TTL}
    subtask.on("a")
    assert state.get() == (4 if kind == "reducing" else 2.0)


def test_a_reduction_to_none_is_an_error() -> None:
    descriptor = ReducingStateDescriptor("s", lambda old, new: None, ttl=lives().build())
    subtask = Subtask().on("a")
    state = subtask.backend.keyed_state(descriptor)
    emitted: list[object] = []
    with pytest.raises(TypeError, match="the reduce function has returned None"):
        state.add_rows(["a", "a"], [subtask.cell.group] * 2, [1, 2], emitted.append)
    assert emitted == [1]


@pytest.mark.feature("F258")
@EACH_KIND
@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_age_survives_restore_and_rescale(kind: Kind, typed: bool, parallelism: int) -> None:
    descriptor = described(kind, lives().build(), typed=typed)
    subtask = Subtask()
    state: Any = subtask.backend.keyed_state(descriptor)
    for key in range(20):
        subtask.on(key).at(key)
        kind.write(state)
    for again in restored([snapshot(subtask)], parallelism, at_ms=TTL + 9):
        state = again.backend.keyed_state(descriptor)
        for key in filter(again.owns, range(20)):
            again.on(key)
            assert kind.read(state) == (kind.once if key > 9 else kind.nothing)


@pytest.mark.feature("F258")
@EACH_KIND
@pytest.mark.parametrize("typed", [True, False])
def test_state_without_times_gets_that_of_the_restore(kind: Kind, typed: bool) -> None:
    subtask = Subtask().on("a")
    kind.write(subtask.backend.keyed_state(described(kind, None, typed=typed)))
    [again] = restored([snapshot(subtask)], at_ms=1_000)
    state = again.on("a").backend.keyed_state(described(kind, lives().build(), typed=typed))
    again.at(1_000 + TTL - 1)
    assert kind.read(state) == kind.once
    again.at(1_000 + TTL)
    assert kind.read(state) == kind.nothing


@EACH_KIND
@pytest.mark.parametrize("parallelism", [1, 2])
def test_state_on_disk_without_times_gets_that_of_the_first_restore(
    kind: Kind, parallelism: int
) -> None:
    with closing(Disk()) as disk:
        [subtask] = disk.begun(1)
        kind.write(subtask.on("a").backend.keyed_state(described(kind, None)))
        states, living = [taken(disk, subtask)], described(kind, lives().build())
        subtasks = disk.gone_on(states, parallelism, at_ms=1_000)
        for each in subtasks:
            each.backend.keyed_state(living)
        states = [taken(disk, each, 2) for each in subtasks]
        [again] = disk.gone_on(states, 1, at_ms=1_000 + TTL - 1)
        state = again.on("a").backend.keyed_state(living)
        assert kind.read(state) == kind.once
        [again] = disk.gone_on([taken(disk, again, 3)], 1, at_ms=1_000 + TTL)
        state = again.on("a").backend.keyed_state(living)
        assert kind.read(state) == kind.nothing


@EACH_KIND
@pytest.mark.parametrize("typed", [True, False])
def test_state_loses_its_times_where_it_does_not_expire_any_more(kind: Kind, typed: bool) -> None:
    subtask = Subtask().on("a")
    kind.write(subtask.backend.keyed_state(described(kind, lives().build(), typed=typed)))
    [again] = restored([snapshot(subtask)], at_ms=10 * TTL)
    plain = described(kind, None, typed=typed)
    assert kind.read(again.on("a").backend.keyed_state(plain)) == kind.once
    [last] = restored([snapshot(again)])
    assert kind.read(last.on("a").backend.keyed_state(plain)) == kind.once


def test_state_that_nobody_asks_for_keeps_its_times() -> None:
    kind = KINDS["list"]
    descriptor = described(kind, lives().build())
    subtask = Subtask().on("a").at(30)
    kind.write(subtask.backend.keyed_state(descriptor))
    [between] = restored([snapshot(subtask)])
    [again] = restored([snapshot(between, 2)])
    assert merged([again], descriptor) == {"a": [(30, 1)]}


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("after", [True, False])
def test_another_type_is_refused_by_operator_and_state(before: bool, after: bool) -> None:
    config = lives().build()
    subtask = Subtask().on("a")
    old = ValueStateDescriptor("v", Types.TUPLE([Types.LONG(), Types.LONG()]))
    old.ttl = config if before else None
    subtask.backend.keyed_state(old).update((1, 2))
    [again] = restored([snapshot(subtask)])
    with pytest.raises(SerializerIncompatible) as raised:
        new = ValueStateDescriptor("v", Types.LONG(), ttl=config if after else None)
        again.backend.keyed_state(new)
    assert raised.value.where == "operator 'counts', state 'v'"


def test_a_refusal_names_the_types_as_the_program_knows_them() -> None:
    config = lives().build()
    subtask = Subtask().on("a")
    subtask.backend.keyed_state(ListStateDescriptor("v", Types.LONG(), ttl=config)).add(1)
    [again] = restored([snapshot(subtask)])
    for ttl in (config, None):
        with pytest.raises(SerializerIncompatible) as raised:
            again.backend.keyed_state(ListStateDescriptor("v", Types.STRING(), ttl=ttl))
        assert raised.value.what.startswith(
            "The state was ListTypeInfo<Long> and is now ListTypeInfo<String>: "
        )


def test_a_wider_number_migrates_below_its_time() -> None:
    config = lives().build()
    subtask = Subtask().on("a").at(5)
    subtask.backend.keyed_state(ListStateDescriptor("v", Types.INT(), ttl=config)).add(1)
    [again] = restored([snapshot(subtask)])
    state = again.on("a").backend.keyed_state(ListStateDescriptor("v", Types.LONG(), ttl=config))
    assert state.get() == [1]


@EACH_KIND
@EACH_UPDATE
def test_a_snapshot_holds_what_was_there_at_the_barrier(kind: Kind, update: Update) -> None:
    descriptor = described(kind, lives(update).build(), typed=False)
    subtask = Subtask()
    state = subtask.backend.keyed_state(descriptor)
    for key in range(9):
        subtask.on(key)
        kind.write(state)
    before = subtask.dump("s")
    pending = subtask.backend.snapshot(CheckpointId(1))
    for key in range(12):
        subtask.on(key).at(20 if key % 2 else TTL)
        (kind.write if key % 3 else kind.read)(state)
    assert subtask.dump("s") != before
    assert merged(restored([stored(pending)]), descriptor) == before


def test_values_changed_in_place_after_the_barrier_are_saved_as_they_were() -> None:
    config = lives(Update.OnReadAndWrite).build()
    subtask = Subtask().on("a")
    values = subtask.backend.keyed_state(ValueStateDescriptor("v", ttl=config))
    lists = subtask.backend.keyed_state(ListStateDescriptor("l", ttl=config))
    maps = subtask.backend.keyed_state(MapStateDescriptor("m", ttl=config))
    means = subtask.backend.keyed_state(AggregatingStateDescriptor("g", Mean(), ttl=config))
    values.update([1])
    lists.add([1])
    maps.put("k", [1])
    means.add(4)
    pending = subtask.backend.snapshot(CheckpointId(1))
    for held in (values.value(), *lists.get(), maps.get("k"), *maps.values()):
        held.append(2)
    means.add_rows(["a"], [subtask.cell.group], [6])
    [again] = restored([stored(pending)])
    again.on("a")
    assert again.backend.keyed_state(ValueStateDescriptor("v", ttl=config)).value() == [1]
    assert again.backend.keyed_state(ListStateDescriptor("l", ttl=config)).get() == [[1]]
    assert again.backend.keyed_state(MapStateDescriptor("m", ttl=config)).get("k") == [1]
    means = again.backend.keyed_state(AggregatingStateDescriptor("g", Mean(), ttl=config))
    assert means.get() == 4


@EACH_KIND
def test_a_full_snapshot_leaves_out_what_is_expired(kind: Kind) -> None:
    """Also where a value that was expired at the barrier was written anew behind it."""
    for config, left in ((lives().cleanup_full_snapshot(), {5}), (lives(), set(range(6)))):
        descriptor = described(kind, config.build())
        subtask = Subtask()
        state = subtask.backend.keyed_state(descriptor)
        for key in range(6):
            subtask.on(key).at(TTL if key == 5 else 0)
            kind.write(state)
        subtask.at(TTL)
        pending = subtask.backend.snapshot(CheckpointId(1))
        kind.write(state)
        subtask.on(0)
        kind.write(state)
        found = merged(restored([stored(pending)]), descriptor)
        assert found.keys() == left
        assert subtask.dump("s").keys() == set(range(6))


def test_a_full_snapshot_leaves_out_expired_parts() -> None:
    config = lives().cleanup_full_snapshot().build()
    lists = ListStateDescriptor("l", Types.LONG(), ttl=config)
    maps = MapStateDescriptor("m", Types.LONG(), Types.LONG(), ttl=config)
    subtask = Subtask().on("a")
    for at in (0, 50):
        subtask.at(at)
        subtask.backend.keyed_state(lists).add(at)
        subtask.backend.keyed_state(maps).put(at, at)
    taken = snapshot(subtask.at(TTL))
    assert merged(restored([taken]), lists) == {"a": [(50, 50)]}
    assert merged(restored([taken]), maps) == {"a": {50: (50, 50)}}


@EACH_KIND
def test_clean_up_looks_at_a_few_entries_on_each_access(kind: Kind) -> None:
    config = StateTtlConfig.new_builder(Time.milliseconds(TTL)).cleanup_incrementally(3, True)
    descriptor = described(kind, config.build())
    subtask = Subtask()
    state = subtask.backend.keyed_state(descriptor)
    for key in range(200):
        subtask.on(key)
        kind.write(state)
    subtask.on(1_000).at(TTL)
    left = len(subtask.dump("s"))
    accesses = 0
    while left:
        kind.read(state)
        accesses += 1
        assert left - len(subtask.dump("s")) <= 3
        left = len(subtask.dump("s"))
    assert 200 // 3 <= accesses <= 200


def test_clean_up_in_the_background_is_there_unless_it_is_turned_off() -> None:
    default = StateTtlConfig.new_builder(Duration.of_millis(TTL))
    for config, emptied in ((lives(), False), (default, True)):
        subtask, state = opened(KINDS["value"], config.build())
        state.update(1)
        subtask.on("b").at(TTL)
        for _ in range(20):
            state.value()
        assert (subtask.dump("s") == {}) is emptied


def test_clean_up_takes_expired_parts_and_nothing_from_a_snapshot() -> None:
    config = StateTtlConfig.new_builder(Time.milliseconds(TTL)).cleanup_incrementally(50).build()
    lists = ListStateDescriptor("l", Types.LONG(), ttl=config)
    maps = MapStateDescriptor("m", Types.LONG(), Types.LONG(), ttl=config)
    subtask = Subtask().on("a")
    for at in (0, 50):
        subtask.at(at)
        subtask.backend.keyed_state(lists).add(at)
        subtask.backend.keyed_state(maps).put(at, at)
    before = subtask.dump("l"), subtask.dump("m")
    pending = subtask.backend.snapshot(CheckpointId(1))
    subtask.on("b").at(TTL)
    subtask.backend.keyed_state(lists).get()
    subtask.backend.keyed_state(maps).is_empty()
    assert subtask.dump("l") == {"a": [(50, 50)]}
    assert subtask.dump("m") == {"a": {50: (50, 50)}}
    again = restored([stored(pending)])
    assert (merged(again, lists), merged(again, maps)) == before


def test_clean_up_leaves_the_check_of_the_first_key_in_place() -> None:
    config = StateTtlConfig.new_builder(Time.milliseconds(TTL)).cleanup_incrementally(50).build()
    descriptor = ValueStateDescriptor("v", Types.LONG(), ttl=config)
    subtask = Subtask().on("a")
    subtask.backend.keyed_state(descriptor).update(1)
    [again] = restored([snapshot(subtask)], at_ms=TTL)
    state = again.on(7).backend.keyed_state(descriptor)
    assert state.value() is None and again.dump("v") == {}
    with pytest.raises(SerializerIncompatible, match="keys of the state"):
        state.update(1)


def test_state_with_a_namespace_expires_too() -> None:
    subtask = Subtask()
    descriptor = described(KINDS["value"], lives().build())
    state: Any = subtask.backend.keyed_state(descriptor, Types.LONG())
    subtask.backend.pair_cell.group = subtask.on("a").cell.group
    for window in (1, 2):
        subtask.at(50 * window).backend.pair_cell.key = "a", window
        state.update(window)
    [again] = restored([snapshot(subtask)], at_ms=50 + TTL)
    state = again.backend.keyed_state(descriptor, Types.LONG())
    again.backend.pair_cell.group = again.on("a").cell.group
    found: list[object] = []
    for window in (1, 2):
        again.backend.pair_cell.key = "a", window
        found.append(state.value())
    assert found == [None, 2]


def test_one_name_means_one_time_to_live() -> None:
    backend = Subtask().backend
    backend.keyed_state(ValueStateDescriptor("v", ttl=lives().build()))
    assert backend.keyed_state(ValueStateDescriptor("v", ttl=lives().build())) is not None
    for other in (None, lives(Update.OnReadAndWrite).build()):
        with pytest.raises(ConfigError, match="state 'v' is asked for as") as raised:
            backend.keyed_state(ValueStateDescriptor("v", ttl=other))
        assert raised.value.where == "operator 'counts'"
