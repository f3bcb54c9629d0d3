"""Snapshots in folders, as jobs leave them, without a job: one operator, any parallelism."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flinkformat import metadata
from flinkformat.handles import ChangelogStateBackendHandle, IncrementalRemoteKeyedStateHandle
from flinkformat.snapshots import (
    CheckpointMetadata,
    CheckpointProperties,
    OperatorState,
    SavepointFormatType,
    SavepointType,
    SubtaskState,
)
from tests.state.disk_world import Disk
from tests.state.files_world import Driver
from tests.state.world import MAX_PARALLELISM, Subtask
from tidegate.checkpoint.provenance import Provenance, to_master_state
from tidegate.model.elements import CheckpointOptions, SnapshotKind
from tidegate.model.ids import (
    Attempt,
    CheckpointId,
    Epoch,
    ExecutionId,
    OperatorId,
    SubtaskId,
    VertexId,
)
from tidegate.model.settings import ChangelogSettings, CheckpointSettings
from tidegate.state.log.changelog import ChangeLog

if TYPE_CHECKING:
    from tidegate.state.scope import StateScope
    from tidegate.typeinfo.types import TypeInformation

UID = "counts-uid"
NAME = "counts"
FORMS = (
    "hashmap",
    "compressed",
    "incremental",
    "rocksdb",
    "canonical",
    "changelog",
    "changelog on disk",
)
"""How keyed state can have been written."""

EACH_FORM = [
    pytest.param(form, marks=() if form in ("hashmap", "incremental") else pytest.mark.slow)
    for form in FORMS
]

ON_DISK = ("rocksdb", "canonical", "changelog on disk")
EXECUTION = ExecutionId(SubtaskId(VertexId("0" * 32), 0), Epoch(1), Attempt(0))

Fill = Callable[[Subtask], None]


class Snapshots:
    """Writes snapshots of one operator. form: of FORMS."""

    def __init__(self, folder: Path, form: str = "hashmap") -> None:
        self._folder = folder
        self._form = form
        self._disk = Disk() if form in ON_DISK else None
        self._numbers = iter(range(1, 1000))
        self._bits = iter(range(1 << 40, 1 << 41))
        settings = CheckpointSettings(
            storage="filesystem", directory=str(folder / "job"), inline_threshold_bytes=16
        )
        self.driver = Driver(settings)

    def close(self) -> None:
        if self._disk is not None:
            self._disk.close()

    def subtasks(
        self,
        parallelism: int = 1,
        *,
        key_type: TypeInformation | None = None,
        max_parallelism: int = MAX_PARALLELISM,
    ) -> list[Subtask]:
        return [
            Subtask(
                index,
                parallelism,
                key_type=key_type,
                max_parallelism=max_parallelism,
                compression=self._form == "compressed",
                shared_as="backend" if self._form == "incremental" else None,
                local=None if self._disk is None else self._disk.local(),
                log=self._log if self._form.startswith("changelog") else None,
            )
            for index in range(parallelism)
        ]

    def _log(self, scope: StateScope) -> ChangeLog:
        return ChangeLog(
            scope,
            ChangelogSettings(),
            lambda sharing: self.driver.storage.shared_place(
                EXECUTION, lambda: next(self._bits), sharing
            ),
            lambda call: call(),
        )

    def written(self, subtasks: Sequence[Subtask]) -> Path:
        """A snapshot of subtasks as they are; its folder."""
        number = next(self._numbers)
        states = {i: self._state(each, number) for i, each in enumerate(subtasks)}
        most = subtasks[0].backend.scope.max_parallelism
        operator = self.operator(states, len(subtasks), max_parallelism=most)
        return self.published([operator], number)

    def operator(
        self,
        states: Mapping[int, SubtaskState],
        parallelism: int,
        *,
        max_parallelism: int = MAX_PARALLELISM,
    ) -> OperatorState:
        """The operator with the states of its subtasks."""
        return OperatorState(
            operator_id=OperatorId(bytes(16)),
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            name=NAME,
            uid=UID,
            subtasks={i: each for i, each in states.items() if not each.is_empty},
        )

    def published(self, operators: Sequence[OperatorState], number: int = 1) -> Path:
        """The folder of a snapshot of these operators."""
        provenance = Provenance({"job_name": "test"}, self.driver.checksums)
        kind = SavepointType.savepoint(SavepointFormatType.CANONICAL)
        whole = CheckpointMetadata(
            checkpoint_id=CheckpointId(number),
            operators=tuple(operators),
            master_states=(to_master_state(provenance),),
            properties=CheckpointProperties.for_savepoint(kind, forced=False),
        )
        location = self._location(number)
        self.driver.storage.files.write_metadata(location, metadata.encode(whole))
        return Path(location)

    def _location(self, number: int) -> str:
        if self._form != "canonical":
            return self.driver.storage.location(CheckpointId(number))
        folder = self._folder / f"savepoint-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder)

    def _state(self, subtask: Subtask, number: int) -> SubtaskState:
        canonical = self._form == "canonical"
        kind = SnapshotKind.CHECKPOINT if not canonical else SnapshotKind.SAVEPOINT
        options = CheckpointOptions(kind=kind)
        if canonical:
            options = replace(options, target=self._location(number), canonical=True)
        pending = subtask.backend.snapshot(CheckpointId(number), options)
        pending.finish()
        place = self.driver.place(number, kind, target=options.target)
        state = pending.upload(place)
        pending.acknowledged()
        place.close()
        self.driver.checksums.update(place.checksums)
        subtask.backend.on_complete(CheckpointId(number))
        base = subtask.backend.materialize() if number % 2 else None
        if base is not None:
            base.encode(1e9)
            base.write()
            base.take()
        keyed = state.managed_keyed
        if isinstance(keyed, IncrementalRemoteKeyedStateHandle | ChangelogStateBackendHandle):
            return self.driver.registry.register_state(state, CheckpointId(number), place.checksums)
        return state


@contextmanager
def snapshots(folder: Path, form: str = "hashmap") -> Iterator[Snapshots]:
    """Closed at the end."""
    made = Snapshots(folder, form)
    try:
        yield made
    finally:
        made.close()
