"""Random work on keyed and operator state, held against plain dictionaries."""

from __future__ import annotations

import copy
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.properties import examples
from tests.state.aggregates import Sum
from tests.state.world import InMemory, Subtask, merged
from tests.worlds.storage import MEMORY
from tidegate.api.functions import ReducingStateDescriptor
from tidegate.api.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateDescriptor,
    ValueStateDescriptor,
)
from tidegate.model.elements import CheckpointOptions, RowBatch
from tidegate.model.ids import CheckpointId
from tidegate.typeinfo.types import Types

if TYPE_CHECKING:
    from flinkformat.snapshots import SubtaskState
    from tidegate.state.pending import PendingSnapshot
    from tidegate.storage.places import Place


DESCRIPTORS = (
    ValueStateDescriptor("typed value", Types.LONG()),
    ValueStateDescriptor("any value"),
    ListStateDescriptor("typed list", Types.LONG()),
    ListStateDescriptor("any list"),
    MapStateDescriptor("typed map", Types.LONG(), value_type_info=Types.LONG()),
    MapStateDescriptor("any map"),
    ReducingStateDescriptor("sum", Sum(), Types.LONG()),
)


OPERATOR_LIST = OperatorStateDescriptor("operator list")


SMALL = st.integers(0, 5)


WRITES = (
    "update", "change_in_place", "clear", "extend_list", "change_elements_in_place", "put",
    "change_map_value_in_place", "remove", "reduce", "add_to_operator_list",
)  # fmt: skip


WRITE = st.tuples(
    st.sampled_from(WRITES), st.integers(0, 9), st.integers(0, 6), SMALL, st.booleans()
)
"""What, key, entry of a map or number of a state, value, whether the typed or the other state."""


