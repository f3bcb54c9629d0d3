"""Content of states as runs of rows: one form for all kinds of state."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa

from flinkformat.frozen import frozen
from flinkformat.handles import StateDistribution
from flinkformat.metadata.channels import unmerge_input, unmerge_output
from tidegate.errors import FormatError
from tidegate.state.format.blocks import StateHeader
from tidegate.state.user import kinds, ttl
from tidegate.typeinfo.arrow import column_of, column_type
from tidegate.typeinfo.descriptions import describe, type_described
from tidegate.typeinfo.evolution import serializer_standing_in
from tidegate.typeinfo.serializers import SerializerSnapshot, serializer_of
from tidegate.typeinfo.types import LONG, ListTypeInfo, MapTypeInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flinkformat.handles import InputChannelStateHandle, ResultSubpartitionStateHandle
    from flinkformat.snapshots import SubtaskState
    from tidegate.api.state import StateDescriptor
    from tidegate.model.ids import OperatorId
    from tidegate.typeinfo.serializers import Serializer
    from tidegate.typeinfo.types import TypeInformation

    Channel = InputChannelStateHandle | ResultSubpartitionStateHandle
    Column = Sequence[Any] | pa.Array
    Place = tuple[int, int]


class StateKind(Enum):
    """Kind of a state; values are those in snapshots, if these have one."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"
    TIMERS = "timers"
    COLUMN = "column"
    OPERATOR_LIST = "operator list"
    UNION_LIST = "union list"
    BROADCAST = "broadcast"
    INPUT_CHANNELS = "input channels"
    OUTPUT_CHANNELS = "output channels"

    @property
    def is_keyed(self) -> bool:
        """True if its rows have keys, which lie in key groups."""
        return self in _KEYED


_KEYED: Final = frozenset(
    (
        StateKind.VALUE,
        StateKind.LIST,
        StateKind.MAP,
        StateKind.REDUCING,
        StateKind.AGGREGATING,
        StateKind.TIMERS,
        StateKind.COLUMN,
    )
)


KIND_OF_OPERATOR_STATE: Final = {
    StateDistribution.SPLIT_DISTRIBUTE: StateKind.OPERATOR_LIST,
    StateDistribution.UNION: StateKind.UNION_LIST,
    StateDistribution.BROADCAST: StateKind.BROADCAST,
}


@frozen
class OperatorInfo:
    """An operator of a snapshot. uid, name: None if the snapshot does not say."""

    operator_id: OperatorId
    uid: str | None
    name: str | None
    parallelism: int
    max_parallelism: int

    def __str__(self) -> str:
        return self.uid or self.name or self.operator_id.hex()


@frozen
class StateInfo:
    """A named state of an operator.

    key_type: of the keys; of a broadcast state, of its map's; None if there are none.
    namespace_type: of what stands beside the key, such as a window; None if nothing does.
    value_type: of a key's value, list or map, without times; of an element of operator state; a
    pickled one where nobody declared it. expires: whether it has a time to live.
    """

    name: str
    kind: StateKind
    key_type: TypeInformation | None
    namespace_type: TypeInformation | None
    value_type: TypeInformation
    expires: bool = False

    def without_classes(self) -> StateInfo:
        """A copy that can be pickled: its records lack their stand-in classes."""
        plain = [
            None if each is None else type_described(describe(each))
            for each in (self.key_type, self.namespace_type, self.value_type)
        ]
        assert plain[2] is not None, "a state has a type"
        return replace(self, key_type=plain[0], namespace_type=plain[1], value_type=plain[2])

    @property
    def times_type(self) -> TypeInformation:
        """Type of a value's last access: one time, or one for each part."""
        match self.kind, self.value_type:
            case StateKind.LIST, _:
                return ListTypeInfo(LONG)
            case StateKind.MAP, MapTypeInfo(key, _):
                return MapTypeInfo(key, LONG)
            case _:
                return LONG

    @property
    def schema(self) -> pa.Schema:
        """Schema of its Arrow batches."""
        fields = [("key_group", pa.int16())] if self.kind.is_keyed else [("subtask", pa.int32())]
        if self.key_type is not None:
            fields.append(("key", column_type(self.key_type)))
        if self.namespace_type is not None:
            fields.append(("namespace", column_type(self.namespace_type)))
        fields.append(("value", column_type(self.value_type)))
        if self.expires:
            fields.append(("last_access", column_type(self.times_type)))
        return pa.schema(fields)


@frozen
class StateForm:
    """Layout of a keyed state. values: serializer of entries, with their times if it expires."""

    info: StateInfo
    header: StateHeader
    keys: Serializer
    values: Serializer


