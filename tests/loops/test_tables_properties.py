"""Reads and writes of tables: compiled they leave the same entries and the same pre-images."""

import copy
from operator import length_hint
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat.key_groups import KeyGroupRange
from tests.loops.both import both_forms
from tests.properties import examples
from tidegate.errors import UserError
from tidegate.loops import tables
from tidegate.loops.forms import INTERPRETED, Loops
from tidegate.state.heap.hashmap import HashMapTable
from tidegate.typeinfo.copies import private_copy

FORMS = both_forms()
GROUPS = KeyGroupRange(0, 2)
KEYS = st.integers(0, 5) | st.sampled_from(["a", (1, 2), None, 1.5, True])
VALUES = st.none() | st.integers() | st.text(max_size=2) | st.lists(st.integers(), max_size=2)
OWN = st.tuples(KEYS | st.just([1]), st.integers(0, 2), VALUES)
ROWS = st.lists(OWN | st.tuples(KEYS, st.sampled_from([-1, 3]), VALUES), max_size=5)
STEPS = st.lists(
    st.tuples(st.sampled_from(["update", "value", "clear", "fold", "accumulate"]), ROWS)
    | st.tuples(st.sampled_from(["read_all", "remove_all"]), ROWS)
    | st.tuples(st.sampled_from(["freeze", "thaw", "encode", "cut", "drain"]), st.just([])),
    max_size=12,
)


class SourceTable(HashMapTable):
    """Has lists and maps of the source that is compiled; interpreted runs have other classes."""

    def list_state(self, copy: Any) -> Any:
        return self._parted(tables.ListValues, copy)

    def map_state(self, copy: Any) -> Any:
        return self._parted(tables.MapValues, copy)


class Table:
    """A table in one form, with a note of what each step gave or raised."""

    kind = HashMapTable

    def __init__(self, loops: Loops, *, copied: bool, tracked: bool, logged: bool) -> None:
        self.cell = loops.key_cell()
        copier = private_copy if copied else None
        self.table = self.kind(self.cell, GROUPS, 4, copy=copier, tracked=tracked, logged=logged)
        self.values: Any = self.table.value_state()
        self.logged = logged
        self.told: list[object] = []
        self.frozen: list[int] = []
        self.table.check_first_key(self.checked)

    def checked(self, key: object) -> None:
        self.told.append(("first key", key))
        if key == 5:
            raise UserError("a key of another type")

    def do(self, step: str, rows: list[tuple[object, int, object]]) -> None:
        # Each form has values of its own, since a function may change them.
        rows = copy.deepcopy(rows)
        try:
            self.told.append((step, getattr(self, step)(rows)))
        except (TypeError, ValueError, IndexError, UserError, AssertionError) as error:
            self.told.append((step, type(error), str(error)))

    def update(self, rows: list[Any]) -> None:
        for self.cell.key, self.cell.group, value in rows:
            self.values.update(value)

    def value(self, rows: list[Any]) -> list[object]:
        found: list[object] = []
        for self.cell.key, self.cell.group, _ in rows:
            value = self.values.value()
            found.append(copy.copy(value))
            if isinstance(value, list) and self.table.is_shared():
                value.append("changed by the user")
        return found

    def clear(self, rows: list[Any]) -> None:
        for self.cell.key, self.cell.group, _ in rows:
            self.values.clear()

    def read_all(self, rows: list[Any]) -> list[object]:
        found = self.table.read_all([key for key, _, _ in rows], [group for _, group, _ in rows])
        told = copy.deepcopy(found)
        for (self.cell.key, self.cell.group, _), value in zip(rows, found, strict=True):
            if isinstance(value, list) and self.table.is_shared():
                value.append("changed by the user")
        return told

    def remove_all(self, rows: list[Any]) -> None:
        self.table.remove_all([key for key, _, _ in rows], [group for _, group, _ in rows])

    def fold(self, rows: list[Any]) -> list[object]:
        keys, groups, values = ([row[at] for row in rows] for at in range(3))
        emitted: list[object] = []
        try:
            self.table.fold(keys, groups, values, self.merge, emitted.append)
        finally:
            self.told.append(list(emitted))
        return emitted

    def accumulate(self, rows: list[Any]) -> int:
        keys, groups, values = ([row[at] for row in rows] for at in range(3))
        rest = iter(values)
        try:
            self.table.accumulate(iter(keys), groups, rest, self.add, list)
        finally:
            self.told.append(length_hint(rest))
        return 0

    def merge(self, old: Any, new: Any) -> object:
        if new == 7:
            raise ValueError("a fault of the user's")
        return new if new is None or type(old) is not type(new) else old + new

    def add(self, value: Any, entry: Any) -> object:
        if value == 7:
            raise ValueError("a fault of the user's")
        if value is None or not isinstance(entry, list):
            return value
        entry.append(value)
        return entry

    def freeze(self, rows: object) -> None:
        self.frozen = self.table.freeze()

    def thaw(self, rows: object) -> None:
        self.table.thaw()
        self.frozen = []

    def encode(self, rows: object) -> list[str]:
        group = self.frozen.pop()
        return [repr(piece) for piece in self.table.pieces(group, lambda: 2)]

    def cut(self, rows: object) -> None:
        if self.logged:
            self.table.cut()

    def drain(self, rows: object) -> list[str]:
        return [repr(self.table.drain(group, 2, None)) for group in GROUPS if self.logged]

    def all(self) -> tuple[object, ...]:
        """What it holds, what a snapshot or a log would take, and what the steps have told."""
        written = {group: keys and list(keys) for group, keys in self.table.written().items()}
        return list(self.table.scan()), written, self.table.undrained, self.told


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("kind", ["", "tracked", "logged"])
@examples(200)
@given(steps=STEPS)
def test_both_forms_hold_the_same_after_each_step(kind: str, copied: bool, steps: Any) -> None:
    tracked, logged = kind == "tracked", kind == "logged"
    plain, fast = (Table(form, copied=copied, tracked=tracked, logged=logged) for form in FORMS)
    for step, rows in steps:
        plain.do(step, rows)
        fast.do(step, rows)
        assert fast.all() == plain.all()


