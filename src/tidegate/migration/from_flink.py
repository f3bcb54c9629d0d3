"""Converts a snapshot of Flink to a savepoint of Tidegate, operator by operator, and reports.

Java's state is taken as its serializers say. State of PyFlink is bytes of its coders under rows of
one field: descriptors, as the job has them, say what they are, and its keys, which here are the
user's own, get new key groups. State that can't be converted is reported."""

from __future__ import annotations

from collections import Counter
from os import PathLike, fspath
from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from flinkformat.handles import StateDistribution
from flinkformat.operator_ids import operator_id_of_uid
from flinkformat.snapshots import FINISHED
from tidegate.checkpoint.provenance import hook_states
from tidegate.errors import ConfigError, FormatError, UnsupportedKey
from tidegate.migration.declarations import proposal
from tidegate.migration.pyflink import PREFIX, is_python_state
from tidegate.migration.taken import TakenKeyedState, TakenOperator, TakenOperatorState, told
from tidegate.migration.translations import NotTaken, Translation, operator_translation_of
from tidegate.migration.types import Keys, MisplacedKey
from tidegate.model.versions import versions
from tidegate.snapshots.flink_snapshot import FlinkSnapshot
from tidegate.snapshots.rows import OperatorInfo
from tidegate.snapshots.snapshot import likely
from tidegate.snapshots.writing.new_snapshot import NewSnapshot
from tidegate.snapshots.writing.writer import check_empty, deleted_on_failure
from tidegate.storage import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from flinkformat.snapshots import OperatorState
    from flinkformat.state.operator_state import FlinkOperatorState
    from flinkformat.state.reading import FlinkKeyedState
    from tidegate.api.state import StateDescriptor
    from tidegate.model.ids import CheckpointId


@frozen
class MigratedState:
    """Fate of a state in a migration.

    operator: its uid, else its name or id. kind, type: as it is here; None if it was not taken.
    entries: keys, timers, elements or map entries of it. why: it was not taken, else None. hint:
    what would have it taken, as far as there is something.
    """

    operator: str
    state: str
    kind: str | None
    type: str | None
    entries: int
    why: str | None = None
    hint: str | None = None

    @property
    def taken(self) -> bool:
        """True if the state is in the savepoint."""
        return self.why is None


@frozen
class MigrationReport:
    """Report of a migration. target: None if nothing was to be written."""

    source: str
    target: str | None
    states: tuple[MigratedState, ...]

    @property
    def complete(self) -> bool:
        """True if all state of the snapshot is in the savepoint."""
        return all(state.taken for state in self.states)

    def to_json(self) -> dict[str, object]:
        """The report as values of JSON."""
        names = ("operator", "state", "kind", "type", "entries", "taken", "why", "hint")
        states = [{name: getattr(state, name) for name in names} for state in self.states]
        return {
            "source": self.source,
            "target": self.target,
            "complete": self.complete,
            "states": states,
        }


