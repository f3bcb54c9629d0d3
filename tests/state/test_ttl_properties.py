"""Any order of accesses, jumps of the clock, snapshots and rescales, against plain dicts.

Without clean-up beside reads the model knows what is stored to the last entry, so its clock may go
back and expired values may be shown. With clean-up it only knows what can be seen, and that only
while the clock goes on.
"""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.properties import examples
from tests.state.aggregates import Sum
from tests.state.disk_world import Disk
from tests.state.world import InMemory, Subtask
from tidegate import (
    AggregateFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)
from tidegate.api.functions import AggregatingStateDescriptor
from tidegate.model.ids import CheckpointId

TTL = 20
KEYS = 2
ENTRIES = 3
ACTIONS = (
    "update", "add", "add_rows", "read", "clear", "extend_list", "replace_list", "read_list", "put",
    "remove", "get", "contains", "items", "keys", "is_empty", "the_clock_goes_back",
)  # fmt: skip
ACTION = st.tuples(
    st.sampled_from(ACTIONS),
    st.sampled_from([0] * 8 + [1, 9, 10, 20]),
    st.integers(0, KEYS - 1),
    st.integers(0, ENTRIES - 1),
    st.integers(1, 9),
)
"""What, milliseconds since the action before, key, entry of a map or kind of state, value."""
Action = tuple[str, int, int, int, int]
Model = dict[str, dict[int, Any]]
"""By state and key: (ms, value), a list or a dict of them."""


class Gather(AggregateFunction):
    def create_accumulator(self):
        return []

    def add(self, value, accumulator):
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator):
        return sum(accumulator)

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


def described(config: StateTtlConfig) -> list[StateDescriptor]:
    return [
        ValueStateDescriptor("value", Types.LONG(), ttl=config),
        ListStateDescriptor("list", ttl=config),
        MapStateDescriptor("map", Types.LONG(), Types.LONG(), ttl=config),
        ReducingStateDescriptor("sum", Sum(), Types.LONG(), ttl=config),
        AggregatingStateDescriptor("gathered", Gather(), Types.LIST(Types.LONG()), ttl=config),
    ]


