"""What a fork takes from another job's snapshot, and what it leaves to that job."""

from dataclasses import replace

import pytest

from flinkformat.handles import (
    ByteStreamStateHandle,
    OperatorStreamStateHandle,
    StateDistribution,
    StateMetaInfo,
)
from flinkformat.snapshots import (
    CheckpointMetadata,
    CheckpointProperties,
    OperatorState,
    SubtaskState,
)
from tidegate.checkpoint.completed import CompletedCheckpoint
from tidegate.checkpoint.provenance import Provenance, to_master_state
from tidegate.jobmaster.redeployment import shares, start_coordinators
from tidegate.model.ids import CheckpointId, OperatorId, SubtaskId, VertexId
from tidegate.model.settings import RestoreSettings
from tidegate.model.topology import OperatorInfo, Topology, Vertex

SOURCE, SINK, OLD_SINK = (OperatorId(bytes([n]) * 16) for n in (1, 2, 3))
VERTEX = VertexId(SOURCE)
ONLY = SubtaskId(VERTEX, 0)
TOPOLOGY = Topology(
    (
        Vertex(
            VERTEX,
            "numbers -> files",
            (
                OperatorInfo(SOURCE, "numbers", has_coordinator=True),
                OperatorInfo(SINK, "files", upstream=0, has_coordinator=True, sink=True),
            ),
            1,
            128,
        ),
    ),
    (),
)


def operator(id: OperatorId) -> OperatorState:
    data = ByteStreamStateHandle("handle", b"data")
    info = StateMetaInfo((0,), StateDistribution.SPLIT_DISTRIBUTE)
    return OperatorState(
        operator_id=id,
        parallelism=1,
        max_parallelism=128,
        coordinator_state=data,
        subtasks={0: SubtaskState(managed_operator=OperatorStreamStateHandle({"s": info}, data))},
    )


def taken_by(job: str | None, *operators: OperatorState) -> CompletedCheckpoint:
    """A snapshot of a job; None: of one of Flink's, that does not say so."""
    masters = () if job is None else (to_master_state(Provenance({"job_name": job}, {})),)
    made = CheckpointMetadata(
        checkpoint_id=CheckpointId(7), operators=operators, master_states=masters
    )
    unclaimed = CheckpointProperties.for_unclaimed_snapshot()
    return CompletedCheckpoint(made.checkpoint_id, "/s", "/s", made, unclaimed)


def restored(taken: CompletedCheckpoint, topology: Topology, fork: str | None) -> set[OperatorId]:
    """The operators that start from something, on the driver and in the slot alike."""
    settings = RestoreSettings(fork=fork)
    in_slot = set(shares(taken, topology, settings)[ONLY].operators)
    started = start_coordinators(taken, topology, {SOURCE: (), SINK: ()}, settings)
    assert in_slot == {id for id, state in started.states.items() if state is not None}
    return in_slot


@pytest.mark.parametrize("origin", ["orders", None])
def test_a_fork_leaves_its_origins_sinks_alone(origin: str | None) -> None:
    taken = taken_by(origin, operator(SOURCE), operator(SINK))
    assert restored(taken, TOPOLOGY, "orders-fork") == {SOURCE}
    assert restored(taken, TOPOLOGY, None) == {SOURCE, SINK}


def test_a_forks_own_snapshots_are_taken_whole() -> None:
    taken = taken_by("orders-fork", operator(SOURCE), operator(SINK))
    assert restored(taken, TOPOLOGY, "orders-fork") == {SOURCE, SINK}


def test_a_sink_that_is_found_by_an_older_hash_is_left_alone_too() -> None:
    [vertex] = TOPOLOGY.vertices
    source, sink = vertex.operators
    renamed = replace(vertex, operators=(source, replace(sink, uid_hash=OLD_SINK)))
    topology = replace(TOPOLOGY, vertices=(renamed,))
    taken = taken_by("orders", operator(SOURCE), operator(OLD_SINK))
    assert restored(taken, topology, None) == {SOURCE, SINK}
    assert restored(taken, topology, "orders-fork") == {SOURCE}


def test_what_had_finished_stays_finished() -> None:
    ended = [
        OperatorState(
            operator_id=id, parallelism=1, max_parallelism=128, subtasks={}, fully_finished=True
        )
        for id in (SOURCE, SINK)
    ]
    share = shares(taken_by("orders", *ended), TOPOLOGY, RestoreSettings(fork="orders-fork"))
    assert share[ONLY].finished
