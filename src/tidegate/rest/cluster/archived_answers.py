"""Answers of a job that cannot be asked any more, out of its archive."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from tidegate.rest.refusals import BadRequest
from tidegate.rest.shapes import log_shapes

if TYPE_CHECKING:
    from collections.abc import Mapping

_ENTRIES: Final = re.compile("[0-9]{1,9}")
_JOBS: Final = "/jobs/"
_LOG: Final = "/log"
_METRICS: Final = "/metrics"


def answer_of(
    answers: Mapping[str, str], path: str, query: Mapping[str, str], *, state: str, trouble: str
) -> str | None:
    """The answer as JSON, or as lines of a log; None if there is none.

    Raises BadRequest for a faulty question. state, trouble: of the job now.
    """
    if path.endswith(_METRICS):
        found = _metrics(answers, path, query)
        return None if found is None else json.dumps(found)
    text = answers.get(path)
    if text is None:
        return None
    if path.endswith(_LOG):
        told = log_shapes.asked_for(log_shapes.LeftLog(json.loads(text)).read, query)
        lines = log_shapes.is_text(query)
        return log_shapes.lines(told) if lines else json.dumps(log_shapes.page(told))
    if path.endswith("/exceptions") and path.startswith(_JOBS):
        return json.dumps(_newest(json.loads(text), query.get("maxExceptions", "20")))
    if path.startswith(_JOBS) and path.count("/") == 2 and trouble:
        return json.dumps({**json.loads(text), "state": state})
    if path.endswith("/picture"):
        seen = json.loads(text)
        told = {"state": state, "trouble": trouble, "left": True}
        return json.dumps({**seen, "job": {**seen["job"], **told}})
    return text


def _newest(told: Any, most: str) -> object:
    if not _ENTRIES.fullmatch(most):
        raise BadRequest(f"maxExceptions is a number, and '{most}' is none.")
    history = told["exceptionHistory"]
    entries = history["entries"]
    kept = {"entries": entries[: int(most)], "truncated": len(entries) > int(most)}
    return {**told, "exceptionHistory": {**history, **kept}}


def _metrics(answers: Mapping[str, str], path: str, query: Mapping[str, str]) -> object | None:
    """Names of metrics, or those that are wanted with their values."""
    found = answers.get(path)
    known: list[dict[str, Any]] | None = None if found is None else json.loads(found)
    if known is None:
        known = _of_subtask(answers, path)
    if known is None or "get" not in query:
        return None if known is None else [{"id": each["id"]} for each in known]
    wanted = query["get"].split(",")
    ways = query["agg"].lower().split(",") if "agg" in query else None
    return [
        each if ways is None else {key: each[key] for key in ("id", *ways) if key in each}
        for each in known
        if each["id"] in wanted
    ]


def _of_subtask(answers: Mapping[str, str], path: str) -> list[dict[str, Any]] | None:
    """Metrics of one subtask out of those of its vertex."""
    vertex, _, index = path.removesuffix(_METRICS).rpartition("/subtasks/")
    of_vertex = answers.get(f"{vertex}{_METRICS}")
    if of_vertex is None or not index.isdecimal():
        return None
    start = f"{index}."
    return [
        {**each, "id": each["id"].removeprefix(start)}
        for each in json.loads(of_vertex)
        if each["id"].startswith(start)
    ]
