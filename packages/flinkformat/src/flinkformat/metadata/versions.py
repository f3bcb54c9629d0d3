"""Differences between versions of ``_metadata``, and the operators, which differ most.

A new version is a line in `LAYOUTS`, and a branch where its new part is read and written.
Layout: docs/formats/metadata.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from flinkformat.errors import FormatError
from flinkformat.frozen import frozen
from flinkformat.handles import ByteStreamStateHandle
from flinkformat.ids import OperatorId
from flinkformat.key_groups import PARALLELISM_MAX
from flinkformat.metadata.channels import read_input, read_output, write_inputs, write_outputs
from flinkformat.metadata.keyed import KeyedReader, write_keyed
from flinkformat.metadata.streams import (
    read_operator_handle,
    read_stream,
    write_operator_handle,
    write_stream,
)
from flinkformat.snapshots import FINISHED, Finished, OperatorState, SubtaskState

if TYPE_CHECKING:
    from flinkformat.handles import OperatorStateHandle
    from flinkformat.metadata.streams import NewId
    from flinkformat.metadata.wire import Reader, Writer


@frozen(kw_only=True)
class Layout:
    """Layout of one version.

    legacy: version 2, without coordinators, channels and finished tasks. properties: they stand at
    the end. names: name and uid stand before the operator id. typed_channels: channel handles
    begin with a type byte and may be merged.
    """

    version: int
    legacy: bool = False
    properties: bool = False
    names: bool = False
    typed_channels: bool = False


LAYOUTS: Final = {
    layout.version: layout
    for layout in (
        Layout(version=2, legacy=True),
        Layout(version=3),
        Layout(version=4, properties=True),
        Layout(version=5, properties=True, names=True),
        Layout(version=6, properties=True, names=True, typed_channels=True),
    )
}


class OperatorReader:
    """Reads the operators of one file."""

    def __init__(self, reader: Reader, layout: Layout, new_id: NewId) -> None:
        self._reader = reader
        self._layout = layout
        self._new_id = new_id
        self._keyed = KeyedReader(reader, new_id)

    def operator(self) -> OperatorState:
        reader = self._reader
        name = uid = None
        if self._layout.names:
            name = reader.utf("the name of an operator") or None
            uid = reader.utf("the uid of an operator") or None
        operator_id = OperatorId(reader.raw(16, "an operator id"))
        where = f"operator {name or uid or ''} {operator_id.hex()}".replace("  ", " ")
        reader.where = where
        start = reader.offset
        parallelism = reader.bounded("the parallelism", 0, PARALLELISM_MAX)
        max_parallelism = reader.bounded("the max parallelism", 0, PARALLELISM_MAX)
        if parallelism > max_parallelism:
            raise reader.fail(
                f"Parallelism {parallelism} is not smaller or equal to max parallelism "
                f"{max_parallelism}.",
                expected=f"at most {max_parallelism}",
                found=str(parallelism),
                offset=start,
            )
        coordinator, fully_finished = None, False
        if self._layout.legacy:
            reader.i32("the chain length")
            subtasks = self._subtasks(reader.count("subtasks"), parallelism, where)
        else:
            coordinator = self._coordinator()
            count = self._subtask_count(coordinator)
            fully_finished = count < 0
            subtasks = self._subtasks(max(count, 0), parallelism, where)
        return OperatorState(
            operator_id=operator_id,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            name=name,
            uid=uid,
            coordinator_state=coordinator,
            subtasks=subtasks,
            fully_finished=fully_finished,
        )

    def _coordinator(self) -> ByteStreamStateHandle | None:
        start = self._reader.offset
        handle = read_stream(self._reader, self._new_id)
        if handle is None or isinstance(handle, ByteStreamStateHandle):
            return handle
        raise self._reader.fail(
            f"Expected a ByteStreamStateHandle but found a {type(handle).__name__}",
            expected="inline coordinator state, or none",
            found=type(handle).__name__,
            offset=start,
        )

    def _subtask_count(self, coordinator: ByteStreamStateHandle | None) -> int:
        """Number of subtasks that follow; negative for an operator that is fully finished."""
        start = self._reader.offset
        count = self._reader.i32("the number of subtasks")
        if count >= 0:
            self._reader.offset = start
            return self._reader.count("subtasks", element_size_min=4)
        if coordinator is not None:
            raise self._reader.fail(
                "Coordinator State should be null for fully finished operator state",
                expected="no coordinator state",
                found=f"{coordinator.state_size} bytes of it",
                offset=start,
            )
        return count

    def _subtasks(
        self, count: int, parallelism: int, where: str
    ) -> dict[int, SubtaskState | Finished]:
        subtasks: dict[int, SubtaskState | Finished] = {}
        for _ in range(count):
            self._reader.where = where
            start = self._reader.offset
            marked = self._reader.i32("the index of a subtask")
            finished = marked < 0 and not self._layout.legacy
            index = -(marked + 1) if finished else marked
            if not 0 <= index < parallelism:
                raise self._reader.fail(
                    f"The given sub task index {index} exceeds the maximum number of sub tasks "
                    f"{parallelism}",
                    expected=f"0 to {parallelism - 1}",
                    found=str(index),
                    offset=start,
                )
            self._reader.where = f"{where}, subtask {index}"
            subtasks[index] = FINISHED if finished else self._subtask()
        return subtasks

    def _subtask(self) -> SubtaskState:
        reader, new_id, typed = self._reader, self._new_id, self._layout.typed_channels
        if self._layout.legacy:
            self._pass_over_legacy_state()
        managed_operator, raw_operator = self._operator_handle(), self._operator_handle()
        managed_keyed, raw_keyed = self._keyed.handle(), self._keyed.handle()
        state = SubtaskState(
            managed_operator=managed_operator,
            raw_operator=raw_operator,
            managed_keyed=managed_keyed,
            raw_keyed=raw_keyed,
        )
        if self._layout.legacy:
            return state
        return replace(
            state,
            input_channel=reader.many(
                "input channel states", lambda: read_input(reader, new_id, typed=typed)
            ),
            result_subpartition=reader.many(
                "result subpartition states", lambda: read_output(reader, new_id, typed=typed)
            ),
        )

    def _pass_over_legacy_state(self) -> None:
        self._reader.i64("the duration of a checkpoint")
        start = self._reader.offset
        legacy = self._reader.i32("the number of legacy states")
        if legacy > 0:
            raise self._reader.fail(
                "the subtask has legacy operator state, which nobody reads any more",
                expected="none",
                found=str(legacy),
                offset=start,
            )

    def _operator_handle(self) -> OperatorStateHandle | None:
        if self._reader.i32("whether there is operator state") == 0:
            return None
        return read_operator_handle(self._reader, self._new_id)


def write_operator(writer: Writer, layout: Layout, operator: OperatorState) -> None:
    """Writes an operator and its subtasks; in any version but 2, which is only read."""
    if layout.names:
        _write_name(writer, "name", operator.name)
        _write_name(writer, "uid", operator.uid)
    writer.raw(operator.operator_id)
    writer.i32(operator.parallelism)
    writer.i32(operator.max_parallelism)
    write_stream(writer, operator.coordinator_state)
    if operator.fully_finished:
        writer.i32(-1)
        return
    writer.i32(len(operator.subtasks))
    for index, state in operator.subtasks.items():
        if state is FINISHED:
            writer.i32(-(index + 1))
        else:
            writer.i32(index)
            _write_subtask(writer, layout, state)


def _write_name(writer: Writer, what: str, text: str | None) -> None:
    if text == "":
        raise FormatError(
            f"Empty string operator {what} is not allowed",
            remedy=f"Give the operator a {what}, or none at all.",
            expected="at least one character",
            found="none",
        )
    writer.utf(text or "")


def _write_subtask(writer: Writer, layout: Layout, state: SubtaskState) -> None:
    for handle in (state.managed_operator, state.raw_operator):
        writer.i32(0 if handle is None else 1)
        if handle is not None:
            write_operator_handle(writer, handle)
    write_keyed(writer, state.managed_keyed)
    write_keyed(writer, state.raw_keyed)
    write_inputs(writer, state.input_channel, typed=layout.typed_channels)
    write_outputs(writer, state.result_subpartition, typed=layout.typed_channels)
