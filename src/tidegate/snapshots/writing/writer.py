"""Savepoints written offline: state bootstrapped from tables, a bad key repaired.

A new savepoint is a folder of its own, in canonical form, from which a job starts with any state
backend. It is made of rows, of another snapshot, or of both. Nothing counts until its
``_metadata`` stands, which is written last; a failure leaves nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa

from flinkformat.handles import KeyGroupsStateHandle, StateDistribution
from flinkformat.key_groups import DEFAULT_LOWER_BOUND, KeyGroupRange, check_parallelism
from flinkformat.operator_ids import operator_id_of_uid
from flinkformat.snapshots import FINISHED, Finished, OperatorState, SubtaskState
from tidegate.api.state import RedistributionMode
from tidegate.checkpoint.provenance import hook_states, provenance_of
from tidegate.clock import SystemClock
from tidegate.errors import ConfigError, StorageFailed
from tidegate.model.ids import CheckpointId
from tidegate.snapshots.rows import (
    OperatorInfo,
    StateDeclaration,
    StateForm,
    StateKind,
    form_of,
    serializer_read,
)
from tidegate.snapshots.snapshot import Snapshot, likely
from tidegate.snapshots.writing.encoded_rows import BlockSpool, RowsEncoder, spooled
from tidegate.snapshots.writing.new_snapshot import (
    NewElements,
    NewSnapshot,
    NewState,
    OperatorRewrite,
    operator_of,
)
from tidegate.state.format.blocks import StateHeader
from tidegate.state.format.encoding import each_encoded_as_declared
from tidegate.state.user.operator_state import BROADCAST_KIND, LIST_KIND
from tidegate.storage import paths
from tidegate.storage.stores import Stores
from tidegate.typeinfo.arrow import type_of_arrow
from tidegate.typeinfo.hints import declared_key_type, declared_type
from tidegate.typeinfo.key_hash import key_type_of
from tidegate.typeinfo.serializers import serializer_of
from tidegate.typeinfo.types import PICKLED, MapTypeInfo

if TYPE_CHECKING:
    from tidegate.api.state import MapStateDescriptor, OperatorStateDescriptor, StateDescriptor
    from tidegate.model.ids import OperatorId
    from tidegate.snapshots.reading.keyed_streams import KeyedStream
    from tidegate.snapshots.writing.encoded_rows import StateRows
    from tidegate.snapshots.writing.new_snapshot import NewBlocks
    from tidegate.typeinfo.hints import TypeHint
    from tidegate.typeinfo.serializers import Serializer
    from tidegate.typeinfo.types import TypeInformation


class SavepointWriter:
    """Makes a savepoint: ``SavepointWriter.new_savepoint()`` or ``.from_existing(path)``.

    Changes take effect once `write` has written them all. Calls give the writer back, so that they
    can stand in a row. Rows are encoded as they are put, into a temporary file. Leaving it as a
    context manager deletes that file; so does `write`.
    """

    def __init__(self, base: Snapshot | None, max_parallelism: int, parallelism: int) -> None:
        self._base = base
        self._max_parallelism = max_parallelism
        self._parallelism = parallelism
        self._spools: list[BlockSpool] = []
        self._now_ms = SystemClock().wall_ms()
        self._operators: dict[OperatorId, _Operator] = {}
        if base is not None:
            for info, state in zip(base.operators, base.metadata.operators, strict=True):
                self._operators[info.operator_id] = _Operator(info, state)

    @staticmethod
    def new_savepoint(
        *, max_parallelism: int = DEFAULT_LOWER_BOUND, parallelism: int = 1
    ) -> SavepointWriter:
        """Starts an empty savepoint.

        max_parallelism: of its operators; the job has to have the same. parallelism: files that an
        operator's keyed state is written to; the job's may be another. Raises ConfigError if
        they are out of bounds.
        """
        check_parallelism(parallelism, max_parallelism)
        return SavepointWriter(None, max_parallelism, parallelism)

    @staticmethod
    def from_existing(
        path: str | PathLike[str],
        *,
        parallelism: int = 1,
        key_file: str | PathLike[str] | None = None,
    ) -> SavepointWriter:
        """Starts with the content of a checkpoint or savepoint, which stays unchanged.

        parallelism: as in `new_savepoint`, of operators that are new. key_file: holds the key with
        which it has to be signed. Raises as `Snapshot.open`.
        """
        base = Snapshot.open(path, key_file=key_file)
        most = max((each.max_parallelism for each in base.operators), default=DEFAULT_LOWER_BOUND)
        return SavepointWriter(base, most, parallelism)

    def __enter__(self) -> SavepointWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Deletes the temporary files; the writer can't be used afterwards."""
        for spool in self._spools:
            spool.close()
        self._spools.clear()

    def put_state(
        self,
        operator: str,
        state: StateDescriptor | str,
        rows: StateRows,
        *,
        key_type: TypeHint | None = None,
        namespace_type: TypeHint | None = None,
        replace: bool = False,
    ) -> SavepointWriter:
        """Puts rows into a keyed state; each replaces the content of its key and namespace.

        operator: uid; of an operator that the snapshot has, name or id too. state: its name, where
        the snapshot has it, as for timers; else, or where its type is pickled records, its
        descriptor. rows: a dict from key to value, Arrow tables or batches, or `StateRow`, in the
        form that reading gives. A row without a value takes away what its key holds. key_type: of
        an operator without keyed state; else that of the first key. replace: what is not put does
        not stay.

        Raises ConfigError for a state that is not there, a missing column, a key of another type;
        UserError for a value that is not of the declared type.
        """
        if not isinstance(state, str):
            declared = declared_key_type(key_type, where=f"operator '{operator}', key type")
            rows, key_type = _key_found(rows, declared)
        form = self.form(operator, state, key_type=key_type, namespace_type=namespace_type)
        spool = self.encoded(operator, form, rows)
        self._spools.append(spool)
        self.put_blocks(operator, form, spool, replace=replace)
        return self

    def form(
        self,
        operator: str,
        state: StateDescriptor | StateDeclaration | str,
        *,
        key_type: TypeHint | None = None,
        namespace_type: TypeHint | None = None,
    ) -> StateForm:
        """Layout of the rows of a state; arguments as of `put_state`."""
        target = self._operator(operator)
        if isinstance(state, str):
            return self._known(target, state, f"operator '{target}', state '{state}'")
        where = f"operator '{target}', state '{state.name}'"
        if isinstance(state, StateDeclaration):
            declared, values = state, state.values()
        else:
            declared, values = StateDeclaration.of(state, where=where)
        keys = target.known_key(self._base) or serializer_of(
            declared_key_type(key_type, where=where)
        )
        return form_of(declared, values, keys, declared_type(namespace_type, where=where))

    def encoded(self, operator: str, form: StateForm, rows: StateRows) -> BlockSpool:
        """Encodes rows of a state without putting them; to be closed. Raises as `put_state`."""
        target = self._operator(operator)
        where = f"operator '{target}', state '{form.info.name}'"
        encoder = RowsEncoder(form, target.info.max_parallelism, self._now_ms, where)
        return spooled(encoder, rows, form.info, where)

    def put_blocks(
        self, operator: str, form: StateForm, blocks: NewBlocks, *, replace: bool
    ) -> None:
        """Puts encoded rows; other arguments as of `put_state`."""
        target = self._operator(operator)
        target.key = form.keys.snapshot().to_bytes()
        target.put.append(NewState(form.header, blocks, replace))

    def part(
        self, operator: str, form: StateForm, blocks: NewBlocks, folder: str
    ) -> KeyGroupsStateHandle | None:
        """Writes encoded rows to a file of a folder, for another writer to put; None if empty."""
        info = self._operator(operator).info
        key, put = form.keys.snapshot().to_bytes(), NewState(form.header, blocks, replaces=False)
        rewrite = OperatorRewrite(info, self._checkpoint, NewSnapshot(folder), key, (put,))
        return rewrite.keyed(KeyGroupRange(0, info.max_parallelism - 1))

    def put_operator_state(
        self, operator: str, descriptor: OperatorStateDescriptor, elements: Iterable[object]
    ) -> SavepointWriter:
        """Sets a list of the operator, split or union, to these elements. Raises UserError."""
        target = self._operator(operator)
        where = f"operator '{target}', operator state '{descriptor.name}'"
        serializer = serializer_of(descriptor.type_info)
        header = StateHeader(descriptor.name, LIST_KIND, serializer.snapshot().to_bytes())
        mode = StateDistribution.SPLIT_DISTRIBUTE
        if descriptor.mode is RedistributionMode.UNION:
            mode = StateDistribution.UNION
        pieces = each_encoded_as_declared(serializer, list(elements), where)
        target.elements.append(NewElements(header, mode, pieces))
        return self

    def put_broadcast_state(
        self, operator: str, descriptor: MapStateDescriptor, entries: Mapping[Any, Any]
    ) -> SavepointWriter:
        """Sets a broadcast map of the operator to these entries. Raises UserError."""
        target = self._operator(operator)
        where = f"operator '{target}', broadcast state '{descriptor.name}'"
        keys, values = descriptor.type_info, descriptor.value_type_info
        serializer = serializer_of(MapTypeInfo(keys or PICKLED, values or PICKLED))
        header = StateHeader(descriptor.name, BROADCAST_KIND, serializer.snapshot().to_bytes())
        pieces = each_encoded_as_declared(serializer, [dict(entries)], where)
        target.elements.append(NewElements(header, StateDistribution.BROADCAST, pieces))
        return self

    def remove_state(self, operator: str, state: str) -> SavepointWriter:
        """Removes a state. Raises ConfigError if it does not exist or is a column."""
        base, found = self._existing(operator)
        info = base.state(found, state)
        if info.kind in _KEPT:
            raise ConfigError(
                f"The state '{state}' is of kind {info.kind.value}, which can't be removed alone",
                where=f"{base.path}, operator '{found}'",
                remedy="Leave out the whole operator with remove_operator.",
            )
        self._operators[found.operator_id].removed.add(state)
        return self

    def remove_operator(self, operator: str) -> SavepointWriter:
        """Removes an operator. Raises ConfigError if it does not exist."""
        _, found = self._existing(operator)
        del self._operators[found.operator_id]
        return self

    def change_operator_id(self, operator: str, uid: str) -> SavepointWriter:
        """Moves an operator's state to the operator of another uid.

        Raises ConfigError if there is no such operator, or the uid has state already.
        """
        base, found = self._existing(operator)
        becomes = operator_id_of_uid(uid)
        if any(each.info.operator_id == becomes for each in self._operators.values()):
            raise ConfigError(
                f"There is state of the uid '{uid}' already",
                where=f"{base.path}, operator '{found}'",
                remedy="Remove that operator first, or take another uid.",
            )
        target = self._operators[found.operator_id]
        target.info = replace(target.info, operator_id=becomes, uid=uid)
        return self

    def write(
        self, path: str | PathLike[str], *, key_file: str | PathLike[str] | None = None
    ) -> str:
        """Writes the savepoint to a new or empty folder; returns its path, to start a job from.

        key_file: holds the key that signs it.
        Raises ConfigError for a folder that holds anything, RestoreRefused and FormatError for what
        can't be read, StorageFailed. Nothing is left after a failure.
        """
        folder = paths.absolute(fspath(path))
        try:
            check_empty(folder)
            return self.write_over_parts(folder, None if key_file is None else fspath(key_file))
        finally:
            self.close()

    def write_over_parts(self, folder: str, key_file: str | None = None) -> str:
        """Writes to a folder of parts, which are deleted once the savepoint is complete."""
        new = NewSnapshot(folder, key_file)
        store, name = Stores().locate(folder)
        with deleted_on_failure(folder):
            store.make_folder(name)
            written = [self._written(each, new) for each in self._operators.values()]
            base = None if self._base is None else self._base.metadata
            known = None if base is None else provenance_of(base)
            facts = {} if known is None else known.facts
            hooks = () if base is None else hook_states(base)
            new.complete_savepoint(self._checkpoint, written, facts, hooks=hooks, forced=False)
        kept = {paths.METADATA, *map(paths.name, new.checksums)}
        parts = [each.path for each in store.list(name) if paths.name(each.path) not in kept]
        store.delete(parts)
        return folder

    @property
    def _checkpoint(self) -> CheckpointId:
        return CheckpointId(1) if self._base is None else self._base.metadata.checkpoint_id

    def _written(self, target: _Operator, new: NewSnapshot) -> OperatorState:
        state = target.state
        if state is not None and not target.is_touched:
            assert self._base is not None, "what has state came from a snapshot"
            reader = self._base.reader
            copies = {
                index: each if each is FINISHED else new.copied(each, reader)
                for index, each in state.subtasks.items()
            }
            written = replace(operator_of(target.info, copies), subtasks=copies)
            over = state.fully_finished
        else:
            rewrite = self._rewrite(target, new)
            indexes = range(target.info.parallelism)
            subtasks = {index: self._subtask(target, index, rewrite) for index in indexes}
            written, over = operator_of(target.info, subtasks), False
        coordinator = None if state is None else state.coordinator_state
        return replace(written, coordinator_state=coordinator, fully_finished=over)

    def _rewrite(self, target: _Operator, new: NewSnapshot) -> OperatorRewrite:
        kept = target.streams(self._base)
        key = target.key or next((each.key for each in kept if each.key is not None), None)
        return OperatorRewrite(
            target.info, self._checkpoint, new, key, target.put, kept, target.removed
        )

    def _subtask(
        self, target: _Operator, index: int, rewrite: OperatorRewrite
    ) -> SubtaskState | Finished:
        old = None if target.state is None else target.state.subtasks.get(index)
        if old is FINISHED and not target.put and not target.elements:
            return FINISHED
        put = [each.of_subtask(index, target.info.parallelism) for each in target.elements]
        if self._base is None or old is None or old is FINISHED:
            return rewrite.subtask(index, put)
        return rewrite.subtask(index, put, (old, self._base.reader))

    def _operator(self, name: str) -> _Operator:
        if self._base is not None:
            for each in self._base.operators:
                held = self._operators.get(each.operator_id)
                if held is not None and name in (each.uid, each.name, each.operator_id.hex()):
                    return self._operators[self._base.operator(name).operator_id]
        wanted = operator_id_of_uid(name)
        info = OperatorInfo(wanted, name, None, self._parallelism, self._max_parallelism)
        return self._operators.setdefault(wanted, _Operator(info))

    def _existing(self, operator: str) -> tuple[Snapshot, OperatorInfo]:
        if self._base is None:
            raise ConfigError(
                "A savepoint that begins empty has nothing that could be taken away",
                where=f"operator '{operator}'",
                remedy="Begin with SavepointWriter.from_existing(path).",
            )
        return self._base, self._base.operator(operator)

    def _known(self, target: _Operator, state: str, where: str) -> StateForm:
        if self._base is None or target.state is None:
            names = [] if self._base is None else [str(each) for each in self._base.operators]
            other = f" Of operators: {likely(target.info.uid or '', names)}" if names else ""
            raise ConfigError(
                f"The state '{state}' does not exist yet, so its type is unknown",
                where=where,
                remedy=f"Put it with its descriptor, as the job has it.{other}",
            )
        operator = target.state.operator_id.hex()
        kind = self._base.state(operator, state).kind
        if kind is StateKind.COLUMN or not kind.is_keyed:
            raise ConfigError(
                f"The state '{state}' is of kind {kind.value}, which takes no rows",
                where=where,
                remedy="Use put_operator_state or put_broadcast_state; columns can't be written.",
            )
        return self._base.form(operator, state)


