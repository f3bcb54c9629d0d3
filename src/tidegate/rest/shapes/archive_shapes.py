"""A job as an archive: each question that is asked of a job that is over, with its answer.

The form is that of Flink's archives, ``{"archive": [{"path": …, "json": …}]}``, so that Flink's
history server reads it too. Paths of metrics hold values with the names.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from tidegate.rest.shapes import accumulator_shapes as accumulators
from tidegate.rest.shapes import checkpoint_shapes as checkpoints
from tidegate.rest.shapes import cluster_shapes as cluster
from tidegate.rest.shapes import flame_shapes as flames
from tidegate.rest.shapes import job_shapes as jobs
from tidegate.rest.shapes import metric_shapes as metrics
from tidegate.rest.shapes.finite import finite
from tidegate.telemetry.held import held_state
from tidegate.telemetry.own import own_metrics
from tidegate.telemetry.picture import picture, waits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidegate.jobmaster.view import JobView, VertexView

EMPTY_LOG: Final[Mapping[str, object]] = {"records": [], "after": 0}


def archived(job: JobView, now_ms: int, log: Mapping[str, object] = EMPTY_LOG) -> bytes:
    """Bytes of the archive of a job. log: as `log_shapes.to_leave` has made it."""
    entries = [
        {"path": path, "json": json.dumps(finite(body), separators=(",", ":"))}
        for path, body in (*answers(job, now_ms), (f"/jobs/{job.job}/log", log))
    ]
    return json.dumps({"archive": entries}, separators=(",", ":")).encode()


def answers(job: JobView, now_ms: int) -> Iterator[tuple[str, object]]:
    """Path and answer of each question."""
    yield "/jobs/overview", {"jobs": [jobs.overview(job, now_ms)]}
    yield "/applications/overview", {"applications": [cluster.application(job, now_ms)]}
    application = f"/applications/{job.job}"
    yield application, cluster.application_details(job, now_ms)
    yield f"{application}/exceptions", cluster.application_exceptions(job)
    yield f"{application}/jobmanager/config", cluster.settings_of(job)
    at = f"/jobs/{job.job}"
    yield at, jobs.details(job, now_ms)
    yield f"{at}/picture", picture(job, now_ms, since=0)
    yield f"{at}/waits", waits(job)
    yield f"{at}/state", held_state(job)
    yield f"{at}/own-metrics", own_metrics(job, now_ms)
    yield f"{at}/status", {"status": job.status.value}
    yield f"{at}/plan", {"plan": jobs.plan(job)}
    yield f"{at}/config", jobs.config(job)
    yield f"{at}/jobmanager/config", cluster.settings_of(job)
    yield f"{at}/execution-result", jobs.execution_result(job, now_ms)
    yield f"{at}/exceptions", jobs.exceptions(job, len(job.failures), None)
    yield f"{at}/accumulators", accumulators.of_job(job)
    yield f"{at}/resource-requirements", jobs.requirements(job)
    yield f"{at}/metrics", _named(metrics.of_job(job, now_ms))
    yield from _checkpoints(job, f"{at}/checkpoints")
    for vertex in job.vertices:
        yield from _vertex(job, vertex, f"{at}/vertices/{vertex.id.hex()}", now_ms)


def _checkpoints(job: JobView, at: str) -> Iterator[tuple[str, object]]:
    seen = job.checkpoints
    yield at, checkpoints.overview(seen)
    yield f"{at}/config", checkpoints.config(job.settings)
    latest = (seen.latest_completed, seen.latest_savepoint, seen.latest_failed)
    known = {one.checkpoint: one for one in (*seen.history, *latest) if one is not None}
    for one in known.values():
        details = f"{at}/details/{one.checkpoint}"
        yield details, checkpoints.checkpoint(one, tasks=True)
        for share in one.vertices:
            yield f"{details}/subtasks/{share.vertex.hex()}", checkpoints.subtasks(one, share)


def _vertex(job: JobView, vertex: VertexView, at: str, now_ms: int) -> Iterator[tuple[str, object]]:
    yield at, jobs.vertex_details(job, vertex, now_ms)
    yield f"{at}/subtasktimes", jobs.subtask_times(job, vertex, now_ms)
    yield f"{at}/taskmanagers", jobs.slots_of(job, vertex, now_ms)
    yield f"{at}/watermarks", metrics.watermarks(vertex)
    yield f"{at}/backpressure", metrics.backpressure(vertex, now_ms)
    yield f"{at}/accumulators", accumulators.of_vertex(job, vertex)
    yield f"{at}/subtasks/accumulators", accumulators.of_subtasks(job, vertex)
    yield f"{at}/flamegraph", flames.ENDED
    hosts = jobs.hosts(job)
    each = [metrics.of_subtask(job, vertex, subtask) for subtask in vertex.subtasks]
    names = ",".join(dict.fromkeys(name for one in each for name in one))
    yield f"{at}/subtasks/metrics", metrics.aggregated(each, names, None)
    by_subtask: metrics.Metrics = {}
    for subtask, named in zip(vertex.subtasks, each, strict=True):
        by_subtask |= {f"{subtask.index}.{name}": value for name, value in named.items()}
        one = jobs.subtask_of(hosts, subtask, now_ms)
        yield f"{at}/subtasks/{subtask.index}", one
        yield f"{at}/subtasks/{subtask.index}/attempts/{subtask.attempt}", one
    yield f"{at}/metrics", _named(by_subtask)


def _named(known: metrics.Metrics) -> list[dict[str, str]]:
    return metrics.answer(known, ",".join(known))
