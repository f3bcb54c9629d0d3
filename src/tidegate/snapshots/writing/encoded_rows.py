"""Encodes rows for a savepoint as they come, and spools them by key group.

Encoded rows stay in a temporary file until their key group is written, so that any number of rows
can be put into a savepoint; a batch of them is in memory at a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa

from flinkformat.frozen import frozen
from tidegate.errors import ConfigError
from tidegate.snapshots.rows import StateForm, StateInfo, StateKind, StateRow
from tidegate.state.format.blocks import MISSING, PRESENT, Block
from tidegate.state.format.encoding import encoded, encoded_as_declared, paired
from tidegate.typeinfo.arrow import has_records, recast, values_of
from tidegate.typeinfo.convert import Converter, Misfit
from tidegate.typeinfo.key_hash import KeyHasher
from tidegate.typeinfo.types import LONG, TupleTypeInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tidegate.typeinfo.types import TypeInformation

    StateRows = pa.Table | Iterable[pa.RecordBatch] | Iterable[StateRow] | Mapping[Any, Any]

_ROWS_A_RUN: Final = 65_536


@frozen
class Run:
    """Some rows as columns; None for a missing column."""

    keys: list[Any]
    namespaces: list[Any] | None
    values: list[Any]
    last_accesses: list[Any] | None


def runs_of(rows: StateRows, info: StateInfo, where: str) -> Iterator[Run]:
    """Groups rows into runs, with values as the state has them.

    Raises ConfigError if a column is missing, or holds what is not of the state's type.
    """
    if isinstance(rows, Mapping):
        rows = (StateRow(0, None, key, None, value) for key, value in rows.items())
    if isinstance(rows, pa.Table):
        table = cast("Any", rows)
        rows = cast("Iterable[pa.RecordBatch]", table.to_batches(max_chunksize=_ROWS_A_RUN))
    each = iter(cast("Iterable[Any]", rows))
    while some := list(islice(each, 1)):
        if isinstance(some[0], pa.RecordBatch):
            yield _run_of_batch(some[0], info, where)
        else:
            yield _run_of_rows([*some, *islice(each, _ROWS_A_RUN - 1)], info, where)


def _run_of_rows(rows: Sequence[StateRow], info: StateInfo, where: str) -> Run:
    def column(name: str, type_info: TypeInformation | None) -> list[Any]:
        values = [getattr(row, name) for row in rows]
        if type_info is None or not has_records(type_info):
            return values
        try:
            return [recast(value, type_info) for value in values]
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"A {name} is not of type {type_info}: {error}",
                where=where,
                remedy="Give records of the same fields as those that are read.",
            ) from error

    return Run(
        column("key", info.key_type),
        None if info.namespace_type is None else column("namespace", info.namespace_type),
        column("value", info.value_type),
        column("last_access", None) if info.expires else None,
    )


def _run_of_batch(batch: pa.RecordBatch, info: StateInfo, where: str) -> Run:
    needed = ["key", "value", *(["namespace"] if info.namespace_type is not None else [])]
    missing = [name for name in needed if name not in batch.schema.names]
    if missing:
        raise ConfigError(
            f"The rows have no column {' and no column '.join(missing)}",
            where=where,
            remedy=f"Name the columns {', '.join(needed)}; there are: "
            f"{', '.join(batch.schema.names)}.",
        )

    def column(name: str, type_info: TypeInformation | None) -> list[Any]:
        assert type_info is not None, "only columns that the state has are asked for"
        try:
            return values_of(batch.column(name), type_info)
        except (TypeError, ValueError, KeyError) as error:
            raise ConfigError(
                f"The column '{name}' holds a value that is not of type {type_info}: {error}",
                where=where,
                remedy="Give the rows the columns that reading the state gives.",
            ) from error

    times = None
    if info.expires and "last_access" in batch.schema.names:
        times = column("last_access", info.times_type)
    namespaces = None if info.namespace_type is None else column("namespace", info.namespace_type)
    return Run(column("key", info.key_type), namespaces, column("value", info.value_type), times)


class RowsEncoder:
    """Makes blocks of rows. now_ms: the last access of rows that do not say theirs."""

    def __init__(self, form: StateForm, max_parallelism: int, now_ms: int, where: str) -> None:
        info = form.info
        assert info.key_type is not None, "a keyed state has keys"
        self._form = form
        self._now_ms = now_ms
        self._where = where
        self._hasher = KeyHasher(info.key_type, max_parallelism, where=where)
        self._converter = Converter(info.key_type)
        self._keys = paired(form.keys, _stored_namespace(info))

    def blocks(self, run: Run) -> Iterator[tuple[int, Block]]:
        """Key groups and blocks; a row without a value removes its key's content.

        Raises ConfigError for a key of another type, UserError for such a value.
        """
        try:
            keys = self._converter.batch(list(run.keys))
        except Misfit as misfit:
            raise self._no_key(misfit.value) from misfit
        if None in keys:
            raise self._no_key(None)
        plain, groups = self._hasher.keyed(keys)
        names = list(self._names(list(plain), run))
        entries = self._entries(run)
        order = np.argsort(groups, kind="stable")
        found, starts = np.unique(groups[order], return_index=True)
        for group, chosen in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
            rows = chosen.tolist()
            yield from self._of_group(group, rows, names, entries)

    def _of_group(
        self, group: int, rows: Sequence[int], names: Sequence[Any], entries: Sequence[Any]
    ) -> Iterator[tuple[int, Block]]:
        present = [row for row in rows if entries[row] is not None]
        missing = [row for row in rows if entries[row] is None]
        if present:
            own = [names[row] for row in present]
            values = [entries[row] for row in present]
            pieces = encoded_as_declared(self._form.values, values, self._where, own.__getitem__)
            keys = encoded(self._keys, own, self._where)
            yield group, Block(PRESENT, 0, len(own), keys, pieces)
        if missing:
            keys = encoded(self._keys, [names[row] for row in missing], self._where)
            yield group, Block(MISSING, 0, len(missing), keys, b"")

    def _names(self, keys: Sequence[Any], run: Run) -> Iterable[Any]:
        if self._form.info.kind is StateKind.TIMERS:
            beside = run.values
            if run.namespaces is not None:
                beside = list(zip(run.values, run.namespaces, strict=True))
            return zip(keys, beside, strict=True)
        return keys if run.namespaces is None else zip(keys, run.namespaces, strict=True)

    def _entries(self, run: Run) -> list[Any]:
        info = self._form.info
        if info.kind is StateKind.TIMERS:
            return [True] * len(run.values)
        values = run.values
        if info.kind in (StateKind.LIST, StateKind.MAP):
            values = [value or None for value in values]
        if not info.expires:
            return values
        times = run.last_accesses or [None] * len(values)
        return [
            None if value is None else self._stamped(value, time)
            for value, time in zip(values, times, strict=True)
        ]

    def _stamped(self, value: Any, time: Any) -> Any:
        match self._form.info.kind:
            case StateKind.LIST:
                stamps = time or [None] * len(value)
                return [(self._ms(ms), part) for ms, part in zip(stamps, value, strict=True)]
            case StateKind.MAP:
                stamps = time or {}
                return {key: (self._ms(stamps.get(key)), part) for key, part in value.items()}
            case _:
                return self._ms(time), value

    def _ms(self, time: int | None) -> int:
        return self._now_ms if time is None else time

    def _no_key(self, key: object) -> ConfigError:
        return ConfigError(
            f"{key!r} is not a key of type {self._form.info.key_type}",
            where=self._where,
            remedy="Give each row a key of that type.",
        )


def _stored_namespace(info: StateInfo) -> TypeInformation | None:
    if info.kind is not StateKind.TIMERS:
        return info.namespace_type
    return LONG if info.namespace_type is None else TupleTypeInfo([LONG, info.namespace_type])


@frozen
class _Spooled:
    block: Block
    offset: int
    keys: int
    values: int


class BlockSpool:
    """Blocks by key group, in a temporary file; deleted by `close`."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="tidegate-rows-")  # noqa: SIM115
        self._blocks: dict[int, list[_Spooled]] = {}
        self._end = 0

    @property
    def groups(self) -> list[int]:
        return sorted(self._blocks)

    def add(self, group: int, block: Block) -> None:
        size = self._file.write(block.keys) + self._file.write(block.values)
        bare = replace(block, keys=b"", values=b"")
        spooled = _Spooled(bare, self._end, len(block.keys), len(block.values))
        self._blocks.setdefault(group, []).append(spooled)
        self._end += size

    def blocks(self, group: int) -> Iterator[Block]:
        for each in self._blocks.get(group, ()):
            self._file.seek(each.offset)
            keys = self._file.read(each.keys)
            yield replace(each.block, keys=keys, values=self._file.read(each.values))

    def close(self) -> None:
        self._file.close()


def spooled(encoder: RowsEncoder, rows: StateRows, info: StateInfo, where: str) -> BlockSpool:
    """Encodes all rows. Raises what `runs_of` and `RowsEncoder.blocks` raise."""
    spool = BlockSpool()
    try:
        for run in runs_of(rows, info, where):
            for group, block in encoder.blocks(run):
                spool.add(group, block)
    except BaseException:
        spool.close()
        raise
    return spool
