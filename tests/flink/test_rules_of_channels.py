"""Data in flight go to the subtasks that Flink's mappers name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from golden import FIXTURES

from flinkformat.handles import FileStateHandle, InputChannelStateHandle
from flinkformat.snapshots import CheckpointMetadata, OperatorState, SubtaskState
from tidegate.checkpoint.restore.in_flight_targets import deal_in_flight
from tidegate.errors import RestoreRefused
from tidegate.model.ids import CheckpointId, OperatorId, VertexId
from tidegate.model.topology import Edge, OperatorInfo, Partitioner, Topology, Vertex

if TYPE_CHECKING:
    from tidegate.model.restore import InFlightData

RULES = FIXTURES / "golden-rules.jsonl"
SOURCE, READER = OperatorId(bytes(16)), OperatorId(bytes([1]) * 16)
MAX_PARALLELISM = 32768
PARTITIONERS = {
    "ARBITRARY": [Partitioner.REBALANCE, Partitioner.SHUFFLE],
    "ROUND_ROBIN": [Partitioner.REBALANCE, Partitioner.SHUFFLE],
    "FIRST": [Partitioner.GLOBAL],
    "RANGE": [Partitioner.HASH],
    "FULL": [Partitioner.CUSTOM],
}


def cases() -> list[Any]:
    rows = map(json.loads, RULES.read_text(encoding="utf-8").splitlines())
    chosen = [row for row in rows if row["kind"] == "channelStateMapping"]
    assert len(chosen) == 25
    return [
        pytest.param(row, partitioner, id=f"{row['case']}-{partitioner.value}")
        for row in chosen
        for partitioner in PARTITIONERS[row["mapper"]]
    ]


def snapshot(parallelism: int) -> CheckpointMetadata:
    """Data that had come to each reader, whose number is their only offset."""
    subtasks = {
        index: SubtaskState(
            input_channel=(
                InputChannelStateHandle(index, 0, 0, (index,), 9, FileStateHandle("f", 9)),
            )
        )
        for index in range(parallelism)
    }
    readers = OperatorState(
        operator_id=READER,
        parallelism=parallelism,
        max_parallelism=MAX_PARALLELISM,
        subtasks=subtasks,
    )
    return CheckpointMetadata(checkpoint_id=CheckpointId(1), operators=(readers,))


def dealt(old: int, new: int, partitioner: Partitioner) -> dict[int, list[InFlightData]]:
    vertices = tuple(
        Vertex(VertexId(of), of.hex(), (OperatorInfo(of, of.hex()),), parallelism, MAX_PARALLELISM)
        for of, parallelism in ((SOURCE, 1), (READER, new))
    )
    edge = Edge(vertices[0].id, vertices[1].id, partitioner, operator=0)
    found = deal_in_flight(snapshot(old), Topology(vertices, (edge,)))
    return {subtask.index: list(data) for subtask, data in found.items()}


@pytest.mark.parametrize(("case", "partitioner"), cases())
def test_in_flight_data_go_where_flink_sends_them(case: Any, partitioner: Partitioner) -> None:
    old, new = case["oldParallelism"], case["newParallelism"]
    if case["mapper"] == "FULL":
        # Flink lets nothing be overtaken where this mapper stands, and so do we.
        with pytest.raises(RestoreRefused):
            dealt(old, new, partitioner)
        return
    found = dealt(old, new, partitioner)
    made = [sorted(data.offsets[0] for data in found.get(index, ())) for index in range(new)]
    assert made == case["newToOld"]
    cut = any(data.key_groups is not None for pieces in found.values() for data in pieces)
    assert cut == case["ambiguous"]
