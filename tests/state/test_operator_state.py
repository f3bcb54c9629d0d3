"""Operator state: lists that are split or shown to all, maps that all have."""

import threading
from itertools import chain

import pytest

from flinkformat.handles import ByteStreamStateHandle, OperatorStreamStateHandle, StateDistribution
from tests.state.world import READER, Subtask, restored, snapshot, stored
from tests.worlds.storage import MEMORY
from tidegate.api.state import MapStateDescriptor, OperatorStateDescriptor, RedistributionMode
from tidegate.api.state.descriptors import StateTtlConfig
from tidegate.errors import (
    ConfigError,
    FormatError,
    RestoreRefused,
    SerializerIncompatible,
    UserError,
)
from tidegate.model.duration import Time
from tidegate.model.ids import CheckpointId
from tidegate.model.restore import RestoredOperatorState
from tidegate.typeinfo.types import Types

SPLITS = OperatorStateDescriptor("splits", Types.LONG())
ALL = OperatorStateDescriptor("all", Types.LONG(), RedistributionMode.UNION)
RULES = MapStateDescriptor("rules", Types.STRING(), value_type_info=Types.LONG())


def test_a_list_is_appended_to_replaced_and_cleared() -> None:
    state = Subtask().backend.operator_state(SPLITS)
    state.add(1)
    assert state.get() == [1]
    state.update(iter([2, 3]))
    state.get().append(4)
    assert state.get() == [2, 3]
    state.clear()
    assert state.get() == []


def test_a_broadcast_map_is_written_and_read() -> None:
    state = Subtask().backend.broadcast_state(RULES)
    assert state.get("a") is None and not state.contains("a")
    state.put("a", 1)
    state.put("b", 2)
    assert state.get("a") == 1 and state.contains("b") and "b" in state
    state.remove("a")
    state.remove("a")
    assert dict(state.items()) == {"b": 2}
    state.clear()
    assert dict(state.items()) == {}


def test_a_broadcast_map_reads_like_a_dict() -> None:
    state = Subtask().backend.broadcast_state(RULES)
    assert state.is_empty() and state["a"] is None
    state["a"] = 1
    state.put_all({"b": 2})
    state.put_all([("c", 3)])
    del state["c"]
    del state["c"]
    assert list(state) == list(state.keys()) == ["a", "b"] and list(state.values()) == [1, 2]
    assert state["b"] == 2 and not state.is_empty()
    for key in state:
        state.remove(key)
    assert state.is_empty()


def test_who_may_only_read_a_broadcast_map_sees_it_and_cannot_change_it() -> None:
    state = Subtask().backend.broadcast_state(RULES)
    view = state.read_only()
    assert view.is_empty()
    state.put("a", 1)
    assert view.get("a") == view["a"] == 1 and view["b"] is None
    assert view.contains("a") and "a" in view and "b" not in view and not view.is_empty()
    assert list(view) == list(view.keys()) == ["a"]
    assert list(view.values()) == [1] and dict(view.items()) == {"a": 1}
    for write in (
        lambda: view.put("a", 2),
        lambda: view.put_all({"a": 2}),
        lambda: view.remove("a"),
        lambda: view.clear(),
        lambda: view.__setitem__("a", 2),
        lambda: view.__delitem__("a"),
    ):
        with pytest.raises(UserError, match="it is read-only"):
            write()
    assert dict(state.items()) == {"a": 1}


def test_broadcast_state_has_no_time_to_live() -> None:
    ttl = StateTtlConfig.new_builder(Time.seconds(1)).build()
    with pytest.raises(ConfigError, match="'rules' asks for a time to live") as raised:
        Subtask().backend.broadcast_state(MapStateDescriptor("rules", ttl=ttl))
    assert raised.value.where == "operator 'counts'"


def test_each_kind_of_operator_state_comes_back_as_at_the_barrier() -> None:
    subtask = Subtask()
    splits = subtask.backend.operator_state(SPLITS)
    everything = subtask.backend.operator_state(ALL)
    rules = subtask.backend.broadcast_state(RULES)
    splits.update([1, 2])
    everything.update([3])
    rules.put("a", 4)
    pending = subtask.backend.snapshot(CheckpointId(1))
    splits.add(9)
    everything.clear()
    rules.put("b", 9)
    [again] = restored([stored(pending)])
    assert again.backend.operator_state(SPLITS).get() == [1, 2]
    assert again.backend.operator_state(ALL).get() == [3]
    assert dict(again.backend.broadcast_state(RULES).items()) == {"a": 4}


@pytest.mark.feature("F105")
def test_an_element_that_is_changed_right_after_the_barrier_is_saved_as_it_was() -> None:
    subtask = Subtask()
    lists = subtask.backend.operator_state(OperatorStateDescriptor("lists"))
    rules = subtask.backend.broadcast_state(MapStateDescriptor("rules"))
    element, rule = [1], {"nested": [1]}
    lists.add(element)
    rules.put("r", rule)
    pending = subtask.backend.snapshot(CheckpointId(1))
    element.append(2)
    rule["nested"].append(2)
    [again] = restored([stored(pending)])
    assert again.backend.operator_state(OperatorStateDescriptor("lists")).get() == [[1]]
    assert again.backend.broadcast_state(MapStateDescriptor("rules")).get("r") == {"nested": [1]}


