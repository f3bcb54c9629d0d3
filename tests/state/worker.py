"""A process with state in a test: takes a snapshot and works on until it is killed, or restores.

python -m tests.state.worker take FOLDER · restore FOLDER
"""

import itertools
import json
import pickle
import sys
from pathlib import Path
from typing import Any

from tests.state.world import Subtask
from tidegate.api.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateDescriptor,
    RedistributionMode,
    ValueStateDescriptor,
)
from tidegate.model.ids import CheckpointId, JobId
from tidegate.model.restore import RestoredOperatorState
from tidegate.model.settings import CheckpointSettings
from tidegate.storage.checkpoints import CheckpointStorage
from tidegate.storage.memory import MemoryFiles
from tidegate.storage.reading import StateReader
from tidegate.storage.stores import Stores
from tidegate.storage.streams import CheckpointStateOutputStream
from tidegate.typeinfo.types import Types

KEYED = (
    ValueStateDescriptor("count", Types.LONG()),
    ListStateDescriptor("seen"),
    MapStateDescriptor("by name", Types.STRING(), Types.LONG()),
)
LISTS = (
    OperatorStateDescriptor("split"),
    OperatorStateDescriptor("union", Types.LONG(), RedistributionMode.UNION),
)
RULES = MapStateDescriptor("rules")


def main(command: str, folder: Path) -> None:
    subtask = Subtask()
    stores = Stores(MemoryFiles())
    settings = CheckpointSettings(
        storage="filesystem", directory=str(folder), inline_threshold_bytes=0
    )
    storage = CheckpointStorage(JobId("0" * 32), settings, stores)
    if command == "restore":
        state: RestoredOperatorState = pickle.loads((folder / "handles").read_bytes())
        subtask.backend.restore(state, StateReader(storage.files, {}))
        print(json.dumps(dump(subtask)), flush=True)
        return
    work(subtask, range(1000))
    pending = subtask.backend.snapshot(CheckpointId(1))
    at_barrier = dump(subtask)
    work(subtask, range(500, 1500))
    pending.finish()
    written = pending.upload(Place(storage))
    restored = RestoredOperatorState(
        managed_keyed=(written.managed_keyed,), managed_operator=(written.managed_operator,)
    )
    (folder / "handles").write_bytes(pickle.dumps(restored))
    print(json.dumps(at_barrier), flush=True)
    for first in itertools.count():
        work(subtask, range(first % 1000, first % 1000 + 100))


class Place:
    """Where the first checkpoint goes."""

    def __init__(self, storage: CheckpointStorage) -> None:
        self._storage = storage
        self._names = itertools.count()

    def stream(self) -> CheckpointStateOutputStream:
        name = f"state-{next(self._names)}"
        return self._storage.streams(CheckpointId(1)).create_stream(name)


def work(subtask: Subtask, keys: range) -> None:
    count, seen, by_name = map(subtask.backend.keyed_state, KEYED)
    for key in keys:
        subtask.on(key)
        count.update((count.value() or 0) + 1)
        seen.add([key])
        by_name.put(str(key % 7), key)
    for each in map(subtask.backend.operator_state, LISTS):
        each.add(keys[0])
    subtask.backend.broadcast_state(RULES).put(keys[0], [keys[-1]])


def dump(subtask: Subtask) -> dict[str, Any]:
    for each in KEYED:
        subtask.backend.keyed_state(each)
    keyed = {each.name: sorted(subtask.dump(each.name).items()) for each in KEYED}
    lists = {each.name: subtask.backend.operator_state(each).get() for each in LISTS}
    return keyed | lists | {"rules": list(subtask.backend.broadcast_state(RULES).items())}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
