"""State as an earlier run of the program has left it: bytes that every later release has to read.

`python -m tests.state.golden_state NAME` writes new files to golden/; those that are there are
never written again.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from flinkformat.handles import (
    ByteStreamStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    StateDistribution,
    StateMetaInfo,
)
from flinkformat.key_groups import KeyGroupRange
from flinkformat.snapshots import SubtaskState
from tests.state.world import MAX_PARALLELISM, READER, Subtask, snapshot
from tidegate.api.state import (
    ColumnStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateDescriptor,
    RedistributionMode,
    ValueStateDescriptor,
)
from tidegate.typeinfo.key_hash import KeyHasher
from tidegate.typeinfo.types import Types

GOLDEN = Path(__file__).parent / "golden"
KEYS = range(12)


@dataclass
class Visit:
    """As it was when the files were written."""

    page: str
    count: int


PAIR = ValueStateDescriptor("pair", Types.TUPLE([Types.INT(), Types.FLOAT()]))
VISITS = ListStateDescriptor("visits", Visit)
NAMES = MapStateDescriptor("names", Types.STRING(), Types.LONG())
ANYTHING = ValueStateDescriptor("anything")
SPLITS = OperatorStateDescriptor("splits", Types.STRING())
ALL = OperatorStateDescriptor("all", Types.LONG(), RedistributionMode.UNION)
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
TOTAL = ColumnStateDescriptor("total", pa.int32())


def filled(*, compression: bool) -> Subtask:
    """A subtask with state of every sort."""
    subtask = Subtask(compression=compression)
    backend = subtask.backend
    pairs, visits = backend.keyed_state(PAIR), backend.keyed_state(VISITS)
    names, anything = backend.keyed_state(NAMES), backend.keyed_state(ANYTHING)
    for key in KEYS:
        subtask.on(key)
        pairs.update((key, key / 4))
        visits.add_all([Visit("a page", key), Visit("another page", key + 1)])
        names.put(f"name {key}", key)
        anything.update({key: ("anything", None, [1.5])})
    backend.operator_state(SPLITS).update(["one", "two"])
    backend.operator_state(ALL).update([1, 2**40])
    backend.broadcast_state(RULES).put_all({"first": 1, "second": 2})
    keys = pa.array(KEYS)
    groups = KeyHasher(None, MAX_PARALLELISM).key_groups_of_column(keys)
    rows = backend.keyed_columns(None).index(keys, groups)
    backend.column_state(TOTAL).put(rows, np.arange(len(KEYS)) * 10)
    return subtask


def write(name: str) -> None:
    """Two streams, and what the handles say of them."""
    state = snapshot(filled(compression="compressed" in name))
    keyed, operator = state.managed_keyed, state.managed_operator
    assert isinstance(keyed, KeyGroupsStateHandle)
    assert isinstance(operator, OperatorStreamStateHandle)
    (GOLDEN / f"{name}.keyed").write_bytes(READER.read(keyed.delegate))
    (GOLDEN / f"{name}.operator").write_bytes(READER.read(operator.delegate))
    states = {n: [meta.mode.name, list(meta.offsets)] for n, meta in operator.states.items()}
    handles = {"offsets": list(keyed.offsets), "states": states}
    (GOLDEN / f"{name}.json").write_text(json.dumps(handles) + "\n")


def stored(name: str) -> SubtaskState:
    """The state as the files have it."""
    handles = json.loads((GOLDEN / f"{name}.json").read_text())
    streams = [
        ByteStreamStateHandle(f"golden/{name}.{part}", (GOLDEN / f"{name}.{part}").read_bytes())
        for part in ("keyed", "operator")
    ]
    groups = KeyGroupRange(0, MAX_PARALLELISM - 1)
    metas = {
        n: StateMetaInfo(StateDistribution[mode], tuple(offsets))
        for n, (mode, offsets) in handles["states"].items()
    }
    return SubtaskState(
        managed_keyed=KeyGroupsStateHandle(groups, tuple(handles["offsets"]), streams[0], name),
        managed_operator=OperatorStreamStateHandle(metas, streams[1]),
    )


if __name__ == "__main__":
    write(sys.argv[1])
