"""State of snapshots as DataFrames: the PySpark data source ``tidegate.state``.

A partition is a run of key groups of one subtask. A filter for one key reads only the key group of
that key. Spark offers filters to Python sources only if the session allows it, and otherwise
refuses sources that can take filters; hence there are two sources.
"""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from flinkformat.key_groups import DEFAULT_LOWER_BOUND
from tidegate.errors import ConfigError
from tidegate.snapshots.rows import StateDeclaration
from tidegate.snapshots.snapshot import Snapshot
from tidegate.snapshots.tables import read_state
from tidegate.snapshots.writing.distributed import DeclaredTypes, StatePut
from tidegate.typeinfo.arrow import type_of_arrow
from tidegate.typeinfo.hints import declared_key_type, declared_type
from tidegate.typeinfo.rebuilding import rebuilt
from tidegate.typeinfo.types import (
    BYTES,
    CHAR,
    PICKLED,
    SQL_DATE,
    SQL_TIME,
    SQL_TIMESTAMP,
    STRING,
    RecordTypeInfo,
    TupleTypeInfo,
    holds_pickled,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceWriter, Filter
    from pyspark.sql.types import StructType

    from flinkformat.handles import KeyGroupsStateHandle
    from tidegate.api.state import StateDescriptor
    from tidegate.snapshots.tables import StateTable
    from tidegate.typeinfo.hints import TypeHint
    from tidegate.typeinfo.types import TypeInformation

NAME: Final = "tidegate.state"

PARTITION_BYTES: Final = 32 << 20
"""Bytes of state that a partition has, about, unless told otherwise."""

_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


class StateDataSource(DataSource):
    """``spark.read.format("tidegate.state")``, once it is registered.

    Options: ``operator`` (uid, name or id) and ``state`` say which state; ``key`` takes one key
    (texts as they are, all else as JSON); ``partitionBytes`` is about how much state goes to one
    partition. Columns as in `StateTable`; of undeclared values, ``.schema`` may ask for ``binary``
    in place of the type that they turn out to have.

    ``df.write.format("tidegate.state")`` makes a savepoint in a new folder, of the columns ``key``,
    ``value`` and, where the state has them, ``namespace`` and ``last_access``. Options:
    ``operator``, ``state``; ``from``, the snapshot that it begins with; of a state that this does
    not have those of `state_options`; ``maxParallelism`` of new operators. Mode ``append`` leaves
    the state's other keys as they are, ``overwrite`` leaves none. The savepoint is there once all
    is written; a failure leaves nothing.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """Schema of the state's table."""
        return from_arrow_schema(_table(self.options).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return StateSourceReader(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Creates a savepoint from the rows it is given."""
        return StateSourceWriter(_put_of(self.options, schema, overwrite=overwrite))


class FilteredStateDataSource(StateDataSource):
    """A `StateDataSource` for sessions that offer filters to Python sources."""

    def reader(self, schema: StructType) -> DataSourceReader:
        return FilteringStateSourceReader(dict(self.options), schema)


def register_state_source(spark: SparkSession) -> None:
    """Make ``tidegate.state`` a format of the session, for reading and for writing.

    Lets Spark offer filters to Python data sources, where it can (4.1 and newer), so that one on
    ``key`` reads one key group. ``spark.dataSource.register(StateDataSource)`` does the same
    without filters.
    """
    can_filter = hasattr(DataSourceReader, "pushFilters")
    if can_filter:
        spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(FilteredStateDataSource if can_filter else StateDataSource)


def state_options(
    descriptor: StateDescriptor,
    *,
    key_type: TypeHint | None = None,
    namespace_type: TypeHint | None = None,
) -> dict[str, str]:
    """Options for writing a state that no snapshot has yet, as the job declares it.

    key_type: of the operator's keys; else that of the column ``key``. Use:
    ``df.write.format("tidegate.state").options(operator=uid, **state_options(descriptor))``. The
    options are plain data. Raises ConfigError for records that only a pickle can hold.
    """
    where = f"state '{descriptor.name}'"
    state, _ = StateDeclaration.of(descriptor, where=where)
    types = declared_key_type(key_type, where=where), declared_type(namespace_type, where=where)
    return {"state": state.name, "descriptor": DeclaredTypes(state, *types).to_text()}


def _arrow_schema(schema: StructType) -> pa.Schema:
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)  # Spark 4.0 takes UTC for granted


def _required(options: Any, name: str) -> str:
    value = options.get(name)
    if not value:
        raise ConfigError(
            f"The option '{name}' is missing",
            where=f"format '{NAME}'",
            remedy='Give .option("operator", uid), .option("state", name) and a path.',
        )
    return value


def _number(options: Any, name: str, otherwise: int) -> int:
    """A positive number from an option. Spark gives option names in lower case."""
    given = str(options.get(name.lower(), otherwise))
    if not given.isdecimal() or not int(given):
        raise ConfigError(
            f"The option '{name}' is {given!r}, which is not a positive whole number",
            where=f"format '{NAME}'",
            remedy=f"Write a number such as {otherwise}.",
        )
    return int(given)


def _put_of(options: Any, schema: StructType, *, overwrite: bool) -> StatePut:
    path, operator, name = (_required(options, each) for each in ("path", "operator", "state"))
    columns = _arrow_schema(schema)
    key_type = type_of_arrow(columns.field("key").type) if "key" in columns.names else None
    namespace_type: TypeInformation | None = None
    state: str | StateDeclaration = name
    if "descriptor" in options:
        declared = DeclaredTypes.from_text(name, options["descriptor"])
        state, namespace_type = declared.state, declared.namespace_type
        key_type = declared.key_type or key_type
    put = StatePut(
        path,
        options.get("from"),
        operator,
        state,
        key_type,
        namespace_type,
        overwrite,
        _number(options, "maxParallelism", DEFAULT_LOWER_BOUND),
        _number(options, "parallelism", 1),
    )
    put.check()
    return put


class Part(WriterCommitMessage):
    """Result of a writing task; None without rows."""

    def __init__(self, handle: KeyGroupsStateHandle | None) -> None:
        self.handle = handle


class StateSourceWriter(DataSourceArrowWriter):
    """Writes one state into a new savepoint."""

    def __init__(self, put: StatePut) -> None:
        self._put = put

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Part:
        return Part(self._put.part(iterator))

    def commit(self, messages: Sequence[Any]) -> None:
        handles = (each.handle for each in messages if each is not None)
        self._put.commit([handle for handle in handles if handle is not None])

    def abort(self, messages: Sequence[Any]) -> None:
        self._put.abort()


def _table(options: Any, value_type: TypeInformation | None = None) -> StateTable:
    path, operator, state = (_required(options, name) for name in ("path", "operator", "state"))
    return read_state(path, operator, state, value_type=value_type)


class Keys(InputPartition):
    """Some keys of the state, each in its key group."""


class KeyGroups(InputPartition):
    """A run of key groups; None for all of a state without them."""


class StateSourceReader(DataSourceReader):
    """Reads one state of a snapshot."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        table = _table(options)
        asked = _arrow_schema(schema)
        value = asked.field("value").type if "value" in asked.names else None
        if value == pa.binary() and table.schema.field("value").type != value:
            raw = Snapshot.open(options["path"]).state(options["operator"], options["state"])
            if holds_pickled(raw.value_type):
                table = _table(options, PICKLED)
        self._path = options["path"]
        self._operator = options["operator"]
        self._bytes_max = _number(options, "partitionBytes", PARTITION_BYTES)
        self._schema = asked
        self._info = table.info.without_classes()
        self._keys: list[Any] | None = None
        self._groups: set[int] | None = None
        if "key" in options:
            self._keys = [key_from_text(options["key"], self._info.key_type or STRING)]

    def partitions(self) -> Sequence[InputPartition]:
        if self._keys is not None:
            return [Keys(self._keys)]
        snapshot = Snapshot.open(self._path)
        runs = snapshot.splits(self._operator, self._info, bytes_max=self._bytes_max)
        if not self._info.kind.is_keyed:
            return [KeyGroups(None)]
        wanted = [[group for group in run if self._is_wanted(group)] for run in runs]
        return [KeyGroups(groups) for groups in wanted if groups] or [KeyGroups([])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow batches of the schema that was asked for."""
        snapshot = Snapshot.open(self._path)
        if isinstance(partition, Keys):
            for key in partition.value:
                yield from self._cast(snapshot.entries(self._operator, self._info, key=key))
        else:
            groups = partition.value
            yield from self._cast(snapshot.entries(self._operator, self._info, key_groups=groups))

    def _is_wanted(self, group: int) -> bool:
        return self._groups is None or group in self._groups

    def _cast(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.select(self._schema.names).cast(self._schema)


class FilteringStateSourceReader(StateSourceReader):
    """Takes filters that say which keys or key groups are wanted."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes equality on ``key`` and ``key_group``; returns the filters left to Spark."""
        from pyspark.sql.datasource import EqualTo, In

        for each in filters:
            match each:
                case EqualTo(("key",), value) if self._info.kind.is_keyed:
                    self._only([value])
                case In(("key",), values) if self._info.kind.is_keyed:
                    self._only(values)
                case EqualTo(("key_group",), value):
                    self._groups = {value}
                    yield each
                case _:
                    yield each

    def _only(self, keys: Iterable[Any]) -> None:
        wanted = list(dict.fromkeys(key for key in keys if key is not None))
        self._keys = wanted if self._keys is None else [k for k in self._keys if k in wanted]


def key_from_text(text: str, key_type: TypeInformation) -> Any:
    """Key meant by the option ``key``. Raises ConfigError for a text that is not one."""
    if key_type in (STRING, CHAR):
        return text
    try:
        if key_type == BYTES:
            return bytes.fromhex(text)
        if key_type in (SQL_DATE, SQL_TIME, SQL_TIMESTAMP):
            return rebuilt(text, key_type)
        if isinstance(key_type, RecordTypeInfo):
            key_type = TupleTypeInfo(key_type.field_types)
        return rebuilt(json.loads(text), key_type)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"The option 'key' is not of type {key_type}: {text}",
            where=f"format '{NAME}'",
            remedy='Give a number, or JSON such as ["EWR", 3] for a tuple; bytes in hexadecimal '
            "digits.",
        ) from error