@frozen
class StateDeclaration:
    """A keyed state that no snapshot has yet, as plain data.

    A descriptor holds functions and classes, which only code can carry; writing needs less.
    serializer: of what is stored a key, with its times if it expires.
    """

    name: str
    kind: StateKind
    serializer: SerializerSnapshot
    expires: bool

    @staticmethod
    def of(descriptor: StateDescriptor, *, where: str) -> tuple[StateDeclaration, Serializer]:
        """Declaration and serializer of a descriptor. Raises ConfigError."""
        kind = StateKind(kinds.kind_of(descriptor, where=where).value)
        values = serializer_of(kinds.entry_type(ttl.stored(descriptor)))
        expires = ttl.expires(descriptor)
        return StateDeclaration(descriptor.name, kind, values.snapshot(), expires), values

    def values(self) -> Serializer:
        return serializer_standing_in(self.serializer)


def form_of(
    declared: StateDeclaration,
    values: Serializer,
    keys: Serializer,
    namespace_type: TypeInformation | None,
) -> StateForm:
    beside = None if namespace_type is None else serializer_of(namespace_type).snapshot().to_bytes()
    header = StateHeader(
        declared.name,
        declared.kind.value,
        declared.serializer.to_bytes(),
        beside,
        ttl=declared.expires,
    )
    plain = ttl.without_times(values.type_info) if declared.expires else values.type_info
    info = StateInfo(
        declared.name, declared.kind, keys.type_info, namespace_type, plain, declared.expires
    )
    return StateForm(info, header, keys, values)


@frozen
class StateRow:
    """Content of a state under one key, or one element of it.

    subtask: which one wrote it. key_group, key: None in states without keys. namespace: such as a
    window; of data in flight, the positions of edge and channel. value: of timers, their time in
    milliseconds. last_access: of a state that expires, the time in milliseconds since 1970 of the
    last access that counts; of a list or map, of each part.
    """

    subtask: int
    key_group: int | None
    key: Any
    namespace: Any
    value: Any
    last_access: Any = None


@frozen
class Rows:
    """A run of rows of one subtask and key group; fields as in `StateRow`, None for none."""

    subtask: int
    key_group: int | None
    keys: Column | None
    namespaces: Sequence[Any] | None
    values: Column
    last_accesses: Sequence[Any] | None = None

    def each(self) -> Iterator[StateRow]:
        count = len(self.values)
        nothing = (None,) * count
        columns = (self.keys, self.namespaces, self.values, self.last_accesses)
        of_rows = [nothing if each is None else listed(each) for each in columns]
        for key, namespace, value, times in zip(*of_rows, strict=True):
            yield StateRow(self.subtask, self.key_group, key, namespace, value, times)

    def only(self, key: object) -> Rows:
        assert self.keys is not None, "rows without keys are not asked for by key"
        keys = listed(self.keys)
        wanted = [i for i, each in enumerate(keys) if each == key]

        def taken(column: Column | None) -> list[Any] | None:
            if column is None:
                return None
            plain = listed(column)
            return [plain[i] for i in wanted]

        return Rows(
            self.subtask,
            self.key_group,
            taken(self.keys),
            taken(self.namespaces),
            taken(self.values) or [],
            taken(self.last_accesses),
        )

    def batch(self, info: StateInfo, where: str) -> pa.RecordBatch:
        """The rows as a batch of the state's schema. where: names the state in errors.

        Raises FormatError for a value that is not of the state's type.
        """
        schema, count = info.schema, len(self.values)
        first = (self.key_group if info.kind.is_keyed else self.subtask) or 0
        arrays = [pa.array(np.full(count, first), schema.field(0).type)]
        columns = {
            "key": (self.keys, info.key_type),
            "namespace": (self.namespaces, info.namespace_type),
            "value": (self.values, info.value_type),
            "last_access": (self.last_accesses, info.times_type),
        }
        for name in schema.names[1:]:
            values, type_info = columns[name]
            assert values is not None and type_info is not None, "the schema is that of the state"
            try:
                arrays.append(_as_column(values, type_info))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise FormatError(
                    f"The state '{info.name}' holds a {name} that is not of type "
                    f"{type_info}: {error}",
                    where=where,
                    remedy="Read it as rows, or with value_type=Types.PICKLED_BYTE_ARRAY().",
                ) from error
        return pa.record_batch(arrays, schema=schema)


def serializer_read(snapshot: bytes) -> Serializer:
    """Serializer of a snapshot's bytes, without the classes of the job."""
    return serializer_standing_in(SerializerSnapshot.from_bytes(snapshot))


def listed(column: Column) -> Sequence[Any]:
    return cast("Any", column).to_pylist() if isinstance(column, pa.Array) else column


def _as_column(values: Any, type_info: TypeInformation) -> pa.Array:
    arrow = column_type(type_info)
    if not isinstance(values, pa.Array):
        return column_of(values, type_info)
    return column_of(values.to_pylist(), type_info) if arrow == pa.binary() else values.cast(arrow)


def in_flight(kind: StateKind, state: SubtaskState) -> Iterator[tuple[Place, Channel]]:
    """Data in flight of a subtask by channel. Place: numbers of edge and channel."""
    if kind is StateKind.INPUT_CHANNELS:
        for each in state.input_channel:
            for channel in unmerge_input(each):
                yield (channel.gate_index, channel.channel_index), channel
    else:
        for output in state.result_subpartition:
            for part in unmerge_output(output):
                yield (part.partition_index, part.subpartition_index), part