def begin_savepoint(
    base: str | PathLike[str] | None = None,
    *,
    parallelism: int = 1,
    max_parallelism: int = DEFAULT_LOWER_BOUND,
    key_file: str | PathLike[str] | None = None,
) -> SavepointWriter:
    """A writer that starts empty, or with the content of the snapshot in the folder `base`.

    max_parallelism: only counts where it begins empty; key_file: only where it does not. Otherwise
    as `SavepointWriter.new_savepoint` and `SavepointWriter.from_existing`.

    >>> writer = begin_savepoint().put_state("counts", descriptor, {"a": 1})
    >>> path = writer.write("savepoints/first")
    """
    if base is not None:
        return SavepointWriter.from_existing(base, parallelism=parallelism, key_file=key_file)
    return SavepointWriter.new_savepoint(max_parallelism=max_parallelism, parallelism=parallelism)


@dataclass(slots=True)
class _Operator:
    """An operator of the savepoint. state: from the snapshot. key: type of the new keys."""

    info: OperatorInfo
    state: OperatorState | None = None
    key: bytes | None = None
    put: list[NewState] = field(default_factory=list[NewState])
    elements: list[NewElements] = field(default_factory=list[NewElements])
    removed: set[str] = field(default_factory=set[str])

    @property
    def is_touched(self) -> bool:
        """True if it must be rewritten: it has new state, or state not in a stream of blocks."""
        if self.put or self.elements or self.removed or self.state is None:
            return True
        states = (each for each in self.state.subtasks.values() if each is not FINISHED)
        keyed = (each.managed_keyed for each in states if each.managed_keyed is not None)
        return not all(isinstance(each, KeyGroupsStateHandle) for each in keyed)

    def streams(self, base: Snapshot | None) -> list[KeyedStream]:
        if base is None or self.state is None:
            return []
        return base.keyed_streams(self.state.operator_id.hex())

    def known_key(self, base: Snapshot | None) -> Serializer | None:
        snapshots = (self.key, *(each.key for each in self.streams(base)))
        known = next((each for each in snapshots if each is not None), None)
        return None if known is None else serializer_read(known)

    def __str__(self) -> str:
        return str(self.info)


