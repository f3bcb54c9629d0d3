"""A snapshot opened for reading: its operators, their states, and the states' content.

Nothing of the program is needed, save the classes of what was pickled. Whatever wrote a state (rows
in memory or on disk, columns, timers, lists of a subtask, data in flight) comes as rows of Python
values or as Arrow batches of one form.
"""

from __future__ import annotations

import difflib
from dataclasses import replace
from functools import cached_property
from itertools import islice
from os import PathLike, fspath
from typing import TYPE_CHECKING, Final

from flinkformat.handles import FileStateHandle
from flinkformat.snapshots import FINISHED
from flinkformat.state_streams import streams
from tidegate.checkpoint.provenance import checksums_of, name_of
from tidegate.errors import ConfigError, UserError
from tidegate.model.files import checksum_name
from tidegate.snapshots.folders import files_of, job_name_of, read_snapshot
from tidegate.snapshots.reading.keyed_states import KeyedStates
from tidegate.snapshots.reading.subtask_states import SubtaskStates
from tidegate.snapshots.rows import OperatorInfo, Rows, StateInfo, StateKind, StateRow
from tidegate.storage.reading import StateReader
from tidegate.storage.state_files import StateFiles
from tidegate.typeinfo.hints import type_of_values
from tidegate.typeinfo.types import PICKLED, holds_pickled

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import pyarrow as pa

    from flinkformat.snapshots import CheckpointMetadata, OperatorState
    from tidegate.model.ids import OperatorId
    from tidegate.snapshots.reading.keyed_streams import KeyedStream
    from tidegate.snapshots.rows import StateForm
    from tidegate.typeinfo.types import TypeInformation

__all__ = ["OperatorInfo", "Snapshot", "StateInfo", "StateKind", "StateRow"]

ROWS_A_BATCH: Final = 65_536
"""Rows of an Arrow batch at most."""

_SAMPLE: Final = 10_000
"""Undeclared values that are looked at for what type they have."""


class _NoKey:
    """Marks a missing key, since None may be a key."""


NO_KEY: Final = _NoKey()


