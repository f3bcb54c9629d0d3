"""State that an earlier run has left, read by what the program is now."""

from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from tests.state.golden_state import ALL, ANYTHING, KEYS, NAMES, RULES, SPLITS, stored
from tests.state.world import MAX_PARALLELISM, merged, restored
from tidegate.api.state import ColumnStateDescriptor, ListStateDescriptor, ValueStateDescriptor
from tidegate.typeinfo.key_hash import KeyHasher
from tidegate.typeinfo.types import Types


@dataclass
class Visit:
    """The class of the files with a field more, and in another order."""

    count: int
    page: str
    tags: list[str] = field(default_factory=list[str])


PAIR = ValueStateDescriptor("pair", Types.TUPLE([Types.LONG(), Types.DOUBLE()]))
VISITS = ListStateDescriptor("visits", Visit)
TOTAL = ColumnStateDescriptor("total", pa.int64())


@pytest.mark.feature("F261")
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("name", ["state-1", "state-1-compressed"])
def test_state_of_an_earlier_run_is_read(name: str, parallelism: int) -> None:
    subtasks = restored([stored(name)], parallelism)
    assert merged(subtasks, PAIR) == {key: (key, key / 4) for key in KEYS}
    assert merged(subtasks, VISITS) == {
        key: [Visit(key, "a page"), Visit(key + 1, "another page")] for key in KEYS
    }
    assert merged(subtasks, NAMES) == {key: {f"name {key}": key} for key in KEYS}
    assert merged(subtasks, ANYTHING) == {key: {key: ("anything", None, [1.5])} for key in KEYS}
    splits = [subtask.backend.operator_state(SPLITS).get() for subtask in subtasks]
    assert sorted(each for part in splits for each in part) == ["one", "two"]
    totals: dict[object, object] = {}
    for subtask in subtasks:
        assert subtask.backend.operator_state(ALL).get() == [1, 2**40]
        rules = subtask.backend.broadcast_state(RULES)
        assert dict(rules.items()) == {"first": 1, "second": 2}
        keys = pa.array([key for key in KEYS if subtask.owns(key)], pa.int64())
        groups = KeyHasher(None, MAX_PARALLELISM).key_groups_of_column(keys)
        rows = subtask.backend.keyed_columns(None).index(keys, groups)
        values = subtask.backend.column_state(TOTAL).get(rows).tolist()
        totals |= dict(zip(keys.to_pylist(), values, strict=True))
    assert totals == {key: 10 * key for key in KEYS}
