"""Counts the entries in states of a Flink snapshot, per key group."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from flinkformat.handles import StateDistribution
from flinkformat.state.composites import type_name
from tidegate.snapshots.rows import StateKind

if TYPE_CHECKING:
    from flinkformat.snapshots import OperatorState
    from flinkformat.state.headers import FlinkState
    from flinkformat.state.operator_state import FlinkOperatorState
    from tidegate.snapshots.flink_snapshot import FlinkSnapshot

_VOID: Final = "VoidNamespace"
_KINDS: Final = {
    StateDistribution.SPLIT_DISTRIBUTE: StateKind.OPERATOR_LIST,
    StateDistribution.UNION: StateKind.UNION_LIST,
    StateDistribution.BROADCAST: StateKind.BROADCAST,
}


@dataclass(slots=True)
class CountedState:
    """A state and its entries. key, namespace: names of types; None if there are none.

    groups: entries by key group; all under -1 where there are no keys.
    """

    name: str
    kind: str
    key: str | None
    namespace: str | None
    value: str
    groups: Counter[int] = field(default_factory=Counter[int])


def counted_states(snapshot: FlinkSnapshot, operator: OperatorState) -> list[CountedState]:
    """States of an operator, by name.

    Raises FormatError, also for a serializer that is not known; RestoreRefused where a file is
    gone.
    """
    found: dict[str, CountedState] = {}
    for keyed in snapshot.keyed_state(operator):
        key = type_name(keyed.header.key)
        for state in keyed.header.states:
            found.setdefault(state.name, _keyed(state, key))
        for entry in keyed.entries():
            found[entry.state.name].groups[entry.key_group] += 1
    for _, states in snapshot.operator_state(operator):
        for state in states:
            kind = _KINDS[state.mode]
            held = found.setdefault(state.state.name, _of_subtask(state, kind))
            if kind is not StateKind.BROADCAST:
                held.groups[-1] += len(state.elements)
            elif not held.groups:  # each subtask has all of it
                held.groups[-1] = sum(map(len, state.elements))
    return sorted(found.values(), key=lambda state: state.name)


def _keyed(state: FlinkState, key: str) -> CountedState:
    if state.is_timers:
        return CountedState(state.name, StateKind.TIMERS.value, key, None, "Long")
    namespace = type_name(state.namespace)
    beside = None if namespace == _VOID else namespace
    return CountedState(state.name, state.kind.lower(), key, beside, type_name(state.value))


def _of_subtask(state: FlinkOperatorState, kind: StateKind) -> CountedState:
    return CountedState(state.state.name, kind.value, None, None, type_name(state.state.value))