class Snapshot:
    """A checkpoint or savepoint, open for reading; made by `Snapshot.open`.

    Nothing is read but ``_metadata`` until it is asked for, unless it has to be signed, and nothing
    is kept of values. path: its folder. Operators are named by uid, by name or by operator id in
    hexadecimal digits.
    """

    def __init__(
        self, path: str, metadata: CheckpointMetadata, key_file: str | None = None
    ) -> None:
        self.path = path
        self.metadata = metadata
        self._files = StateFiles(signed=key_file is not None)
        known = checksums_of(metadata)
        names = {checksum_name(stream.handle) for stream in streams(metadata)}
        self._places = {
            place: known[name_of(place)] for place in names if place and name_of(place) in known
        }
        self._reader = StateReader(self._files, self._places)
        self._states: dict[OperatorId, _OperatorStates] = {}

    @staticmethod
    def open(path: str | PathLike[str], *, key_file: str | PathLike[str] | None = None) -> Snapshot:
        """Opens the snapshot in a folder; path: the folder, or the ``_metadata`` in it.

        key_file: holds the key with which it has to be signed; then all its files are read once.
        Raises RestoreRefused if there is no folder, or no ``_metadata`` in it, as in one that
        was never completed, or it is not signed so; FormatError for bytes that are none, or of a
        newer version.
        """
        signed_by = None if key_file is None else fspath(key_file)
        snapshot = Snapshot(*read_snapshot(fspath(path), signed_by), signed_by)
        if signed_by is not None:
            snapshot._check_files()
        return snapshot

    def _check_files(self) -> None:
        for place in files_of(self.path, self.metadata):
            known = self._places.get(place)
            for _ in self._reader.parts(FileStateHandle(place, 0 if known is None else known.size)):
                pass

    @cached_property
    def operators(self) -> tuple[OperatorInfo, ...]:
        """All operators, including those without state."""
        return tuple(
            OperatorInfo(
                each.operator_id, each.uid, each.name, each.parallelism, each.max_parallelism
            )
            for each in self.metadata.operators
        )

    def _repr_html_(self) -> str:
        """Operators and states as a table, in notebooks."""
        from tidegate.graph.html import paragraph, table  # a notebook alone asks for it

        rows = [
            (operator, operator.parallelism, one.name, one.kind.value, one.key_type, one.value_type)
            for operator in self.operators
            for one in self.states(operator)
        ]
        head = ("operator", "subtasks", "state", "kind", "key", "value")
        return paragraph(repr(self)) + table(head, rows)

    @property
    def job_name(self) -> str | None:
        """Name of the job that wrote it; None if Flink did."""
        return job_name_of(self.metadata)

    def operator(self, name: str | OperatorInfo) -> OperatorInfo:
        """The operator of a uid, name or id. Raises ConfigError that suggests a similar one."""
        if isinstance(name, OperatorInfo):
            return name
        for field in ("uid", "name", "operator_id"):
            found = [each for each in self.operators if _named(each, field) == name]
            if len(found) == 1:
                return found[0]
            if found:
                ids = ", ".join(each.operator_id.hex() for each in found)
                raise ConfigError(
                    f"{len(found)} operators of the snapshot have the {field} '{name}'",
                    where=self.path,
                    remedy=f"Name the one that is meant by its id: {ids}.",
                )
        names = [str(each) for each in self.operators]
        raise ConfigError(
            f"The snapshot has no operator '{name}'", where=self.path, remedy=likely(name, names)
        )

    def states(self, operator: str | OperatorInfo) -> tuple[StateInfo, ...]:
        """States of an operator. Reads headers of files.

        Raises ConfigError for no such operator, RestoreRefused where a file is gone or the state is
        none of ours, FormatError, StorageFailed.
        """
        return tuple(self._of(self.operator(operator)).infos.values())

    def state(self, operator: str | OperatorInfo, state: str | StateInfo) -> StateInfo:
        """A state by its name. Raises ConfigError that suggests a similar one."""
        if isinstance(state, StateInfo):
            return state
        found = self.operator(operator)
        infos = self._of(found).infos
        if state not in infos:
            raise ConfigError(
                f"The operator '{found}' has no state '{state}'",
                where=self.path,
                remedy=likely(state, list(infos)),
            )
        return infos[state]

    def rows(
        self,
        operator: str | OperatorInfo,
        state: str | StateInfo,
        *,
        key_groups: Collection[int] | None = None,
        key: object = NO_KEY,
    ) -> Iterator[StateRow]:
        """Rows of a state, as values of the program.

        A dataclass or NamedTuple comes as one of the same name and fields, save where it was
        pickled: then its class has to be importable. key_groups: only these. key: only this one.
        Raises as `states`, and UserError where a pickled class is missing.
        """
        found = self.operator(operator)
        info = self.state(found, state)
        for run in self.runs(found, info, key_groups=key_groups, key=key):
            yield from run.each()

    def entries(
        self,
        operator: str | OperatorInfo,
        state: str | StateInfo,
        *,
        key_groups: Collection[int] | None = None,
        key: object = NO_KEY,
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a state as Arrow batches of at most ROWS_A_BATCH rows.

        Of the schema of a StateInfo that is given, else of `settled`.
        """
        found = self.operator(operator)
        info = state if isinstance(state, StateInfo) else self.settled(found, state)
        where = f"{self.path}, operator '{found}', state '{info.name}'"
        for run in self.runs(found, info, key_groups=key_groups, key=key):
            batch = run.batch(info, where)
            for start in range(0, len(batch), ROWS_A_BATCH):
                yield batch.slice(start, ROWS_A_BATCH)

    def splits(
        self, operator: str | OperatorInfo, state: str | StateInfo, *, bytes_max: int
    ) -> list[range]:
        """Runs of key groups that can be read in parallel; empty for state without key groups.

        bytes_max: of all the operator's keyed state in a run, about.
        """
        found = self.operator(operator)
        if not self.state(found, state).kind.is_keyed:
            return []
        return self._of(found).keyed.splits(bytes_max)

    def settled(self, operator: str | OperatorInfo, state: str | StateInfo) -> StateInfo:
        """A state with the common type of its undeclared values, as in `entries`.

        Looks at the first 10,000 of them; they stay pickled where these have no type in common.
        """
        found = self.operator(operator)
        info = self.state(found, state)
        changed: dict[str, TypeInformation] = {}
        for name in ("value", "namespace"):
            declared: TypeInformation | None = getattr(info, f"{name}_type")
            if declared is not None and holds_pickled(declared):
                rows = islice(self.rows(found, info), _SAMPLE)
                settled = type_of_values(getattr(row, name) for row in rows)
                if settled != PICKLED:
                    changed[f"{name}_type"] = settled
        return replace(info, **changed)

    def form(self, operator: str | OperatorInfo, state: str | StateInfo) -> StateForm:
        """Layout of a keyed state, for writing more of it. Raises ConfigError if it is empty."""
        found = self.operator(operator)
        return self._of(found).keyed.form(self.settled(found, state))

    def content(self, operator: OperatorInfo) -> OperatorState:
        """Handles of an operator of the snapshot."""
        return self.metadata.operators[self.operators.index(operator)]

    def keyed_streams(self, operator: str | OperatorInfo) -> list[KeyedStream]:
        """Raw keyed state of an operator."""
        return self._of(self.operator(operator)).keyed.streams()

    @property
    def reader(self) -> StateReader:
        """Reader of the snapshot's handles."""
        return self._reader

    def _of(self, operator: OperatorInfo) -> _OperatorStates:
        if operator.operator_id not in self._states:
            state = self.content(operator)
            where = f"{self.path}, operator '{operator}'"
            self._states[operator.operator_id] = _OperatorStates(
                state, self._files, self._reader.at(where), where
            )
        return self._states[operator.operator_id]

    def runs(
        self,
        operator: OperatorInfo,
        info: StateInfo,
        *,
        key_groups: Collection[int] | None = None,
        key: object = NO_KEY,
    ) -> Iterator[Rows]:
        """Rows as `rows` gives them, many at a time."""
        states = self._of(operator)
        where = f"{self.path}, operator '{operator}', state '{info.name}'"
        if (key_groups is not None or key is not NO_KEY) and not info.kind.is_keyed:
            raise ConfigError(
                f"The state '{info.name}' is of kind {info.kind.value}, which has no key groups",
                where=where,
                remedy="Read all of it.",
            )
        try:
            if not info.kind.is_keyed:
                yield from states.subtasks.rows(info)
            elif key is NO_KEY:
                yield from states.keyed.rows(info, key_groups)
            else:
                group, wanted = states.keyed.place_of(info, key)
                if key_groups is None or group in key_groups:
                    for run in states.keyed.rows(info, (group,)):
                        yield run.only(wanted)
        except UserError as error:
            error.where = where
            raise


class _OperatorStates:
    def __init__(
        self, state: OperatorState, files: StateFiles, reader: StateReader, where: str
    ) -> None:
        subtasks = {i: each for i, each in state.subtasks.items() if each is not FINISHED}
        self.keyed = KeyedStates(subtasks, state.max_parallelism, files, reader, where)
        self.subtasks = SubtaskStates(subtasks, reader, where)

    @cached_property
    def infos(self) -> Mapping[str, StateInfo]:
        return {**self.keyed.infos, **self.subtasks.infos}


def _named(operator: OperatorInfo, field: str) -> str | None:
    value = getattr(operator, field)
    return value.hex() if isinstance(value, bytes) else value


def likely(wanted: str, names: Sequence[str]) -> str:
    """Suggestion for a name that does not exist."""
    close = difflib.get_close_matches(wanted, names, n=1)
    meant = f"'{close[0]}' may be meant; " if close else ""
    there = ", ".join(f"'{name}'" for name in names) or "none"
    return f"{meant}there are: {there}." if meant else f"There are: {there}."