def test_a_handle_names_each_state_its_mode_and_each_element() -> None:
    subtask = Subtask()
    subtask.backend.operator_state(SPLITS).update([1, 2, 3])
    subtask.backend.operator_state(ALL)
    subtask.backend.broadcast_state(RULES)
    handle = snapshot(subtask).managed_operator
    assert isinstance(handle, OperatorStreamStateHandle)
    found = {name: (meta.mode, len(meta.offsets)) for name, meta in handle.states.items()}
    assert found == {
        "splits": (StateDistribution.SPLIT_DISTRIBUTE, 3),
        "all": (StateDistribution.UNION, 0),
        "rules": (StateDistribution.BROADCAST, 1),
    }


def test_on_rescale_split_lists_are_dealt_out_and_the_others_are_whole() -> None:
    subtasks = [Subtask(index, 2) for index in range(2)]
    for index, subtask in enumerate(subtasks):
        subtask.backend.operator_state(SPLITS).update([10 * index + i for i in range(3)])
        subtask.backend.operator_state(ALL).add(index)
        subtask.backend.broadcast_state(RULES).put("r", 7)
    three = restored([snapshot(subtask) for subtask in subtasks], 3)
    parts = [subtask.backend.operator_state(SPLITS).get() for subtask in three]
    assert sorted(chain(*parts)) == [0, 1, 2, 10, 11, 12]
    assert [len(part) for part in parts] == [2, 2, 2]
    for subtask in three:
        assert sorted(subtask.backend.operator_state(ALL).get()) == [0, 1]
        assert dict(subtask.backend.broadcast_state(RULES).items()) == {"r": 7}


def test_what_nobody_asks_for_goes_on_and_does_not_multiply() -> None:
    subtasks = [Subtask(index, 2) for index in range(2)]
    for index, subtask in enumerate(subtasks):
        subtask.backend.operator_state(SPLITS).add(index)
        subtask.backend.operator_state(ALL).add(index)
    for checkpoint in (2, 3):
        subtasks = restored([snapshot(subtask, checkpoint) for subtask in subtasks], 2)
    assert [subtask.backend.operator_state(SPLITS).get() for subtask in subtasks] == [[0], [1]]
    assert [sorted(subtask.backend.operator_state(ALL).get()) for subtask in subtasks] == [
        [0, 1],
        [0, 1],
    ]


def test_another_mode_is_refused() -> None:
    subtask = Subtask()
    subtask.backend.operator_state(SPLITS).add(1)
    [again] = restored([snapshot(subtask)])
    union = OperatorStateDescriptor("splits", Types.LONG(), RedistributionMode.UNION)
    with pytest.raises(
        RestoreRefused, match=r"Was \[SPLIT_DISTRIBUTE\], registered with \[UNION\]"
    ):
        again.backend.operator_state(union)


def test_another_type_is_refused_by_operator_and_state() -> None:
    subtask = Subtask()
    subtask.backend.operator_state(SPLITS).add(1)
    [again] = restored([snapshot(subtask)])
    with pytest.raises(SerializerIncompatible) as raised:
        again.backend.operator_state(OperatorStateDescriptor("splits", Types.STRING()))
    assert raised.value.where == "operator 'counts', operator state 'splits'"


def test_one_name_means_one_descriptor() -> None:
    backend = Subtask().backend
    backend.operator_state(SPLITS)
    backend.broadcast_state(RULES)
    for again in (
        lambda: backend.operator_state(OperatorStateDescriptor("splits", Types.STRING())),
        lambda: backend.broadcast_state(MapStateDescriptor("splits")),
        lambda: backend.operator_state(OperatorStateDescriptor("rules")),
    ):
        with pytest.raises(ConfigError, match="asked for as"):
            again()
    assert backend.operator_state(SPLITS) is backend.operator_state(SPLITS)


def test_an_element_that_cannot_be_pickled_fails_the_snapshot_and_names_the_state() -> None:
    subtask = Subtask()
    subtask.backend.broadcast_state(MapStateDescriptor("rules")).put("r", 1)
    state = subtask.backend.operator_state(OperatorStateDescriptor("any"))
    state.add(Unpicklable())
    pending = subtask.backend.snapshot(CheckpointId(1))
    with pytest.raises(UserError) as raised:
        pending.encode(1.0)
    assert raised.value.where == "operator 'counts', operator state 'any'"


class Unpicklable:
    def __deepcopy__(self, memo: object) -> "Unpicklable":
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return (threading.Lock, (threading.Lock(),))


def test_a_stream_that_ends_too_early_is_told_with_its_offset() -> None:
    subtask = Subtask()
    subtask.backend.operator_state(SPLITS).update([1, 2, 3])
    pending = subtask.backend.snapshot(CheckpointId(1))
    handle = stored(pending).managed_operator
    assert isinstance(handle, OperatorStreamStateHandle)
    whole = READER.read(handle.delegate)
    for cut in (2, 10, 40, len(whole) - 1):
        delegate = ByteStreamStateHandle("cut", whole[:cut])
        torn = OperatorStreamStateHandle(handle.states, delegate)
        with pytest.raises(FormatError) as raised:
            Subtask().backend.restore(RestoredOperatorState(managed_operator=(torn,)), READER)
        assert raised.value.where == "cut" and raised.value.offset >= 0


def test_an_empty_stream_holds_nothing() -> None:
    empty = OperatorStreamStateHandle({}, ByteStreamStateHandle("empty", b""))
    subtask = Subtask()
    subtask.backend.restore(RestoredOperatorState(managed_operator=(empty,)), READER)
    pending = subtask.backend.snapshot(CheckpointId(1))
    assert pending.encode(1.0) and pending.upload(MEMORY).is_empty
