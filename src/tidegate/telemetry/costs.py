"""Costs of a job: processor time of its slots, and bytes of its checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.checkpoint.coordinator.statistics import CheckpointStatus
from tidegate.model.metrics import MetricKey, MetricKind
from tidegate.telemetry.units import size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.jobmaster.view import JobView

_CPU_TIME: Final = MetricKey("Status.Process.CPU.Time", MetricKind.GAUGE)
_NANOS: Final = 1_000_000_000
_MILLION: Final = 1_000_000
_MINUTE_MS: Final = 60_000


def costs_of(job: JobView) -> str:
    """One line; empty before there is anything to tell."""
    return "; ".join([*_processor(job), *_checkpoints(job)])


def _processor(job: JobView) -> Iterator[str]:
    times = [slot.metrics.get(_CPU_TIME) for slot in job.slots]
    nanos = sum(time for time in times if isinstance(time, int))
    if not nanos:
        return
    each = ""
    if job.counts.read:
        of_a_million = nanos / _NANOS / job.counts.read * _MILLION
        told = f"{of_a_million:,.0f}" if of_a_million >= 100 else f"{of_a_million:.3g}"
        each = f", {told} a million rows read"
    yield f"{nanos / _NANOS:,.1f} core-seconds of its slots{each}"


def _checkpoints(job: JobView) -> Iterator[str]:
    complete = sorted(
        (one for one in job.checkpoints.history if one.status is CheckpointStatus.COMPLETED),
        key=lambda one: one.checkpoint,
    )
    if not complete:
        return
    yield f"the last checkpoint has {size_text(complete[-1].state_size)}"
    over_ms = complete[-1].trigger_ms - complete[0].trigger_ms
    if over_ms > 0:
        written = sum(one.checkpointed_size for one in complete[1:])
        yield f"checkpoints write {size_text(written / over_ms * _MINUTE_MS)} a minute"
