"""State is dealt out to new subtasks exactly as Flink does it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from golden import FIXTURES

from flinkformat.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    StateDistribution,
    StateMetaInfo,
)
from flinkformat.key_groups import KeyGroupRange
from tidegate.checkpoint.restore.redistribution import (
    java_hash_map_order,
    redistribute_keyed,
    redistribute_operator,
)

RULES = [json.loads(line) for line in (FIXTURES / "golden-rules.jsonl").read_text().splitlines()]


def cases(kind: str) -> list[Any]:
    chosen = [rule for rule in RULES if rule["kind"] == kind]
    assert chosen
    return [pytest.param(case, id=case["case"]) for case in chosen]


def operator_handle(index: int, states: dict[str, Any] | None) -> OperatorStreamStateHandle | None:
    if states is None:
        return None
    return OperatorStreamStateHandle(
        {
            name: StateMetaInfo(StateDistribution[info["mode"]], tuple(info["offsets"]))
            for name, info in states.items()
        },
        ByteStreamStateHandle(f"sub{index}", b"bytes that are equal"),
    )


@pytest.mark.parametrize("case", cases("operatorStateRedistribution"))
def test_operator_state_is_dealt_out_as_flink_does(case: Any) -> None:
    old = [operator_handle(i, states) for i, states in enumerate(case["old"])]
    new = redistribute_operator(old, case["newParallelism"])
    assert len(new) == len(case["new"])
    for ours, theirs in zip(new, case["new"], strict=True):
        found: dict[str, list[list[object]]] = {}
        for handle in ours:
            for name, info in handle.states.items():
                offsets = list(info.offsets)
                found.setdefault(name, []).append([handle.delegate.physical_id, offsets])
        assert {name: sorted(pieces) for name, pieces in found.items()} == theirs["states"]


@pytest.mark.parametrize("case", cases("operatorStateRedistribution"))
def test_states_are_taken_in_the_order_of_a_java_hash_map(case: Any) -> None:
    walked = [java_hash_map_order(list(states)) for states in case["old"] if states]
    names = list(dict.fromkeys(name for order in walked for name in order))
    assert java_hash_map_order(names, newest_first=True) == case["stateNameHashMapOrder"]


@pytest.mark.parametrize("case", cases("keyedRescale"))
def test_key_groups_go_where_flink_sends_them(case: Any) -> None:
    old_parallelism, max_parallelism = case["oldParallelism"], case["maxParallelism"]
    old = []
    for index in range(old_parallelism):
        key_groups = KeyGroupRange.of(index, old_parallelism, max_parallelism)
        offsets = tuple(1000 * index + position for position in range(len(key_groups)))
        delegate = FileStateHandle(f"old{index}", 1)
        old.append(KeyGroupsStateHandle(key_groups, offsets, delegate, f"id-{index}"))
    new = redistribute_keyed(old, case["newParallelism"], max_parallelism)
    found = []
    for handles in new:
        shown = []
        for handle in handles:
            assert isinstance(handle, KeyGroupsStateHandle)
            first, last = handle.key_groups.first, handle.key_groups.last
            assert handle.state_handle_id == handle.delegate.physical_id.replace("old", "id-")
            shown.append([handle.delegate.physical_id, first, last, handle.offset_of(first)])
        found.append(shown)
    assert found == case["handles"]