def migrate_savepoint(
    source: str | PathLike[str],
    target: str | PathLike[str] | None,
    *,
    states: Mapping[str, Iterable[StateDescriptor]] | None = None,
    uids: Mapping[str, str] | None = None,
    moved: Mapping[str, str] | None = None,
    key_file: str | PathLike[str] | None = None,
    on_operator: Callable[[str], object] = lambda _: None,
) -> MigrationReport:
    """Converts a savepoint or checkpoint of Flink to a savepoint in canonical form.

    target: the new savepoint's folder; None only to see what would be taken. states: what a PyFlink
    job has declared, by the uid of the operator in the snapshot; Java's states need none. uids:
    from an operator's uid in the snapshot to that in the new job; others keep theirs. moved: from a
    folder as a checkpoint names it to where that is now. Max parallelism is kept. Pickled keys and
    values are unpickled, so their classes have to be importable, and the snapshot be trusted.
    key_file: holds the key that signs the new savepoint. on_operator: told what follows, such as
    "reading 'orders'". All state is held in memory, and nothing is written before all has been
    read.

    Raises RestoreRefused if there is no snapshot or a file of it is missing, FormatError for a
    ``_metadata`` that can't be read, ConfigError for operators and states that are not there, for a
    snapshot of Tidegate's own and for a target that is not empty, StorageFailed. Nothing is left in
    the target after a failure.
    """
    if target is not None:
        check_empty(paths.absolute(fspath(target)))
    snapshot = FlinkSnapshot.open(source, moved=moved)
    declared = {uid: {each.name: each for each in given} for uid, given in (states or {}).items()}
    names = {_named(operator): operator for operator in snapshot.operators}
    for wanted in (*declared, *(uids or {})):
        if wanted not in names:
            raise _no_such("operator", wanted, list(names), snapshot.path)
    migrations: list[_Migration] = []
    operators: list[TakenOperator] = []
    for name, operator in names.items():
        on_operator(f"reading '{name}'")
        migration = _Migration(snapshot, operator, declared.get(name, {}), (uids or {}).get(name))
        migrations.append(migration)
        if (made := migration.operator()) is not None:
            operators.append(made)
    ids = [operator.info.operator_id for operator in operators]
    if len(set(ids)) != len(ids):
        raise ConfigError(
            "Two operators would have one uid",
            where=snapshot.path,
            remedy="Give each operator of the snapshot a uid of its own in the new job.",
        )
    rows = [row for each in migrations for row in each.rows]
    for hook in hook_states(snapshot.metadata):
        why = "it is state of a hook of Flink's job master"
        rows.append(MigratedState("-", hook.name, None, None, 1, why))
    if target is not None:
        folder = paths.absolute(fspath(target))
        new = NewSnapshot(folder, None if key_file is None else fspath(key_file))
        with deleted_on_failure(folder):
            _write(new, snapshot.metadata.checkpoint_id, operators, on_operator)
    return MigrationReport(snapshot.path, None if target is None else fspath(target), tuple(rows))


def _write(
    new: NewSnapshot,
    checkpoint: CheckpointId,
    operators: Iterable[TakenOperator],
    on_operator: Callable[[str], object],
) -> None:
    written: list[OperatorState] = []
    for each in operators:
        on_operator(f"writing '{each.info}'")
        written.append(each.write(checkpoint, new))
    new.complete_savepoint(checkpoint, written, {"versions": versions()}, forced=True)


def _named(operator: OperatorState) -> str:
    return operator.uid or operator.operator_id.hex()


