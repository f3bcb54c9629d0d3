"""Each kind of keyed state, as a user function sees it."""

import pytest

from tests.state.aggregates import Mean, Sum
from tests.state.world import Subtask, merged, restored, stored
from tidegate.api.functions import AggregatingStateDescriptor, ReducingStateDescriptor
from tidegate.api.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from tidegate.errors import ConfigError, UserError
from tidegate.model.ids import CheckpointId
from tidegate.typeinfo.types import Types


def test_a_value_belongs_to_its_key() -> None:
    subtask = Subtask()
    state = subtask.backend.keyed_state(ValueStateDescriptor("v", Types.LONG()))
    subtask.on("a")
    state.update(1)
    assert state.value() == 1
    subtask.on("b")
    assert state.value() is None
    subtask.on("a")
    assert state.value() == 1


def test_a_value_is_gone_when_it_is_cleared_or_set_to_none() -> None:
    subtask = Subtask().on("a")
    state = subtask.backend.keyed_state(ValueStateDescriptor("v"))
    for forget in (state.clear, lambda: state.update(None)):
        state.update(0)
        assert state.value() == 0
        forget()
        assert state.value() is None
        assert subtask.dump("v") == {}


def test_two_states_of_one_key_are_apart() -> None:
    subtask = Subtask().on("a")
    one = subtask.backend.keyed_state(ValueStateDescriptor("one"))
    other = subtask.backend.keyed_state(ValueStateDescriptor("other"))
    one.update(1)
    assert other.value() is None


def test_a_list_is_appended_to_replaced_and_cleared() -> None:
    subtask = Subtask().on("a")
    state = subtask.backend.keyed_state(ListStateDescriptor("l", Types.LONG()))
    assert list(state.get()) == []
    state.add(1)
    state.add_all([2, 3])
    assert list(state.get()) == [1, 2, 3]
    state.update([4])
    assert list(state.get()) == [4]
    state.add_all(iter([5]))
    assert list(state.get()) == [4, 5]
    state.update([])
    assert list(state.get()) == [] and subtask.dump("l") == {}
    state.add_all([])
    assert subtask.dump("l") == {}
    state.add(6)
    state.clear()
    assert list(state.get()) == []


def test_the_list_that_was_given_away_is_the_users_own() -> None:
    subtask = Subtask().on("a")
    state = subtask.backend.keyed_state(ListStateDescriptor("l"))
    given = [1]
    state.update(given)
    given.append(2)
    state.get().append(3)
    assert state.get() == [1]


def test_a_map_is_written_read_and_emptied() -> None:
    subtask = Subtask().on("a")
    state = subtask.backend.keyed_state(MapStateDescriptor("m", Types.STRING(), Types.LONG()))
    assert state.is_empty() and state.get("x") is None and not state.contains("x")
    state.put("x", 1)
    state.put_all({"y": 2})
    state.put_all(dict_value=[("z", 3)])
    assert dict(state.items()) == {"x": 1, "y": 2, "z": 3}
    assert list(state.keys()) == list(state) == ["x", "y", "z"]
    assert list(state.values()) == [1, 2, 3]
    assert state.contains("y") and "y" in state and state.get("z") == 3
    for key in ("x", "y", "nothing", "z"):
        state.remove(key)
    assert state.is_empty() and subtask.dump("m") == {}
    state.put_all({})
    assert state.is_empty()
    state.put("x", 1)
    state.clear()
    assert state.is_empty()


def test_a_map_reads_like_a_dict_that_has_none_for_what_is_absent() -> None:
    subtask = Subtask().on("a")
    state = subtask.backend.keyed_state(MapStateDescriptor("m"))
    assert state["x"] is None and "x" not in state and list(state) == []
    state["x"] = 1
    state["none"] = None
    assert state["x"] == 1 and "x" in state and "none" in state and state["none"] is None
    del state["x"]
    del state["x"]
    assert list(state) == ["none"]


def test_a_map_may_be_changed_while_its_items_are_drawn() -> None:
    subtask = Subtask().on("a")
    state = subtask.backend.keyed_state(MapStateDescriptor("m"))
    state.put_all({1: 1, 2: 2})
    for key, _ in state.items():
        state.remove(key)
    assert state.is_empty()


def test_reducing_state_reduces() -> None:
    subtask = Subtask().on("a")
    state = subtask.backend.keyed_state(ReducingStateDescriptor("r", Sum(), Types.LONG()))
    assert state.get() is None
    for value in (1, 2, 3):
        state.add(value)
    assert state.get() == 6
    state.clear()
    assert state.get() is None


