"""A batch starts from nothing, or from a snapshot that another job has left."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, cast

from tidegate.checkpoint.provenance import hook_states, provenance_of
from tidegate.checkpoint.restore.assignment import assign, coordinator_states
from tidegate.config.log import process_log
from tidegate.driver.start import fitted
from tidegate.driver.starting.restore import LATEST, read_for_start
from tidegate.errors import ConfigError, RestoreRefused
from tidegate.model.ids import JobId, OperatorId, SubtaskId, VertexId
from tidegate.model.restore import SubtaskRestore
from tidegate.model.settings import ClaimMode
from tidegate.operators.sinks.sink import COMMITTABLES_STATE
from tidegate.storage import paths
from tidegate.storage.checkpoints import CheckpointStorage
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flinkformat.handles import OperatorStateHandle
    from flinkformat.snapshots import MasterState
    from tidegate.checkpoint.completed import CompletedCheckpoint
    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.ids import CheckpointId

EVENT_TIMES: Final = "event_times_ms"
"""Name of a fact about a snapshot: how far event time had come, by vertex.

A job that goes on live begins its event time anew, as in Flink; the batch behind a batch does not,
or what is late for the one would open its window once more in the other.
"""


@dataclass(frozen=True)
class BatchStart:
    """The state of subtasks, coordinators and hooks. snapshot: None where it starts empty.

    event_times: how far event time had come in a batch, in milliseconds; of a stream it is empty.
    """

    snapshot: CompletedCheckpoint | None = None
    subtasks: Mapping[SubtaskId, SubtaskRestore] = field(
        default_factory=dict[SubtaskId, SubtaskRestore]
    )
    coordinators: Mapping[OperatorId, bytes | None] = field(
        default_factory=dict[OperatorId, "bytes | None"]
    )
    hooks: tuple[MasterState, ...] = ()
    event_times: Mapping[VertexId, int] = field(default_factory=dict[VertexId, int])

    @property
    def checkpoint(self) -> CheckpointId | None:
        """Number of the snapshot."""
        return None if self.snapshot is None else self.snapshot.checkpoint


def read_start(graph: JobGraph) -> tuple[JobGraph, BatchStart]:
    """Reads the snapshot that the job's settings name; gives the graph as it fits. Blocking.

    Raises ConfigError, FormatError, RestoreRefused and StorageFailed.
    """
    restore = graph.settings.restore
    if restore.path is None:
        return graph, BatchStart()
    if restore.path == LATEST or restore.claim_mode is ClaimMode.CLAIM:
        raise ConfigError(
            "A batch on Spark has no checkpoints, so it cannot go on from its newest, nor make a "
            "snapshot its own",
            where=f"{restore.path}, claim mode {restore.claim_mode.value}",
            remedy="Name the savepoint that it starts from, with claim mode NO_CLAIM.",
        )
    # It has no folder of its own to look into.
    storage = CheckpointStorage(JobId(secrets.token_hex(16)), graph.settings.checkpoints)
    read = read_for_start(storage, restore.path, lambda: secrets.token_hex(16))
    metadata, log = read.metadata, process_log().bind(job=graph.name)
    graph = fitted(graph, metadata, {}, log)
    topology = graph.topology
    subtasks = assign(metadata, topology, drop_in_flight=restore.without_in_flight_of is not None)
    _check_at_rest(read, subtasks)
    if is_file(paths.join(read.pointer, paths.COMMITTED)):
        subtasks = {subtask: _without_committables(each) for subtask, each in subtasks.items()}
    log.info("a batch starts from a snapshot", path=read.pointer)
    # What was staged for one batch is no input of the next.
    coordinators = coordinator_states(metadata, topology).items()
    kept = {operator: state for operator, state in coordinators if operator not in graph.staged}
    provenance = provenance_of(metadata)
    facts = {} if provenance is None else provenance.facts
    known = cast("dict[str, int]", facts.get(EVENT_TIMES, {}))
    times = {each.id: known[each.id.hex()] for each in topology.vertices if each.id.hex() in known}
    return graph, BatchStart(read, subtasks, kept, hook_states(metadata), times)


def mark_committed(snapshot: str) -> None:
    """Note beside a snapshot that all is committed that it holds. Raises StorageFailed."""
    store, name = Stores().locate(paths.join(snapshot, paths.COMMITTED))
    store.open_new(name).close()


def is_file(path: str) -> bool:
    """True if there is a file at an absolute path or URL. Raises StorageFailed."""
    store, name = Stores().locate(path)
    return store.info(name) is not None


def _without_committables(restore: SubtaskRestore) -> SubtaskRestore:
    return replace(
        restore,
        operators={
            operator: replace(
                state, managed_operator=tuple(map(_without_elements, state.managed_operator))
            )
            for operator, state in restore.operators.items()
        },
    )


def _without_elements(handle: OperatorStateHandle) -> OperatorStateHandle:
    held = handle.states.get(COMMITTABLES_STATE)
    if held is None:
        return handle
    return replace(handle, states={**handle.states, COMMITTABLES_STATE: replace(held, offsets=())})


def _check_at_rest(read: CompletedCheckpoint, subtasks: Mapping[SubtaskId, SubtaskRestore]) -> None:
    for each in subtasks.values():
        if each.in_flight or each.finished:
            why = "has records in flight" if each.in_flight else "is of a job part of which is over"
            raise RestoreRefused(
                f"A batch cannot start from a snapshot that {why}",
                where=read.pointer,
                remedy="Start from a savepoint that was taken without --drain.",
            )