PARTS = st.integers(0, 2) | st.lists(st.integers(), max_size=1)
LIST_CALLS = st.one_of(
    st.tuples(st.sampled_from(["get", "__iter__", "clear"])),
    st.tuples(st.just("add"), PARTS),
    st.tuples(st.sampled_from(["add_all", "update"]), st.lists(PARTS, max_size=2) | st.just(5)),
)
NAMES = st.integers(0, 2) | st.just([1])
MAP_CALLS = st.one_of(
    st.tuples(st.sampled_from(["items", "keys", "values", "__iter__", "is_empty", "clear"])),
    st.tuples(
        st.sampled_from(
            ["get", "remove", "contains", "__getitem__", "__delitem__", "__contains__"]
        ),
        NAMES,
    ),
    st.tuples(st.sampled_from(["put", "__setitem__"]), NAMES, PARTS),
    st.tuples(
        st.just("put_all"), st.dictionaries(st.integers(0, 2), PARTS, max_size=2) | st.just(5)
    ),
)
MOMENTS = st.tuples(st.sampled_from(["freeze", "thaw", "encode", "cut", "drain"]))
PLACES = st.tuples(st.integers(0, 2) | st.just([1]), st.integers(0, 2)) | st.tuples(
    st.integers(0, 2), st.sampled_from([-1, 3])
)


class Parts(Table):
    """A table of lists or maps; each call is made for a key."""

    def __init__(self, loops: Loops, kind: str, *, copied: bool, tracked: bool, logged: bool):
        super().__init__(loops, copied=True, tracked=tracked, logged=logged)
        make = self.table.list_state if kind == "list" else self.table.map_state
        self.values = make(private_copy if copied else None)

    def call(self, name: str, *arguments: Any) -> object:
        given = getattr(self.values, name)(*copy.deepcopy(arguments))
        shown = repr(list(given) if hasattr(given, "__next__") else given)
        if isinstance(given, list) and name == "get":
            given.append("changed by the user")
        return shown


class SourceParts(Parts):
    """The same over the source."""

    kind = SourceTable


@pytest.mark.parametrize("parts_change", [False, True])
@pytest.mark.parametrize("kind", ["list", "map"])
@pytest.mark.parametrize("noted", ["", "tracked", "logged"])
@examples(150)
@given(data=st.data())
def test_lists_and_maps_hold_what_the_plain_ones_hold(
    noted: str, kind: str, parts_change: bool, data: st.DataObject
) -> None:
    calls = LIST_CALLS if kind == "list" else MAP_CALLS
    steps = data.draw(st.lists(st.tuples(PLACES, calls | MOMENTS), max_size=12))
    tracked, logged = noted == "tracked", noted == "logged"
    forms = ((Parts, FORMS[0]), (Parts, FORMS[1]), (SourceParts, INTERPRETED))
    plain, *others = (
        make(form, kind, copied=parts_change, tracked=tracked, logged=logged)
        for make, form in forms
    )
    assert len({type(each.values) for each in (plain, *others)}) == 3
    for (key, group), (name, *arguments) in steps:
        for each in (plain, *others):
            each.cell.key, each.cell.group = key, group
            if name in ("freeze", "thaw", "encode", "cut", "drain"):
                each.do(name, [])
                continue
            try:
                each.told.append(each.call(name, *arguments))
            except (TypeError, IndexError, UserError, AssertionError) as error:
                each.told.append((name, type(error), str(error)))
        for other in others:
            assert other.all() == plain.all()