def test_aggregating_state_gives_the_result_of_its_accumulator() -> None:
    subtask = Subtask().on("a")
    state = subtask.backend.keyed_state(AggregatingStateDescriptor("g", Mean()))
    assert state.get() is None
    for value in (1, 2, 6):
        state.add(value)
    assert state.get() == 3
    state.clear()
    assert state.get() is None


def test_a_plain_function_reduces_too() -> None:
    descriptor = ReducingStateDescriptor("r", max, Types.LONG())
    assert descriptor.get_reduce_function() is max and descriptor.get_name() == "r"
    state = Subtask().on("a").backend.keyed_state(descriptor)
    for value in (2, 3, 1):
        state.add(value)
    assert state.get() == 3


def test_aggregating_state_takes_a_batch_of_many_keys() -> None:
    mean = Mean()
    descriptor = AggregatingStateDescriptor("g", mean)
    assert descriptor.get_agg_function() is mean
    subtask = Subtask()
    state = subtask.backend.keyed_state(descriptor)
    keys = ["a", "b", "a", "a"]
    groups = [subtask.on(key).cell.group for key in keys]
    state.add_rows(keys, groups, [1, 7, 2, 6])
    assert subtask.dump("g") == {"a": [9, 3], "b": [7, 1]}
    pending = subtask.backend.snapshot(CheckpointId(1))
    state.add_rows(keys, groups, iter([1, 1, 1, 1]))
    assert state.get() == 2.0 and subtask.dump("g") == {"a": [12, 6], "b": [8, 2]}
    assert merged(restored([stored(pending)]), descriptor) == {"a": [9, 3], "b": [7, 1]}


def test_an_aggregate_that_comes_to_nothing_leaves_nothing() -> None:
    class Once(Mean):
        def add(self, value, accumulator):
            return None if accumulator[1] else super().add(value, accumulator)

    subtask = Subtask().on("a")
    state = subtask.backend.keyed_state(AggregatingStateDescriptor("g", Once()))
    state.add_rows(["a", "a"], [subtask.cell.group] * 2, [1, 1])
    assert state.get() is None and subtask.dump("g") == {}


def test_the_same_descriptor_gives_the_same_state() -> None:
    subtask = Subtask().on("a")
    subtask.backend.keyed_state(ValueStateDescriptor("v", Types.LONG())).update(1)
    again = subtask.backend.keyed_state(ValueStateDescriptor("v", Types.LONG()))
    assert again.value() == 1


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (ListStateDescriptor("v", Types.LONG()), "asked for as ListStateDescriptor"),
        (ValueStateDescriptor("v", Types.STRING()), "asked for as ValueStateDescriptor"),
        (StateDescriptor("x"), "stands for no keyed state"),
        (ReducingStateDescriptor("y", None), "stands for no keyed state"),
        (AggregatingStateDescriptor("z", Sum()), "stands for no keyed state"),
    ],
)
def test_a_descriptor_that_cannot_be_is_refused(second: StateDescriptor, says: str) -> None:
    subtask = Subtask()
    subtask.backend.keyed_state(ValueStateDescriptor("v", Types.LONG()))
    with pytest.raises(ConfigError, match=says) as raised:
        subtask.backend.keyed_state(second)
    assert "operator 'counts'" in raised.value.where
    assert f"'{second.name}'" in raised.value.what


def test_a_name_that_is_used_twice_is_refused_with_both_types() -> None:
    backend = Subtask().backend
    backend.keyed_state(ValueStateDescriptor("v", Types.LONG()))
    with pytest.raises(ConfigError) as raised:
        backend.keyed_state(ValueStateDescriptor("v", Types.STRING()))
    assert "Long" in raised.value.what and "String" in raised.value.what


def test_state_without_a_current_key_is_an_error_that_says_so() -> None:
    state = Subtask().backend.keyed_state(ValueStateDescriptor("v"))
    for use in (state.value, state.clear, lambda: state.update(1)):
        with pytest.raises(UserError, match="without a current key"):
            use()


def test_a_key_of_another_subtask_is_a_fault_of_ours() -> None:
    subtask = Subtask(0, 2)
    state = subtask.backend.keyed_state(ValueStateDescriptor("v"))
    foreign = next(key for key in range(100) if not subtask.owns(key))
    subtask.on(foreign)
    for use in (state.value, state.clear, lambda: state.update(1)):
        with pytest.raises(AssertionError, match="another subtask"):
            use()
