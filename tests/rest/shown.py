"""A job whose view has no value twice, so that each value in an answer says where it is from."""

from __future__ import annotations

from dataclasses import replace

from tests.rest.world import EMPTY, SEEN
from tests.rest.world import VERTEX as SHARE
from tidegate.jobmaster.view import FailureView, SlotView, SubtaskView, VertexView
from tidegate.model.control import ExecutionState, JobStatus, LongCall, SubtaskFigures
from tidegate.model.ids import OperatorId, SlotId, VertexId
from tidegate.model.metrics import Metered, MetricKey, MetricKind, Spread
from tidegate.model.topology import Edge, FunctionInfo, OperatorInfo, Partitioner

NOW_MS = 20_000
SOURCE, SINK = SHARE.vertex, VertexId(b"b" * 16)
READ_ID = OperatorId(SOURCE)
ONE, TWO, IDLE = SlotId("one"), SlotId("two"), SlotId("idle")
HALF_S = {
    ExecutionState.SCHEDULED: 1_100,
    ExecutionState.DEPLOYING: 1_200,
    ExecutionState.INITIALIZING: 1_300,
    ExecutionState.RUNNING: 1_500,
}
READS = SubtaskView(
    0,
    2,
    ExecutionState.RUNNING,
    ONE,
    HALF_S,
    SubtaskFigures(rows_in=30, rows_out=20, busy_ms=400, blocked_ms=100, watermark_ms=77),
    restore_ms=55,
    metrics={
        MetricKey("numRecordsIn", MetricKind.COUNTER): 30,
        MetricKey("numRecordsInPerSecond", MetricKind.METER): Metered(30, 1.5),
        MetricKey("busyTimeMsPerSecond", MetricKind.GAUGE): 500,
        MetricKey("backPressuredTimeMsPerSecond", MetricKind.GAUGE): 250,
        MetricKey("seen", MetricKind.COUNTER, READ_ID, ("shop", ("country", "nl"))): 7,
        MetricKey("size", MetricKind.HISTOGRAM, READ_ID): Spread(
            9, 1, 8, 4.5, 2.5, tuple(range(6))
        ),
    },
)
ENDED = SubtaskView(
    1,
    3,
    ExecutionState.FINISHED,
    TWO,
    {**HALF_S, ExecutionState.FINISHED: 9_500},
    SubtaskFigures(rows_in=5, rows_out=7, busy_ms=60, blocked_ms=9),
)
FUNCTIONS = (FunctionInfo("timestamps"), FunctionInfo("map", "line 3 calls a function"))
READ = OperatorInfo(READ_ID, "read <fast>", functions=FUNCTIONS)
READER = VertexView(SOURCE, "read <fast>", 2, 128, (READS, ENDED), (READ,))
WRITER = VertexView(SINK, "write", 1, 64, ())
PROCESS = {
    MetricKey("Status.Process.Memory.Resident", MetricKind.GAUGE): 777,
    MetricKey("Status.Python.GarbageCollector.Count", MetricKind.COUNTER): 31,
}
SLOTS = (
    SlotView(
        ONE, "host-1", 11, 5, 12_000, LongCall("lookup", "a\nb"), "read <fast> (1/2)", PROCESS
    ),
    SlotView(TWO, "host-2", 12, 6, 0),
    SlotView(IDLE, "host-3", 13, 7, 0),
)
CAUSE = FailureView(4_000, "it broke", "write (1/1)", ONE, "ValueError", {"kind": "user"})
BESIDE = FailureView(4_001, "it broke too", "read (2/2)", TWO, "KeyError")
OLDER = FailureView(3_000, "long ago", "", None)
VIEW = replace(
    EMPTY,
    timestamps_ms={
        JobStatus.INITIALIZING: 1_000,
        JobStatus.CREATED: 1_010,
        JobStatus.RUNNING: 1_600,
    },
    restarts=4,
    rescales=2,
    vertices=(READER, WRITER),
    edges=(Edge(SOURCE, SINK, Partitioner.REBALANCE, 0),),
    failures=(replace(CAUSE, concurrent=(BESIDE,)), OLDER),
    slots=SLOTS,
    checkpoints=SEEN,
)
OVER = replace(
    VIEW,
    status=JobStatus.FAILED,
    timestamps_ms={**VIEW.timestamps_ms, JobStatus.FAILED: 12_000},
)
