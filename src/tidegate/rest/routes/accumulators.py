"""Accumulators, of which no job here has any: their pages are empty. Source: dashboard §3.11."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.rest.shapes import accumulator_shapes as shapes

if TYPE_CHECKING:
    from tidegate.rest.served import Route, ServedJob


def routes(served: ServedJob) -> list[Route]:
    return [
        served.shows("/accumulators", shapes.of_job),
        served.shows_vertex("/accumulators", shapes.of_vertex),
        served.shows_vertex("/subtasks/accumulators", shapes.of_subtasks),
    ]
