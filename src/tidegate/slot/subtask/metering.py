"""Metrics of one subtask: what its parts count anyway, under Flink's names, and those of functions.

Nothing here is called per batch; values are read with each heartbeat. docs/reference/metrics.md
describes each metric (`telemetry/catalogue.py`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from tidegate.config.warnings import Warn
from tidegate.metrics import MetricRegistry, Rate
from tidegate.model.control import Remark
from tidegate.model.elements import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from tidegate.model.metrics import MetricKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate.clock import Clock
    from tidegate.metrics import Gauge
    from tidegate.model.metrics import MetricKey, MetricValue
    from tidegate.slot.channels.output import Outputs
    from tidegate.slot.subtask.chain import Chain, ChainedOperator
    from tidegate.slot.subtask.input import Input
    from tidegate.slot.subtask.turns import Turns

_SECOND_MS: Final = 1_000

ROCKSDB_FIGURES: Final = (
    "rocksdb.estimate-num-keys",
    "rocksdb.total-sst-files-size",
    "rocksdb.live-sst-files-size",
    "rocksdb.cur-size-all-mem-tables",
    "rocksdb.block-cache-usage",
    "rocksdb.estimate-pending-compaction-bytes",
    "rocksdb.num-running-compactions",
    "rocksdb.is-write-stopped",
    "rocksdb.background-errors",
)
"""RocksDB's properties, which it knows at any time."""


class SubtaskMetrics:
    """The registries of a subtask's operators, and one of the subtask as a whole."""

    def __init__(
        self, clock: Clock, input: Input, chain: Chain, outputs: Outputs, turns: Turns
    ) -> None:
        self._chain = chain
        self._task = MetricRegistry(clock.monotonic_ms)
        self._of_operators = [each.context.tasks.metrics.registry for each in chain.operators]
        _tell_task(self._task, input, chain, outputs)
        _tell_time(self._task, turns, outputs)
        for each, registry in zip(chain.operators, self._of_operators, strict=True):
            is_source = input.is_source and each is chain.head
            _tell_operator(registry, each, clock, is_source=is_source)
            if is_source:
                registry.tell("numRecordsInErrors", MetricKind.COUNTER, lambda: input.rows_skipped)

    def read(self) -> dict[MetricKey, MetricValue]:
        """All values as they are now. May be called by another thread than the loop's."""
        found = self._task.read()
        for registry in self._of_operators:
            found |= registry.read()
        return found

    @property
    def gauges(self) -> list[Gauge]:
        """All gauges that functions have added and that may still be called."""
        return [gauge for registry in self._of_operators for gauge in registry.gauges]

    def remarks(self) -> Iterator[Remark]:
        """Metrics of functions that are not told."""
        for each, registry in zip(self._chain.operators, self._of_operators, strict=True):
            step = each.context.info.name
            if registry.refused:
                yield Remark(Warn.TOO_MANY_METRICS.value, step, registry.refused)
            for name, cause in registry.faults():
                yield Remark(Warn.GAUGE_FAILED.value, step, f"{name}: {cause}")


def _tell_task(task: MetricRegistry, input: Input, chain: Chain, outputs: Outputs) -> None:
    tail = chain.operators[-1]
    task.tell_count("numRecordsIn", lambda: input.rows)
    task.tell_count("numRecordsOut", lambda: tail.out.rows)
    task.tell_count(
        "numBytesIn",
        lambda: sum(each.bytes_came + each.arrow_bytes_read for each in input.gate.inputs),
    )
    task.tell_count("numBytesOut", lambda: sum(each.bytes_sent for each in outputs.channels))
    task.tell("numBatchesIn", MetricKind.COUNTER, lambda: input.batches)
    if not input.is_source:
        task.tell("currentInputWatermark", MetricKind.GAUGE, lambda: input.valve.current_ms)
    task.tell("currentOutputWatermark", MetricKind.GAUGE, lambda: tail.out.beside.watermark_ms)


def _tell_time(task: MetricRegistry, turns: Turns, outputs: Outputs) -> None:
    def busy_ms() -> float:
        return turns.worked_s * _SECOND_MS

    def blocked_ms() -> float:
        return outputs.room.waited_s * _SECOND_MS

    busy, blocked = (Rate(of, task.now_ms) for of in (busy_ms, blocked_ms))
    shares: dict[str, Callable[[], MetricValue]] = {
        "busyTimeMsPerSecond": lambda: _share(busy),
        "backPressuredTimeMsPerSecond": lambda: _share(blocked),
        "idleTimeMsPerSecond": lambda: max(0, _SECOND_MS - _share(busy) - _share(blocked)),
    }
    for name, read in shares.items():
        task.tell(name, MetricKind.GAUGE, read)
    began_ms = task.now_ms()

    def idle_ms() -> int:
        return max(0, round(task.now_ms() - began_ms - busy_ms() - blocked_ms()))

    task.tell("accumulateIdleTimeMs", MetricKind.GAUGE, idle_ms)
    task.tell("accumulateBusyTimeMs", MetricKind.GAUGE, lambda: round(busy_ms()))
    task.tell("accumulateBackPressuredTimeMs", MetricKind.GAUGE, lambda: round(blocked_ms()))


def _share(rate: Rate) -> int:
    return max(0, min(_SECOND_MS, round(rate.a_second())))


def _tell_operator(
    registry: MetricRegistry, operator: ChainedOperator, clock: Clock, *, is_source: bool
) -> None:
    out = operator.out

    def rows_out() -> int:
        return out.rows + out.beside.rows

    registry.tell_count("numRecordsIn", rows_out if is_source else lambda: operator.rows)
    registry.tell_count("numRecordsOut", rows_out)
    busy = Rate(lambda: operator.work.busy_s * _SECOND_MS, registry.now_ms)
    registry.tell("busyTimeMsPerSecond", MetricKind.GAUGE, lambda: _share(busy))
    if is_source:
        registry.tell(
            "watermarkLag", MetricKind.GAUGE, lambda: _lag(out.beside.watermark_ms, clock)
        )
    else:
        registry.tell("timePerRecordMicros", MetricKind.HISTOGRAM, operator.work.per_row.value)
        registry.tell("currentInputWatermark", MetricKind.GAUGE, lambda: operator.watermark_ms)
        registry.tell("watermarkLag", MetricKind.GAUGE, lambda: _lag(operator.watermark_ms, clock))
    registry.tell("currentOutputWatermark", MetricKind.GAUGE, lambda: out.beside.watermark_ms)
    registry.tell_by("numStateEntries", "state", operator.backend.entries)
    registry.tell_by("stateSize", "state", operator.backend.sizes)
    for name in ROCKSDB_FIGURES:
        registry.tell(name, MetricKind.GAUGE, partial(operator.backend.figure, name))
    registry.tell("numTimersWaiting", MetricKind.GAUGE, lambda: operator.backend.timers_waiting)


def _lag(watermark_ms: int | None, clock: Clock) -> int | None:
    """How far a watermark is behind; None before the first, and at the end of event time."""
    if watermark_ms is None or watermark_ms in (MIN_TIMESTAMP_MS, MAX_WATERMARK_MS):
        return None
    return clock.wall_ms() - watermark_ms
