"""Every metric that the engine tells: name, scope, kind, unit, and a sentence.

docs/reference/metrics.md is made from it, and reporters pass the sentences on. A test holds it
against what a job tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from tidegate.model.metrics import MetricKind
from tidegate.telemetry.metrics import Scope

if TYPE_CHECKING:
    from tidegate.telemetry.metrics import Metric


@frozen
class Known:
    """One metric. unit: of UCUM, as OpenTelemetry wants; "" for none. ours: Flink has none such."""

    scope: Scope
    name: str
    kind: MetricKind
    unit: str
    sentence: str
    ours: bool = False


_COUNTER, _GAUGE = MetricKind.COUNTER, MetricKind.GAUGE
_METER, _HISTOGRAM = MetricKind.METER, MetricKind.HISTOGRAM
_JOB, _SLOT, _TASK, _OPERATOR = Scope.JOB, Scope.TASK_MANAGER, Scope.TASK, Scope.OPERATOR

CATALOGUE: Final = (
    Known(_JOB, "uptime", _GAUGE, "ms", "Time since the job runs without interruption; else -1."),
    Known(_JOB, "numRestarts", _GAUGE, "", "Restarts since the job was submitted."),
    Known(_JOB, "numSourcesWithBacklog", _GAUGE, "", "Sources that say that they catch up.", True),
    Known(_JOB, "numRescales", _GAUGE, "", "Changes of the parallelism while the job ran."),
    Known(_JOB, "totalNumberOfCheckpoints", _GAUGE, "", "Checkpoints that were begun."),
    Known(_JOB, "numberOfInProgressCheckpoints", _GAUGE, "", "Checkpoints under way."),
    Known(_JOB, "numberOfCompletedCheckpoints", _GAUGE, "", "Checkpoints that were completed."),
    Known(_JOB, "numberOfFailedCheckpoints", _GAUGE, "", "Checkpoints that were given up."),
    Known(_JOB, "lastCompletedCheckpointId", _GAUGE, "", "Number of the newest snapshot."),
    Known(_JOB, "lastCheckpointDuration", _GAUGE, "ms", "Time that the newest snapshot took."),
    Known(_JOB, "lastCheckpointSize", _GAUGE, "By", "Bytes that the newest snapshot wrote."),
    Known(_JOB, "lastCheckpointFullSize", _GAUGE, "By", "Bytes that the newest snapshot needs."),
    Known(_JOB, "lastCheckpointMetadataSize", _GAUGE, "By", "Size of its `_metadata`."),
    Known(_JOB, "lastCheckpointProcessedData", _GAUGE, "By", "Bytes read while barriers came."),
    Known(_JOB, "lastCheckpointPersistedData", _GAUGE, "By", "Bytes in flight that it holds."),
    Known(_JOB, "lastCheckpointCompletedTimestamp", _GAUGE, "ms", "When it was complete."),
    Known(_JOB, "lastCheckpointRestoreTimestamp", _GAUGE, "ms", "When one was last restored."),
    Known(_JOB, "lastCheckpointExternalPath", _GAUGE, "", "Path of the newest snapshot, a text."),
    Known(
        _SLOT,
        "Status.Process.CPU.Load",
        _GAUGE,
        "1",
        "Cores that the slot's process keeps busy.",
        True,
    ),
    Known(_SLOT, "Status.Process.CPU.Time", _GAUGE, "ns", "Processor time of the process.", True),
    Known(_SLOT, "Status.Process.Memory.Resident", _GAUGE, "By", "Memory of the process.", True),
    Known(_SLOT, "Status.Process.Threads.Count", _GAUGE, "", "Python threads of it.", True),
    Known(
        _SLOT, "Status.Python.GarbageCollector.Count", _COUNTER, "", "Collections of garbage.", True
    ),
    Known(_TASK, "numRecordsIn", _COUNTER, "", "Rows that came to the subtask from others."),
    Known(_TASK, "numRecordsInPerSecond", _METER, "/s", "Rows that come in, a second."),
    Known(_TASK, "numRecordsOut", _COUNTER, "", "Rows that the last step of the chain emitted."),
    Known(_TASK, "numRecordsOutPerSecond", _METER, "/s", "Rows that go out, a second."),
    Known(
        _TASK,
        "numBytesIn",
        _COUNTER,
        "By",
        "Bytes that came: of rows those that crossed between slots, of Arrow batches their memory.",
    ),
    Known(_TASK, "numBytesInPerSecond", _METER, "By/s", "Bytes that come in, a second."),
    Known(
        _TASK, "numBytesOut", _COUNTER, "By", "Bytes that were sent, counted as those that come."
    ),
    Known(_TASK, "numBytesOutPerSecond", _METER, "By/s", "Bytes that go out, a second."),
    Known(_TASK, "numBatchesIn", _COUNTER, "", "Batches that came to the subtask.", True),
    Known(_TASK, "currentInputWatermark", _GAUGE, "ms", "Event time of the slowest input."),
    Known(_TASK, "currentOutputWatermark", _GAUGE, "ms", "The last watermark sent on."),
    Known(_TASK, "busyTimeMsPerSecond", _GAUGE, "ms/s", "Time in which the subtask works."),
    Known(_TASK, "idleTimeMsPerSecond", _GAUGE, "ms/s", "Time in which it has nothing to do."),
    Known(
        _TASK,
        "backPressuredTimeMsPerSecond",
        _GAUGE,
        "ms/s",
        "Time in which its readers hold it up.",
    ),
    Known(_TASK, "accumulateIdleTimeMs", _GAUGE, "ms", "Time with nothing to do, in all."),
    Known(_TASK, "accumulateBusyTimeMs", _GAUGE, "ms", "Time spent working, in all."),
    Known(_TASK, "accumulateBackPressuredTimeMs", _GAUGE, "ms", "Time held up, in all."),
    Known(_TASK, "initializationTime", _GAUGE, "ms", "Time that this attempt took to restore."),
    Known(_TASK, "checkpointAlignmentTime", _GAUGE, "ns", "Time the last barriers took to come."),
    Known(
        _TASK, "checkpointStartDelayNanos", _GAUGE, "ns", "Time the last barrier took to get here."
    ),
    Known(_TASK, "checkpointSyncTimeMs", _GAUGE, "ms", "Time that its last cut took.", True),
    Known(_TASK, "checkpointAsyncTimeMs", _GAUGE, "ms", "Time that it was written in.", True),
    Known(_TASK, "checkpointStateSize", _GAUGE, "By", "State of the subtask in it.", True),
    Known(_TASK, "checkpointWrittenSize", _GAUGE, "By", "Bytes written for it.", True),
    Known(
        _OPERATOR, "numRecordsIn", _COUNTER, "", "Rows that the step was given or, a source, read."
    ),
    Known(_OPERATOR, "numRecordsInPerSecond", _METER, "/s", "The same, a second."),
    Known(
        _OPERATOR,
        "numRecordsOut",
        _COUNTER,
        "",
        "Rows that the step emitted, side outputs included.",
    ),
    Known(_OPERATOR, "numRecordsOutPerSecond", _METER, "/s", "The same, a second."),
    Known(
        _OPERATOR, "currentInputWatermark", _GAUGE, "ms", "Event time that has reached the step."
    ),
    Known(_OPERATOR, "currentOutputWatermark", _GAUGE, "ms", "Event time that the step passed on."),
    Known(
        _OPERATOR,
        "watermarkLag",
        _GAUGE,
        "ms",
        "How far event time is behind the clock; in Flink only sources have it.",
    ),
    Known(
        _OPERATOR,
        "pendingRecords",
        _GAUGE,
        "",
        "Records that a Kafka source has not read yet; with the variable `split` by partition.",
    ),
    Known(
        _OPERATOR,
        "pendingCommittables",
        _GAUGE,
        "",
        "Committables of a sink whose commit is not confirmed yet.",
    ),
    Known(
        _OPERATOR,
        "numRecordsInErrors",
        _COUNTER,
        "",
        "Rows that a source could not read and skipped.",
    ),
    Known(
        _OPERATOR,
        "numLateRecordsDropped",
        _COUNTER,
        "",
        "Rows that came too late for their window.",
    ),
    Known(
        _OPERATOR, "numDeadLetters", _COUNTER, "", "Rows that were put aside as dead letters.", True
    ),
    Known(
        _OPERATOR, "numCallsTimedOut", _COUNTER, "", "Asynchronous calls that took too long.", True
    ),
    Known(
        _OPERATOR,
        "callsGoingOnAfterTimeout",
        _GAUGE,
        "",
        "Calls whose time is over and that have not returned.",
        True,
    ),
    Known(
        _OPERATOR,
        "busyTimeMsPerSecond",
        _GAUGE,
        "ms/s",
        "Time in which the step works, without the steps behind it.",
        True,
    ),
    Known(
        _OPERATOR,
        "timePerRecordMicros",
        _HISTOGRAM,
        "us",
        "Time that a row takes in the step, a sample a batch.",
        True,
    ),
    Known(
        _OPERATOR,
        "numStateEntries",
        _GAUGE,
        "",
        "Entries of keyed state in memory, by the variable `state`; of columns, the keys.",
        True,
    ),
    Known(
        _OPERATOR,
        "stateSize",
        _GAUGE,
        "By",
        "Keyed state in memory as the newest snapshot holds it, by the variable `state`: keys and "
        "values before compression, with what later parts of an incremental snapshot replace; with "
        "a changelog, of its newest base. State on disk is known by operator alone.",
        True,
    ),
    Known(_OPERATOR, "numTimersWaiting", _GAUGE, "", "Timers that are set.", True),
    *(
        Known(_OPERATOR, f"rocksdb.{name}", _GAUGE, unit, f"State on disk: {sentence}.")
        for name, unit, sentence in (
            ("estimate-num-keys", "", "entries, as RocksDB estimates them"),
            ("total-sst-files-size", "By", "files, with those that snapshots still need"),
            ("live-sst-files-size", "By", "files of the newest version"),
            ("cur-size-all-mem-tables", "By", "what is in memory and not in files yet"),
            ("block-cache-usage", "By", "the slot's cache, write buffers included"),
            ("estimate-pending-compaction-bytes", "By", "what has still to be compacted"),
            ("num-running-compactions", "", "compactions under way"),
            ("is-write-stopped", "", "1 while writes wait for compactions"),
            ("background-errors", "", "failures of RocksDB's own threads"),
        )
    ),
)

VARIABLES: Final = ("split", "state")
"""What the engine tells metrics by: parts of a source's input, such as partitions, and states."""

_BY_NAME: Final = {(known.scope, known.name): known for known in CATALOGUE}


def known(metric: Metric) -> Known | None:
    """The entry of a metric; None for one that a function has added."""
    own = not metric.groups or metric.groups[0][0] in VARIABLES
    return _BY_NAME.get((metric.scope, metric.name)) if own else None


def sentence_of(metric: Metric) -> str:
    found = known(metric)
    return "A metric of a function." if found is None else found.sentence


def unit_of(metric: Metric) -> str:
    found = known(metric)
    return "" if found is None else found.unit
