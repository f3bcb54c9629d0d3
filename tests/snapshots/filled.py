"""A snapshot with states of each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tidegate.api.state.descriptors import StateTtlConfig
from tidegate.model.duration import Time
from tidegate.snapshots.snapshot import Snapshot, StateRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.snapshots.world import Snapshots
    from tidegate.api.state import (
        StateDescriptor,
    )
    from tidegate.typeinfo.types import TypeInformation


TTL = StateTtlConfig.new_builder(Time.hours(1)).build()


class Route(NamedTuple):
    origin: str
    dest: str


def filled(
    world: Snapshots,
    descriptor: StateDescriptor,
    keys: Iterable[object],
    fill: Callable[[Any, Any], None],
    *,
    key_type: TypeInformation | None = None,
    namespace: TypeInformation | None = None,
    at_ms: int = 0,
) -> Snapshot:
    """A snapshot of two subtasks; fill: called with the state, which stands on the key."""
    subtasks = world.subtasks(2, key_type=key_type)
    keys = list(keys)
    for subtask in subtasks:
        state = subtask.at(at_ms).backend.keyed_state(descriptor, namespace)
        for key in keys:
            if subtask.owns(key):
                subtask.on(key)
                fill(state, key)
    return Snapshot.open(world.written(subtasks))


def by_key(rows: Iterator[StateRow]) -> dict[object, object]:
    found: dict[object, object] = {}
    for row in rows:
        assert row.key not in found
        found[row.key] = row.value
    return found
