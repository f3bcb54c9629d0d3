"""Accumulators, of which no job here has any: their pages are empty. Source: dashboard §3.11."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.jobmaster.view import JobView, VertexView


def of_job(_: JobView) -> object:
    return {
        "job-accumulators": [],
        "user-task-accumulators": [],
        "serialized-user-task-accumulators": {},
    }


def of_vertex(_: JobView, vertex: VertexView) -> object:
    return {"id": vertex.id.hex(), "user-accumulators": []}


def of_subtasks(_: JobView, vertex: VertexView) -> object:
    return {"id": vertex.id.hex(), "parallelism": vertex.parallelism, "subtasks": []}