class TtlMachine(RuleBasedStateMachine):
    """Subtasks that hold a state of each kind, beside a model of what they store."""

    place: Any = InMemory()

    @initialize(
        update=st.sampled_from(list(StateTtlConfig.UpdateType)[1:]),
        shown=st.booleans(),
        cleaned=st.booleans(),
        cleanup_size=st.integers(1, 9),
        parallelism=st.integers(1, 3),
    )
    def start(
        self,
        update: StateTtlConfig.UpdateType,
        shown: bool,
        cleaned: bool,
        cleanup_size: int,
        parallelism: int,
    ) -> None:
        builder = StateTtlConfig.new_builder(Time.milliseconds(TTL)).set_update_type(update)
        if cleaned:
            builder.cleanup_incrementally(cleanup_size).cleanup_full_snapshot()
        else:
            builder.disable_cleanup_in_background()
        if shown and not cleaned:
            builder.return_expired_if_not_cleaned_up()
        self.cleaned, self.shown = cleaned, shown and not cleaned
        self.renewed = update is StateTtlConfig.UpdateType.OnReadAndWrite
        self.descriptors = described(builder.build())
        self.model: Model = {each.name: {} for each in self.descriptors}
        self.now = 0
        self.checkpoint = 0
        self.take_over(self.place.begun(parallelism))

    def take_over(self, subtasks: list[Subtask]) -> None:
        self.subtasks = subtasks
        self.states = [
            {each.name: subtask.at(self.now).backend.keyed_state(each) for each in self.descriptors}
            for subtask in subtasks
        ]
        for subtask in subtasks:
            subtask.clock.step_ms = 1_000  # so a slice is one piece

    def state(self, name: str, key: int) -> Any:
        for subtask, states in zip(self.subtasks, self.states, strict=True):
            if subtask.owns(key):
                subtask.on(key).at(self.now)
                return states[name]
        raise AssertionError("some subtask owns each key")

    def is_over(self, stamped: tuple[int, Any]) -> bool:
        return self.now >= stamped[0] + TTL

    @rule(actions=st.lists(ACTION, min_size=10, max_size=30))
    def act(self, actions: list[Action]) -> None:
        for name, span, key, entry, value in actions:
            self.now += span
            getattr(self, name)(key, entry, value)

    def the_clock_goes_back(self, key: int, entry: int, value: int) -> None:
        if not self.cleaned:
            self.now = max(0, self.now - value)

    # --- one value a key ---

    def update(self, key: int, entry: int, value: int) -> None:
        self.state("value", key).update(None if entry == 0 else value)
        self.set_or_drop("value", key, None if entry == 0 else (self.now, value))

    def add(self, key: int, entry: int, value: int) -> None:
        self.state("sum", key).add(value)
        self.state("gathered", key).add(value)
        self.added(key, value)

    def add_rows(self, key: int, entry: int, value: int) -> None:
        emitted: list[int] = []
        sums, gathered = self.state("sum", key), self.state("gathered", key)
        groups = [next(each for each in self.subtasks if each.owns(key)).cell.group]
        sums.add_rows([key], groups, [value], emitted.append)
        gathered.add_rows([key], groups, [value])
        self.added(key, value)
        assert emitted == [self.model["sum"][key][1]]

    def added(self, key: int, value: int) -> None:
        self.model["sum"][key] = self.now, value + (self.seen("sum", key) or 0)
        self.model["gathered"][key] = self.now, [*(self.seen("gathered", key) or ()), value]

    def read(self, key: int, entry: int, value: int) -> None:
        name = ("value", "sum", "gathered")[entry]
        state, expected = self.state(name, key), self.seen(name, key)
        found = state.value() if name == "value" else state.get()
        assert found == (sum(expected) if isinstance(expected, list) else expected)
        stamped = self.model[name].get(key)
        if stamped is not None and self.is_over(stamped):
            del self.model[name][key]
        elif stamped is not None and self.renewed:
            self.model[name][key] = self.now, stamped[1]

    def seen(self, name: str, key: int) -> Any:
        stamped = self.model[name].get(key)
        return None if stamped is None or (self.is_over(stamped) and not self.shown) else stamped[1]

    def clear(self, key: int, entry: int, value: int) -> None:
        name = self.descriptors[value % len(self.descriptors)].name
        self.state(name, key).clear()
        self.model[name].pop(key, None)

    def set_or_drop(self, name: str, key: int, held: Any) -> None:
        if held:
            self.model[name][key] = held
        else:
            self.model[name].pop(key, None)

    # --- lists ---

    def extend_list(self, key: int, entry: int, value: int) -> None:
        self.state("list", key).add_all([value] * entry)
        held = self.model["list"].get(key, [])
        self.set_or_drop("list", key, held + [(self.now, value)] * entry)

    def replace_list(self, key: int, entry: int, value: int) -> None:
        self.state("list", key).update([value] * entry)
        self.set_or_drop("list", key, [(self.now, value)] * entry)

    def read_list(self, key: int, entry: int, value: int) -> None:
        held = self.model["list"].get(key, [])
        left = [each for each in held if not self.is_over(each)]
        found = self.state("list", key).get()
        assert found == [element for _, element in (held if self.shown else left)]
        if self.renewed:
            left = [(self.now, element) for _, element in left]
        self.set_or_drop("list", key, left)

    # --- maps ---

    def put(self, key: int, entry: int, value: int) -> None:
        added = {(value + i) % ENTRIES: value for i in range(entry)}
        self.state("map", key).put_all(added)
        stamped = {each: (self.now, value) for each in added}
        self.set_or_drop("map", key, self.model["map"].get(key, {}) | stamped)

    def remove(self, key: int, entry: int, value: int) -> None:
        self.state("map", key).remove(entry)
        self.drop_entry(key, entry)

    def drop_entry(self, key: int, entry: int) -> None:
        held = {k: v for k, v in self.model["map"].get(key, {}).items() if k != entry}
        self.set_or_drop("map", key, held)

    def get(self, key: int, entry: int, value: int) -> None:
        held = self.model["map"].get(key, {})
        stamped = held.get(entry)
        found = self.state("map", key).get(entry)
        if stamped is None:
            assert found is None
        elif self.is_over(stamped):
            assert found == (stamped[1] if self.shown else None)
            self.drop_entry(key, entry)
        else:
            assert found == stamped[1]
            self.look({entry: stamped}, key)

    def contains(self, key: int, entry: int, value: int) -> None:
        held = self.model["map"].get(key, {})
        asked = {entry: held[entry]} if entry in held else {}
        assert self.state("map", key).contains(entry) is bool(self.look(asked, key))

    def items(self, key: int, entry: int, value: int) -> None:
        found = dict(self.state("map", key).items())
        seen = self.look(self.model["map"].get(key, {}), key)
        assert found == {each: value for each, (_, value) in seen.items()}
        for each, stamped in list(self.model["map"].get(key, {}).items()):
            if self.is_over(stamped):
                self.drop_entry(key, each)

    def keys(self, key: int, entry: int, value: int) -> None:
        found = set(self.state("map", key).keys())
        assert found == self.look(self.model["map"].get(key, {}), key).keys()

    def is_empty(self, key: int, entry: int, value: int) -> None:
        found = self.state("map", key).is_empty()
        assert found is not bool(self.look(self.model["map"].get(key, {}), key))

    def look(self, entries: dict[int, Any], key: int) -> dict[int, Any]:
        """Those of the entries that may be seen; all that are not expired are read."""
        left = {each: stamped for each, stamped in entries.items() if not self.is_over(stamped)}
        seen = dict(entries) if self.shown else left
        if self.renewed and left:
            self.model["map"][key] |= {each: (self.now, left[each][1]) for each in left}
        return seen

    # --- snapshots ---

    @rule(
        behind=st.lists(ACTION, max_size=20),
        slices=st.integers(0, 5),
        then=st.lists(ACTION, max_size=10),
        parallelism=st.integers(1, 3),
    )
    def snapshot_and_restore(
        self, behind: list[Action], slices: int, then: list[Action], parallelism: int
    ) -> None:
        self.checkpoint += 1
        barrier = self.now
        pieces = [each.backend.snapshot(CheckpointId(self.checkpoint)) for each in self.subtasks]
        model = copy.deepcopy(self.model)
        self.act(behind)
        for piece in pieces * slices:
            piece.encode(0.1)
        self.act(then)
        for piece in pieces:
            piece.finish()
        states = [self.place.uploaded(piece) for piece in pieces]
        self.model = model
        if not self.cleaned:  # else all that was there is expired, mostly
            self.now = barrier
        self.forget()
        self.take_over(self.place.gone_on(states, parallelism))
        self.read_all()

    def forget(self) -> None:
        for subtask in getattr(self, "subtasks", []):
            subtask.backend.close()

    def teardown(self) -> None:
        self.forget()
        self.place.close()

    def read_all(self) -> None:
        for key in range(KEYS):
            for which in range(3):
                self.read(key, which, 0)
            self.read_list(key, 0, 0)
            self.items(key, 0, 0)


TtlMachine.TestCase.settings = settings(examples(25), stateful_step_count=8)
TestTtl = TtlMachine.TestCase


class TtlMachineOnDisk(TtlMachine):
    """The same on disk, where what is written is soon not in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Disk()


TtlMachineOnDisk.TestCase.settings = settings(examples(12), stateful_step_count=8)
TestTtlOnDisk = TtlMachineOnDisk.TestCase
