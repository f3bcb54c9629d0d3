"""States of the fixtures' jobs, as Flink wrote them and as the fixtures list them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from golden import FIXTURES
from state_text import shown, text

from flinkformat.handles import StateDistribution
from flinkformat.state.headers import KEY
from tidegate.snapshots.flink_snapshot import FlinkSnapshot

if TYPE_CHECKING:
    from flinkformat.state.reading import FlinkKeyedState


JOBS = sorted(path.parent.name for path in FIXTURES.glob("*/state.json"))


def opened(name: str) -> FlinkSnapshot:
    told = json.loads((FIXTURES / name / "expected.json").read_text())
    was = told.get("originalSharedParent")
    moved = {} if was is None else {was: str(FIXTURES / name)}
    return FlinkSnapshot.open(FIXTURES / name, moved=moved)


def operator_state(snapshot: FlinkSnapshot, operator: Any) -> dict[str, Any]:
    return {
        str(index): {each.state.name: shown_operator_state(each) for each in states}
        for index, states in snapshot.operator_state(operator)
    }


def shown_operator_state(each: Any) -> Any:
    if each.mode is StateDistribution.BROADCAST:
        key, value = each.state.serializers[KEY], each.state.value
        pairs = [
            [shown(key, k), shown(value, v)]
            for entries in each.elements
            for k, v in entries.items()
        ]
        return {"mode": each.mode.name, "entries": sorted(pairs, key=text)}
    return {
        "mode": each.mode.name,
        "serializerSnapshot": each.state.value.snapshot_class,
        "elements": [shown(each.state.value, element) for element in each.elements],
    }


def keyed_state(parts: list[FlinkKeyedState]) -> Any:
    if not parts:
        return None
    header = parts[0].header
    entries: dict[str, list[Any]] = {state.name: [] for state in header.states}
    for part in parts:
        for entry in part.entries():
            assert entry.key_group in part.key_groups
            entries[entry.state.name].append(shown_entry(header.key, entry))
    return {
        "backend": "rocksdb" if parts[0].backend == "rocksdb" else "hashmap",
        "keySerializer": header.key.snapshot_class,
        "compressed": header.compressed,
        "states": [
            {
                "name": state.name,
                "backendStateType": state.type.name,
                "options": dict(state.options),
                "serializerSnapshots": {
                    part: serializer.snapshot_class
                    for part, serializer in state.serializers.items()
                },
                "entries": sorted(entries[state.name], key=text),
            }
            for state in header.states
        ],
    }


def shown_entry(keys: Any, entry: Any) -> Any:
    found = {"keyGroup": entry.key_group}
    if entry.state.is_timers:
        found["timestamp"] = entry.value
        space = entry.state.value.namespace
    else:
        space = entry.state.namespace
    found |= {"key": shown(keys, entry.key), "namespace": shown(space, entry.namespace)}
    if not entry.state.is_timers:
        found["value"] = shown(entry.state.value, entry.value)
    return found