class BackendMachine(RuleBasedStateMachine):
    """Subtasks that hold a keyed state of each kind, beside one dict a state that says the same.

    A pending snapshot carries the model as it was at its barrier.
    """

    def __init__(self) -> None:
        super().__init__()
        self.place: Any = InMemory()
        self.model: dict[str, dict[int, Any]] = {each.name: {} for each in DESCRIPTORS}
        self.operator_model: list[Any] = []
        self.pending: list[tuple[list[PendingSnapshot], dict[str, dict[int, Any]], list[Any]]] = []
        self.completed: tuple[list[SubtaskState], dict[str, dict[int, Any]], list[Any]] | None
        self.completed = None
        self.checkpoint = 0

    @initialize(parallelism=st.integers(1, 3))
    def start(self, parallelism: int) -> None:
        self.take_over(self.place.begun(parallelism))

    def forget(self, subtasks: list[Subtask]) -> None:
        for subtask in subtasks:
            subtask.backend.close()

    def take_over(self, subtasks: list[Subtask]) -> None:
        self.subtasks = subtasks
        self.states = [
            {each.name: subtask.backend.keyed_state(each) for each in DESCRIPTORS}
            for subtask in subtasks
        ]
        self.lists = [subtask.backend.operator_state(OPERATOR_LIST) for subtask in subtasks]
        for subtask in subtasks:
            subtask.clock.step_ms = 1_000  # so a slice is one piece
        self.pending = []

    def state(self, name: str, key: int) -> Any:
        for subtask, states in zip(self.subtasks, self.states, strict=True):
            if subtask.owns(key):
                subtask.on(key)
                return states[name]
        raise AssertionError("some subtask owns each key")

    @rule(writes=st.lists(WRITE, min_size=10, max_size=40))
    def rows_come(self, writes: list[tuple[str, int, int, int, bool]]) -> None:
        self.write(writes)

    def write(self, writes: list[tuple[str, int, int, int, bool]]) -> None:
        self.batch_comes([key for _, key, *_ in writes])
        for name, key, entry, value, typed in writes:
            getattr(self, name)(key, entry, value, "typed" if typed else "any")

    def batch_comes(self, keys: list[int]) -> None:
        for subtask in self.subtasks:
            prepare = subtask.backend.before_batch
            own = [key for key in keys if subtask.owns(key)]
            if prepare is not None:
                groups = [subtask.on(key).cell.group for key in own]
                prepare(RowBatch(own, None, own, groups))

    def update(self, key: int, entry: int, value: int, kind: str) -> None:
        self.state(f"{kind} value", key).update(value)
        self.model[f"{kind} value"][key] = value

    def change_in_place(self, key: int, entry: int, value: int, kind: str) -> None:
        state = self.state("any value", key)
        held = state.value()
        if not isinstance(held, list):
            held = []
        held.append([value])
        state.update(held)
        self.model["any value"][key] = copy.deepcopy(held)

    def clear(self, key: int, entry: int, value: int, kind: str) -> None:
        name = DESCRIPTORS[entry % len(DESCRIPTORS)].name
        self.state(name, key).clear()
        self.model[name].pop(key, None)

    def extend_list(self, key: int, entry: int, value: int, kind: str) -> None:
        added: list[Any] = [value, entry] if kind == "typed" else [[value], [entry]]
        state = self.state(f"{kind} list", key)
        state.add(added[0])
        state.add_all(added[1:])
        self.model[f"{kind} list"].setdefault(key, []).extend(copy.deepcopy(added))

    def change_elements_in_place(self, key: int, entry: int, value: int, kind: str) -> None:
        state = self.state("any list", key)
        elements = state.get()
        for element in elements:
            element.append(value)
        state.update(elements)
        if elements:
            self.model["any list"][key] = copy.deepcopy(elements)

    def put(self, key: int, entry: int, value: int, kind: str) -> None:
        put = value if kind == "typed" else [value]
        self.state(f"{kind} map", key).put(entry, put)
        self.model[f"{kind} map"].setdefault(key, {})[entry] = copy.copy(put)

    def change_map_value_in_place(self, key: int, entry: int, value: int, kind: str) -> None:
        state = self.state("any map", key)
        held = state.get(entry)
        if held is not None:
            held.append(value)
            state.put(entry, held)
            self.model["any map"][key][entry] = list(held)

    def remove(self, key: int, entry: int, value: int, kind: str) -> None:
        self.state(f"{kind} map", key).remove(entry)
        held = self.model[f"{kind} map"].get(key, {})
        held.pop(entry, None)
        if not held:
            self.model[f"{kind} map"].pop(key, None)

    def reduce(self, key: int, entry: int, value: int, kind: str) -> None:
        self.state("sum", key).add(value)
        self.model["sum"][key] = self.model["sum"].get(key, 0) + value

    def add_to_operator_list(self, key: int, entry: int, value: int, kind: str) -> None:
        held = self.lists[key % len(self.lists)]
        for element in held.get()[:entry]:
            self.operator_model.remove(element)
            element.append(value)
            self.operator_model.append(list(element))
        held.add([value])
        self.operator_model.append([value])

    @rule()
    def barrier(self) -> None:
        self.cut(CheckpointOptions())

    def cut(self, options: CheckpointOptions) -> None:
        self.checkpoint += 1
        number = CheckpointId(self.checkpoint)
        pieces = [each.backend.snapshot(number, options) for each in self.subtasks]
        self.pending.append((pieces, copy.deepcopy(self.model), copy.deepcopy(self.operator_model)))

    @precondition(lambda self: self.pending)
    @rule(which=SMALL, slices=st.integers(1, 8), written=st.booleans())
    def encode_slices(self, which: int, slices: int, written: bool) -> None:
        pieces, _, _ = self.pending[which % len(self.pending)]
        for _ in range(slices):
            for piece in pieces:
                piece.encode(0.1)
                if written and piece.waiting:
                    piece.write(cast("Place", MEMORY))
                    assert piece.waiting == 0

    @precondition(lambda self: self.pending)
    @rule(which=SMALL)
    def abort(self, which: int) -> None:
        pieces, _, _ = self.pending.pop(which % len(self.pending))
        for piece in pieces:
            piece.cancel()

    @precondition(lambda self: self.pending)
    @rule(which=SMALL, parallelism=st.integers(1, 3))
    def complete(self, which: int, parallelism: int) -> None:
        self.finish(which % len(self.pending), parallelism)

    def finish(self, which: int, parallelism: int) -> None:
        pieces, model, operator_model = self.pending.pop(which)
        for piece in pieces:
            while not piece.encode(0.1):
                pass
        states = [self.place.uploaded(piece) for piece in pieces]
        self.completed = states, model, operator_model
        again = self.place.gone_on(states, parallelism)
        assert {each.name: merged(again, each) for each in DESCRIPTORS} == model
        held = [each.backend.operator_state(OPERATOR_LIST).get() for each in again]
        assert sorted(chain(*held)) == sorted(operator_model)
        self.forget(again)

    @precondition(lambda self: self.completed is not None)
    @rule(parallelism=st.integers(1, 3))
    def restore(self, parallelism: int) -> None:
        assert self.completed is not None
        states, model, operator_model = self.completed
        self.forget(self.subtasks)
        self.take_over(self.place.gone_on(states, parallelism))
        self.model = copy.deepcopy(model)
        self.operator_model = copy.deepcopy(operator_model)

    @invariant()
    def state_is_as_the_model_says(self) -> None:
        if not hasattr(self, "subtasks"):
            return
        for each in DESCRIPTORS:
            found: dict[object, object] = {}
            for subtask in self.subtasks:
                found |= subtask.dump(each.name)
            assert found == self.model[each.name]
        held = [element for each in self.lists for element in each.get()]
        assert sorted(held) == sorted(self.operator_model)

    def teardown(self) -> None:
        self.forget(getattr(self, "subtasks", []))
        self.place.close()


BackendMachine.TestCase.settings = settings(examples(30), stateful_step_count=20)
