"""One state of a snapshot as a table: for Arrow, pandas and polars, without Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tidegate.snapshots.snapshot import NO_KEY, OperatorInfo, Snapshot

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from os import PathLike

    import pandas as pd
    import polars as pl

    from tidegate.snapshots.rows import StateInfo, StateRow
    from tidegate.typeinfo.types import TypeInformation


def read_state(
    path: str | PathLike[str],
    operator: str,
    state: str,
    *,
    key: object = NO_KEY,
    key_groups: Collection[int] | None = None,
    value_type: TypeInformation | None = None,
    key_file: str | PathLike[str] | None = None,
) -> StateTable:
    """Reads a state of a checkpoint or savepoint as a table.

    path: its folder, or the ``_metadata`` in it. operator: uid, name or operator id in hexadecimal
    digits. key: only this one; just its key group is read. key_groups: only these. value_type: for
    undeclared values, in place of the type that they turn out to have;
    ``Types.PICKLED_BYTE_ARRAY()`` takes any. key_file: holds the key with which the snapshot has to
    be signed.

    Raises ConfigError, with what may be meant, where there is no such operator or state, and for a
    key of another type; RestoreRefused for a folder without snapshot and for a file that is gone;
    FormatError for bytes that can't be read.
    """
    snapshot = Snapshot.open(path, key_file=key_file)
    found = snapshot.operator(operator)
    info = snapshot.state(found, state)
    if value_type is not None:
        info = replace(info, value_type=value_type)
    elif key is NO_KEY or info.kind.is_keyed:
        info = snapshot.settled(found, info)
    return StateTable(snapshot, found, info, key, key_groups)


class StateTable:
    """A state as a table; made by `read_state`. Reads the snapshot each time, piece by piece.

    info: what the state is. Columns: ``key_group`` (of states without keys ``subtask``), ``key``,
    ``namespace`` where there is one, ``value``, and ``last_access`` where the state expires.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        operator: OperatorInfo,
        info: StateInfo,
        key: object,
        key_groups: Collection[int] | None,
    ) -> None:
        self._snapshot = snapshot
        self._operator = operator
        self._key = key
        self._key_groups = key_groups
        self.info = info

    @property
    def schema(self) -> pa.Schema:
        """Schema of the table and of its batches."""
        return self.info.schema

    def rows(self) -> Iterator[StateRow]:
        """Rows as values of the program; at most one key group is in memory."""
        return self._snapshot.rows(
            self._operator, self.info, key=self._key, key_groups=self._key_groups
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Rows as Arrow batches of at most 65,536; at most one key group is in memory."""
        return self._snapshot.entries(
            self._operator, self.info, key=self._key, key_groups=self._key_groups
        )

    def to_arrow(self) -> pa.Table:
        """The whole table as Arrow, in memory."""
        return pa.Table.from_batches(self.batches(), self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """The whole table as a DataFrame of pandas, in memory; needs pandas."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """The whole table as a DataFrame of polars, in memory; needs polars."""
        import polars as pl

        made = pl.from_arrow(self.to_arrow())
        assert isinstance(made, pl.DataFrame), "a table makes a frame"
        return made