@contextmanager
def deleted_on_failure(folder: str) -> Generator[None]:
    """Deletes the folder of a new savepoint if the block raises."""
    try:
        yield
    except BaseException:
        discard_folder(folder)
        raise


def discard_folder(folder: str) -> None:
    store, name = Stores().locate(folder)
    with suppress(StorageFailed):
        store.delete_folder(name)


def check_empty(folder: str) -> None:
    """Raises ConfigError if a folder for a new savepoint holds anything."""
    store, name = Stores().locate(folder)
    found = next(iter(store.list(name)), None) if store.is_folder(name) else store.info(name)
    if found is not None:
        raise ConfigError(
            f"The folder of the new savepoint is not empty: it holds {paths.name(found.path)}",
            where=folder,
            remedy="Name a new folder; a snapshot that is there is not changed.",
        )


def _key_found(
    rows: StateRows, declared: TypeInformation | None
) -> tuple[StateRows, TypeInformation]:
    """Rows, and the type of their keys: if undeclared, that of the first key."""
    if declared is not None:
        return rows, declared
    if isinstance(rows, Mapping):
        first = next(iter(cast("Mapping[Any, Any]", rows)), None)
        return rows, PICKLED if first is None else key_type_of(first)
    if isinstance(rows, pa.Table):
        return rows, _type_of_column(cast("Any", rows).schema)
    each = iter(cast("Iterable[Any]", rows))
    found = next(each, None)
    if found is None:
        return (), PICKLED
    again = cast("StateRows", chain([found], each))
    if isinstance(found, pa.RecordBatch):
        return again, _type_of_column(found.schema)
    return again, key_type_of(found.key)


def _type_of_column(schema: pa.Schema) -> TypeInformation:
    return type_of_arrow(schema.field("key").type) if "key" in schema.names else PICKLED


_KEPT: Final = (StateKind.COLUMN, StateKind.INPUT_CHANNELS, StateKind.OUTPUT_CHANNELS)
