"""What a completed checkpoint holds, read back as a restore would, against the input before it.

At least once it may hold more. Unaligned it may hold less, for the rest is in its in-flight data.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, cast

from flinkformat import metadata
from flinkformat.handles import ByteStreamStateHandle
from flinkformat.key_groups import KeyGroupRange
from flinkformat.snapshots import SubtaskState
from tests.simulation.functions import Stretch, is_mark, left_in
from tidegate import Types, ValueStateDescriptor
from tidegate.api import ship
from tidegate.api.state import OperatorStateDescriptor
from tidegate.loops.cells import KeyCell
from tidegate.model.restore import RestoredOperatorState
from tidegate.operators.async_calls.async_wait import IN_FLIGHT_STATE
from tidegate.operators.sinks.sink import COMMITTABLES_STATE
from tidegate.operators.sources.source import STATE_NAME
from tidegate.state.backend import OperatorBackend
from tidegate.state.scope import StateScope
from tidegate.storage.reading import StateReader
from tidegate.storage.state_files import StateFiles, resolve_relative
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flinkformat.snapshots import OperatorState
    from tests.simulation.jobs import Pipeline, Plan
    from tidegate.api.state import OperatorListState
    from tidegate.clock import Clock
    from tidegate.storage.memory import MemoryFiles


class Inspector:
    """Reads the checkpoints of one plan. committed: rows that the sinks had made visible before."""

    def __init__(self, plan: Plan, files: MemoryFiles, clock: Clock) -> None:
        self._plan = plan
        self._clock = clock
        self._files = StateFiles(Stores(files))

    def faults(self, pointer: str, committed: list[list[object]]) -> list[str]:
        """What a checkpoint holds that its input does not explain, or lacks."""
        file = self._files.read_metadata(pointer)
        decoded = resolve_relative(metadata.decode(file.data, lambda: "0" * 32), file.directory)
        operators = {state.uid: state for state in decoded.operators}
        return [
            f"checkpoint {decoded.checkpoint_id}: {fault}"
            for pipeline in self._plan.pipelines
            for fault in self._pipeline(pipeline, operators, committed)
        ]

    def _pipeline(
        self,
        pipeline: Pipeline,
        operators: dict[str | None, OperatorState],
        committed: list[list[object]],
    ) -> Iterator[str]:
        made = Counter(
            value
            for index, source in enumerate(pipeline.sources)
            for number in set(range(source.first, source.first + source.count))
            - self._unread(operators[pipeline.source_uid(index)])
            - self._in_flight(operators.get(pipeline.lookup_uid))
            for value in pipeline.values(number)
        )
        if pipeline.shape != "chain" and not self._ended(pipeline, operators):
            keys = Counter(value % pipeline.keys for value in made.elements())
            yield from self._counts(operators.get(pipeline.counting_uid), "count", keys)
            if pipeline.shape == "twice" and self._plan.exactly_once:
                yield from self._counts(operators.get(pipeline.checking_uid), "last", keys)
        rows = [row[1:] for row in committed if row[0] == pipeline.name]
        sink = operators.get(pipeline.committer_uid)
        if sink is not None:
            rows += self._prepared(sink)
        # A committable may be committed already, so its rows are counted once.
        found = {(row[0], row[1], row[2]) for row in rows if not is_mark(row)}
        written = Counter(cast("int", value) for value, _, _ in found)
        yield from self._compared(f"{pipeline.name}: its sink has", written, made)

    def _ended(self, pipeline: Pipeline, operators: dict[str | None, OperatorState]) -> bool:
        """Whether some of its subtasks may have finished before a rescale: their state is gone."""
        sources = [operators[pipeline.source_uid(n)] for n in range(len(pipeline.sources))]
        return self._plan.rescaled and all(source.fully_finished for source in sources)

    def _unread(self, source: OperatorState) -> set[int]:
        """The numbers that a source still has to give."""
        if source.fully_finished:
            return set()
        stretches: list[Stretch] = []
        if source.coordinator_state is not None:
            assert isinstance(source.coordinator_state, ByteStreamStateHandle)
            stretches += left_in(source.coordinator_state.data)
        for state in source.subtasks.values():
            if isinstance(state, SubtaskState):
                split_list = self._list(source, state, STATE_NAME)
                stretches += [
                    cast("Stretch", ship.loads(cast("bytes", data), name="simulated"))
                    for data in split_list
                ]
        return {number for each in stretches for number in range(each.next, each.end)}

    def _in_flight(self, lookup: OperatorState | None) -> set[int]:
        """The numbers that are being looked up."""
        if lookup is None or lookup.fully_finished:
            return set()
        return {
            cast("tuple[int, None]", element)[0]
            for state in lookup.subtasks.values()
            if isinstance(state, SubtaskState)
            for element in self._list(lookup, state, IN_FLIGHT_STATE)
        }

    def _counts(
        self, operator: OperatorState | None, name: str, wanted: Counter[int]
    ) -> Iterator[str]:
        if operator is None or operator.fully_finished:
            return
        found: Counter[int] = Counter()
        for state in operator.subtasks.values():
            if not isinstance(state, SubtaskState):
                return  # what a finished subtask held is gone, and of no use
            backend = self._backend(operator, state)
            backend.keyed_state(ValueStateDescriptor(name, Types.LONG()))
            for _, key, entry in backend.scan(name):
                found[cast("int", key)] += cast("int", entry)
        yield from self._compared(f"{operator.uid}: it holds", found, wanted)

    def _prepared(self, sink: OperatorState) -> list[list[object]]:
        rows: list[list[object]] = []
        for state in sink.subtasks.values():
            if isinstance(state, SubtaskState):
                for element in self._list(sink, state, COMMITTABLES_STATE):
                    rows += json.loads(cast("tuple[int, bytes]", element)[1])[2]
        return rows

    def _list(self, operator: OperatorState, state: SubtaskState, name: str) -> list[object]:
        backend = self._backend(operator, state)
        found: OperatorListState[object] = backend.operator_state(OperatorStateDescriptor(name))
        return list(found.get())

    def _backend(self, operator: OperatorState, state: SubtaskState) -> OperatorBackend:
        scope = StateScope(
            operator.operator_id,
            KeyGroupRange.of(0, 1, operator.max_parallelism),
            operator.max_parallelism,
            self._clock,
            KeyCell(),
            key_type=Types.LONG(),
        )
        backend = OperatorBackend(scope)
        keyed, listed = state.managed_keyed, state.managed_operator
        restored = RestoredOperatorState(
            managed_keyed=() if keyed is None else (keyed,),
            managed_operator=() if listed is None else (listed,),
        )
        backend.restore(restored, StateReader(self._files, {}))
        return backend

    def _compared(self, what: str, found: Counter[int], wanted: Counter[int]) -> Iterator[str]:
        more, less = found - wanted, wanted - found
        if more and self._plan.each_once:
            yield f"{what} {dict(list(more.items())[:5])} too much"
        if less and not self._plan.unaligned:
            yield f"{what} {dict(list(less.items())[:5])} too little"
