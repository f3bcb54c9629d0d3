"""Jobs and checkpoints for pages to be made of."""

from dataclasses import replace

from flinkformat.snapshots import CheckpointProperties, SavepointFormatType, SavepointType
from tidegate.checkpoint.coordinator.statistics import (
    PERCENTILES,
    CheckpointStatistics,
    CheckpointStatus,
    Counts,
    Distribution,
    RestoredStatistics,
    StatisticsTracker,
    StatisticsView,
    SubtaskStatistics,
    Summary,
    VertexStatistics,
)
from tidegate.config.configuration import Configuration
from tidegate.config.settings import job_settings
from tidegate.jobmaster.view import JobView
from tidegate.model.control import JobStatus
from tidegate.model.elements import SnapshotKind
from tidegate.model.ids import CheckpointId, Epoch, JobId, VertexId
from tidegate.model.settings import CheckpointSettings

JOB = JobId("0123456789abcdef" * 2)
EMPTY = JobView(
    job=JOB,
    name="orders",
    epoch=Epoch(1),
    status=JobStatus.RUNNING,
    timestamps_ms={JobStatus.INITIALIZING: 1_000, JobStatus.RUNNING: 1_010},
    restarts=0,
    restored=None,
    vertices=(),
    edges=(),
    failures=(),
    slots=(),
    slots_wanted=1,
    checkpoints=StatisticsTracker(10).view(),
    settings=job_settings(
        Configuration.from_dict({"rest.port": "0", "tidegate.rest.savepoint-dirs": "/savepoints"})
    ),
)

FIRST = SubtaskStatistics(
    index=0,
    ack_ms=1_011,
    ack_delay_ms=11,
    state_size=120,
    checkpointed_size=13,
    sync_ms=14,
    async_ms=15,
    processed_bytes=16,
    persisted_bytes=17,
    alignment_ms=18,
    start_delay_ms=19,
    unaligned=False,
)
SECOND = replace(FIRST, index=1, ack_ms=1_021, ack_delay_ms=21, state_size=220, checkpointed_size=3)
VERTEX = VertexStatistics(VertexId(b"v" * 16), (FIRST, SECOND, None))
RUNNING = CheckpointStatistics(
    checkpoint=CheckpointId(7),
    kind=SnapshotKind.CHECKPOINT,
    properties=CheckpointProperties.for_checkpoint(CheckpointSettings().retention),
    status=CheckpointStatus.IN_PROGRESS,
    trigger_ms=1_000,
    vertices=(VERTEX,),
    state_size=340,
    checkpointed_size=16,
    processed_bytes=32,
    persisted_bytes=34,
    subtasks=3,
    acknowledged=2,
    latest_ack_ms=1_021,
    duration_ms=21,
)
DONE = replace(
    RUNNING,
    checkpoint=CheckpointId(6),
    status=CheckpointStatus.COMPLETED,
    pointer="/chk-6",
    checkpointed_size=61,
    state_size=62,
    duration_ms=63,
    processed_bytes=64,
    persisted_bytes=65,
    metadata_size=66,
)
SAVED = replace(
    DONE,
    checkpoint=CheckpointId(5),
    kind=SnapshotKind.SAVEPOINT,
    properties=CheckpointProperties.for_savepoint(
        SavepointType.savepoint(SavepointFormatType.NATIVE), forced=False
    ),
)
FAILED = replace(RUNNING, checkpoint=CheckpointId(4), status=CheckpointStatus.FAILED)


def spread(number: int) -> Distribution:
    """Figures that no other number has."""
    percentiles = {p: number + p for p in PERCENTILES}
    return Distribution(9, number + 1, number + 3, number + 2, percentiles)


SEEN = StatisticsView(
    Counts(restored=2, total=21, in_progress=1, completed=17, failed=3),
    Summary(spread(100), spread(200), spread(300), spread(400), spread(500)),
    (RUNNING, DONE),
    DONE,
    SAVED,
    FAILED,
    RestoredStatistics(CheckpointId(3), 1_234, True, "/saved", 33),
)