class _Migration:
    def __init__(
        self,
        snapshot: FlinkSnapshot,
        operator: OperatorState,
        declared: Mapping[str, StateDescriptor],
        new_uid: str | None,
    ) -> None:
        self._snapshot = snapshot
        self._operator = operator
        self._declared = declared
        self._new_uid = new_uid
        self.rows: list[MigratedState] = []

    def operator(self) -> TakenOperator | None:
        operator = self._operator
        parts = self._keyed_parts()
        subtasks = self._subtasks()
        self._check_declared(parts, subtasks)
        keys = self._keys(parts)
        keyed = [] if keys is None else self._keyed(parts, keys)
        lists = self._operator_states(subtasks)
        self._other_state()
        if not keyed and not any(lists.values()):
            return None
        uid = self._new_uid
        info = OperatorInfo(
            operator.operator_id if uid is None else operator_id_of_uid(uid),
            uid or operator.uid,
            operator.name,
            operator.parallelism,
            operator.max_parallelism,
        )
        return TakenOperator(info, None if keys is None else keys.type_info, keyed, lists)

    def _report(
        self, state: str, entries: int, taken: Translation | None, why: str = "", hint: str = ""
    ) -> None:
        kind = None if taken is None else taken.kind
        type_ = None if taken is None else str(taken.type_info or "pickled")
        self.rows.append(
            MigratedState(
                _named(self._operator), state, kind, type_, entries, why or None, hint or None
            )
        )

    def _keyed_parts(self) -> list[FlinkKeyedState]:
        try:
            return list(self._snapshot.keyed_state(self._operator))
        except FormatError as error:
            self._report("keyed state", 0, None, error.what)
            return []

    def _subtasks(self) -> dict[int, list[FlinkOperatorState]]:
        try:
            return dict(self._snapshot.operator_state(self._operator))
        except FormatError as error:
            self._report("operator state", 0, None, error.what)
            return {}

    def _keys(self, parts: list[FlinkKeyedState]) -> Keys | None:
        if not parts:
            return None
        where = f"{self._snapshot.path}, operator '{_named(self._operator)}', keys"
        try:
            return Keys(parts[0].header.key, self._operator.max_parallelism, where)
        except (UnsupportedKey, ValueError) as error:
            self._report("keyed state", 0, None, told(error))
            return None

    def _check_declared(
        self, parts: list[FlinkKeyedState], subtasks: dict[int, list[FlinkOperatorState]]
    ) -> None:
        there = [state for part in parts for state in part.header.states]
        there += [each.state for states in subtasks.values() for each in states]
        names = {s.name.removeprefix(PREFIX) for s in there if is_python_state(s)}
        for wanted in self._declared:
            if wanted not in names:
                where = f"{self._snapshot.path}, operator '{_named(self._operator)}'"
                raise _no_such("state of PyFlink", wanted, sorted(names), where)

    def _keyed(self, parts: list[FlinkKeyedState], keys: Keys) -> list[TakenKeyedState]:
        states = {state.name: state for part in parts for state in part.header.states}
        taking = {name: TakenKeyedState(state, self._declared) for name, state in states.items()}
        keyed: list[TakenKeyedState] = []
        try:
            for entry in (entry for part in parts for entry in part.entries()):
                taking[entry.state.name].take(entry, keys)
            keyed += [each for each in taking.values() if each.is_taken(keys)]
        except (FormatError, UnsupportedKey, MisplacedKey) as error:
            for each in taking.values():
                each.refusal = each.refusal or error
        for each in taking.values():
            self._report_keyed(each)
        return keyed

    def _report_keyed(self, taking: TakenKeyedState) -> None:
        name = taking.state.name.removeprefix(PREFIX)
        if taking.refusal is None:
            if taking.count:
                self._report(name, taking.count, taking.translation)
        elif taking.count or not isinstance(taking.refusal, NotTaken):
            hint = ""
            if is_python_state(taking.state) and taking.samples:
                hint = proposal(_named(self._operator), taking.state, taking.samples)
            self._report(name, taking.count, None, told(taking.refusal), hint)

    def _operator_states(
        self, subtasks: dict[int, list[FlinkOperatorState]]
    ) -> dict[int, list[TakenOperatorState]]:
        taken: dict[int, list[TakenOperatorState]] = {}
        refused: dict[str, tuple[Exception, FlinkOperatorState]] = {}
        counts: Counter[str] = Counter()
        made: dict[str, Translation] = {}
        for index, states in subtasks.items():
            for each in states:
                name = each.state.name
                is_map = each.mode is StateDistribution.BROADCAST
                counts[name] += sum(map(len, each.elements)) if is_map else len(each.elements)
                try:
                    made[name] = operator_translation_of(each, self._declared)
                    taken.setdefault(index, []).append(_operator_state(each, made[name]))
                except (NotTaken, ValueError, FormatError) as error:
                    refused[name] = (error, each)
        for name, count in counts.items():
            shown = name.removeprefix(PREFIX)
            if name not in refused:
                self._report(shown, count, made[name])
            elif count:
                error, each = refused[name]
                hint = ""
                if is_python_state(each.state):
                    hint = proposal(_named(self._operator), each.state, each.elements)
                self._report(shown, count, None, told(error), hint)
        return {
            index: [each for each in states if PREFIX + each.made.name not in refused]
            for index, states in taken.items()
        }

    def _other_state(self) -> None:
        operator = self._operator
        if operator.fully_finished:
            self._report("-", 0, None, "it had finished, and would run again from its beginning")
        if operator.coordinator_state is not None:
            self._report("coordinator", 1, None, "it is state of a coordinator of Flink's own")
        running = [each for each in operator.subtasks.values() if each is not FINISHED]
        kinds = (
            ("raw keyed state", sum(each.raw_keyed is not None for each in running)),
            ("raw operator state", sum(each.raw_operator is not None for each in running)),
            ("in-flight data", sum(len(e.input_channel + e.result_subpartition) for e in running)),
        )
        for name, count in kinds:
            if count:
                self._report(name, count, None, "only its writer knows what its bytes are")


def _operator_state(found: FlinkOperatorState, made: Translation) -> TakenOperatorState:
    elements = list(map(made.convert, found.elements))
    return TakenOperatorState(made, found.mode, elements)


def _no_such(what: str, wanted: str, names: Sequence[str], where: str) -> ConfigError:
    return ConfigError(
        f"There is no {what} '{wanted}' in the snapshot",
        where=where,
        remedy=likely(wanted, names),
    )
