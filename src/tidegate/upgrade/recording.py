"""A backend that records which states an operator asks for, and how they fit a sample.

It is the backend that slots have, over the sample: so the judgement is that of a restore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from flinkformat.frozen import frozen
from flinkformat.key_groups import KeyGroupRange
from tidegate.api.state import RedistributionMode
from tidegate.errors import TidegateError
from tidegate.loops.cells import KeyCell
from tidegate.state.backend import OperatorBackend
from tidegate.state.scope import StateScope
from tidegate.state.user import kinds, ttl
from tidegate.state.user.timers import TIMERS, KeyedTimers, beside_time
from tidegate.typeinfo.evolution import AsIs, judge
from tidegate.typeinfo.serializers import SerializerSnapshot, serializer_of
from tidegate.typeinfo.types import PICKLED, MapTypeInfo
from tidegate.upgrade.report import StateVerdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tidegate.api.operator import OperatorStates
    from tidegate.api.state import (
        BroadcastState,
        ColumnState,
        ColumnStateDescriptor,
        KeyedColumns,
        KeyedPanes,
        MapStateDescriptor,
        OperatorListState,
        OperatorStateDescriptor,
        State,
        StateDescriptor,
    )
    from tidegate.clock import Clock
    from tidegate.model.topology import OperatorInfo
    from tidegate.state.format.blocks import StateHeader
    from tidegate.typeinfo.types import TypeInformation
    from tidegate.upgrade.sample import OperatorSample

T = TypeVar("T")

COLUMNS: Final = "columns"
"""Stands for the keys of columnar state, which have no name."""


def timers_text(key: str | None, namespace: TypeInformation | None) -> str:
    """Text for the type of timers: their keys and, by namespace, what stands beside these.

    key: None if none was seen.
    """
    beside = beside_time(namespace)
    return f"by {key or 'key'}{'' if beside is None else f' and {beside}'}"


@frozen
class Asked:
    """A state that an operator has asked for. error: why it is refused.

    becomes: its type now; of timers, as of `timers_text`.
    """

    name: str
    kind: str
    verdict: StateVerdict
    becomes: str
    error: TidegateError | None = None


class RecordingStates:
    """The state of an operator, which notes what is asked for; what does not fit begins empty.

    backend: the one that slots have, so that the judgement is that of a restore.
    """

    def __init__(
        self,
        info: OperatorInfo,
        max_parallelism: int,
        clock: Clock,
        key_type: TypeInformation | None,
        sample: OperatorSample,
    ) -> None:
        def backend(key_type: TypeInformation | None, cell: KeyCell) -> OperatorBackend:
            scope = StateScope(
                info.id,
                KeyGroupRange(0, max_parallelism - 1),
                max_parallelism,
                clock,
                cell,
                key_type=key_type,
                name=info.name,
                uid=info.uid,
            )
            return OperatorBackend(scope)

        self.backend = backend(key_type, KeyCell())
        self.cell, self.pair_cell = self.backend.cell, self.backend.pair_cell
        self._spare = lambda: backend(None, self.cell)
        self._sample = sample
        self._key = sample.key if key_type is None else str(key_type)
        self.asked: dict[str, Asked] = {}

    def keyed_state(
        self, descriptor: StateDescriptor, namespace: TypeInformation | None = None
    ) -> State:
        name = descriptor.name
        kind = "timers" if name.startswith(TIMERS) else kinds.kind_of(descriptor, where="").value

        def is_migrated(was: StateHeader) -> bool:
            old = SerializerSnapshot.from_bytes(was.serializer)
            return ttl.is_migrated(old, descriptor, had_times=was.ttl)

        becomes = shown_type(kinds.entry_type(descriptor), expires=ttl.expires(descriptor))
        if kind == "timers":
            becomes = timers_text(self._key, namespace)
        return self._noted(
            name,
            kind,
            becomes,
            self._sample.keyed,
            is_migrated,
            lambda states: states.keyed_state(descriptor, namespace),
        )

    def operator_state(self, descriptor: OperatorStateDescriptor) -> OperatorListState[object]:
        becomes = descriptor.type_info
        union = descriptor.mode is RedistributionMode.UNION
        kind = "union list" if union else "operator list"
        return self._operator_noted(
            descriptor.name, kind, becomes, lambda states: states.operator_state(descriptor)
        )

    def broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastState[object, object]:
        keys, values = descriptor.type_info, descriptor.value_type_info
        becomes = MapTypeInfo(keys or PICKLED, values or PICKLED)
        return self._operator_noted(
            descriptor.name, "broadcast", becomes, lambda states: states.broadcast_state(descriptor)
        )

    def keyed_columns(self, key_type: TypeInformation | None) -> KeyedColumns:
        return self._columns_noted(COLUMNS, key_type, lambda states: states.keyed_columns(key_type))

    def keyed_panes(self, key_type: TypeInformation | None) -> KeyedPanes:
        return self._columns_noted(COLUMNS, key_type, lambda states: states.keyed_panes(key_type))

    def column_state(self, descriptor: ColumnStateDescriptor) -> ColumnState:
        return self._columns_noted(
            descriptor.name, None, lambda states: states.column_state(descriptor)
        )

    def scan(self, state: str) -> Iterator[tuple[int, object, object]]:
        """Sampled entries of a state; empty for a state that does not fit."""
        if self.asked[state].error is not None:
            return iter(())
        return self.backend.scan(state)

    def timers(
        self, name: str, namespace: TypeInformation | None, alarm: Callable[[int], None]
    ) -> KeyedTimers:
        return KeyedTimers(self, name, namespace, alarm)

    def _operator_noted(
        self,
        name: str,
        kind: str,
        becomes: TypeInformation | None,
        ask: Callable[[OperatorStates], T],
    ) -> T:
        def is_migrated(was: StateHeader) -> bool:
            old = SerializerSnapshot.from_bytes(was.serializer)
            return not isinstance(judge(old, serializer_of(becomes)), AsIs)

        shown = shown_type(becomes)
        return self._noted(name, kind, shown, self._sample.operator, is_migrated, ask)

    def _columns_noted(
        self, name: str, becomes: TypeInformation | None, ask: Callable[[OperatorStates], T]
    ) -> T:
        columns = self._sample.columns
        held = {} if columns is None else {each: [] for each in (COLUMNS, *columns)}
        return self._noted(name, "column", shown_type(becomes), held, lambda _: False, ask)

    def _noted(
        self,
        name: str,
        kind: str,
        becomes: str,
        held: Mapping[str, list[StateHeader]],
        is_migrated: Callable[[StateHeader], bool],
        ask: Callable[[OperatorStates], T],
    ) -> T:
        error = None
        try:
            state = ask(self.backend)
        except TidegateError as refused:
            state, error = ask(self._spare()), refused
        if error is not None:
            verdict = StateVerdict.REFUSED
        elif name not in held:
            verdict = StateVerdict.NEW
        elif any(map(is_migrated, held[name])):
            verdict = StateVerdict.MIGRATED
        else:
            verdict = StateVerdict.AS_IS
        if error is not None or name not in self.asked:
            self.asked[name] = Asked(name, kind, verdict, becomes, error)
        return state


def shown_type(declared: TypeInformation | None, *, expires: bool = False) -> str:
    """A state's type as a report names it; None if undeclared."""
    return f"{declared or PICKLED}{', expires' if expires else ''}"
