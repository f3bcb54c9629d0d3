"""What the quick part of a snapshot leaves for its slices."""

import weakref

from flinkformat.key_groups import KeyGroupRange
from tidegate.loops.cells import KeyCell
from tidegate.state.heap.hashmap import HashMapTable

GROUPS = KeyGroupRange(0, 1)


class Key:
    """A key that tells whether anybody still has it."""


def written_to(table: HashMapTable) -> list["weakref.ref[Key]"]:
    """Write a new key to each group, and remove it again, so that it is only noted."""
    known: list[weakref.ref[Key]] = []
    for table.cell.group in GROUPS:
        table.cell.key = key = Key()
        table.write(1)
        table.write(None)
        known.append(weakref.ref(key))
    table.cell.key = None
    return known


def test_which_keys_were_written_is_let_go_of_group_by_group() -> None:
    table = HashMapTable(KeyCell(), GROUPS, 2, copy=None, tracked=True)
    table.freeze()
    noted = written_to(table)
    table.freeze(also=GROUPS)
    assert all(key() for key in noted)
    list(table.pieces(0, lambda: 10))
    assert noted[0]() is None and noted[1]() is not None
    table.thaw()
    assert noted[1]() is None
