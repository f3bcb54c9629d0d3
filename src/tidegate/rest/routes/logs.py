"""The log of the job: of its driver and of each slot, as Flink has them, and of the whole job.

Source: dashboard §3.7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.model.control import STDERR, STDOUT
from tidegate.model.logs import LogFilter
from tidegate.rest.messages import text_response
from tidegate.rest.refusals import NotFound
from tidegate.rest.served import NO_FILE, Route
from tidegate.rest.shapes import log_shapes
from tidegate.telemetry.log_lines import as_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.web import Request, Response

    from tidegate.model.control import LogRecord
    from tidegate.model.logs import LogPage
    from tidegate.rest.served import ServedJob

_DRIVER: Final = "/jobmanager"
_SLOT: Final = "/taskmanagers/{taskmanagerid}"
DRIVER_LOG: Final = "driver.log"
SLOT_LOG, SLOT_LINES = "slot.log", "slot.out"


def routes(served: ServedJob) -> list[Route]:
    async def slot_log(request: Request) -> object:
        return _text(await _of_slot(served, request), SLOT_LOG, SLOT_LOG)

    async def slot_lines(request: Request) -> object:
        return _text(await _of_slot(served, request), SLOT_LINES, SLOT_LINES)

    async def slot_file(request: Request) -> object:
        name = request.match_info["name"]
        return _text(await _of_slot(served, request), name, SLOT_LOG, SLOT_LINES)

    async def slot_files(request: Request) -> object:
        records = await _of_slot(served, request)
        return {"logs": [_file(name, records, served.now_ms) for name in (SLOT_LOG, SLOT_LINES)]}

    async def whole(request: Request) -> object:
        served.job_id(request)
        page = log_shapes.asked_for(served.client.log, request.query)
        if log_shapes.is_text(request.query):
            return text_response(log_shapes.lines(page))
        return log_shapes.page(page)

    return [
        Route("GET", f"{_SLOT}/log", slot_log),
        Route("GET", f"{_SLOT}/stdout", slot_lines),
        Route("GET", f"{_SLOT}/logs", slot_files),
        Route("GET", f"{_SLOT}/logs/{{name}}", slot_file),
        Route("GET", "/jobs/{jobid}/log", whole),
    ]


def driver_routes(read: Callable[..., LogPage]) -> list[Route]:
    """Routes of the log of this process. read: as `JobClient.log`."""

    async def text(request: Request) -> object:
        return _text(_records(read, ""), request.match_info.get("name", DRIVER_LOG), DRIVER_LOG)

    async def files(request: Request) -> object:
        return {"logs": [_file(DRIVER_LOG, _records(read, ""), 0)]}

    return [
        Route("GET", f"{_DRIVER}/log", text),
        Route("GET", f"{_DRIVER}/logs", files),
        Route("GET", f"{_DRIVER}/logs/{{name}}", text),
    ]


async def _of_slot(served: ServedJob, request: Request) -> list[LogRecord]:
    _, slot = await served.slot(request)
    return _records(served.client.log, slot.id)


def _records(read: Callable[..., LogPage], slot: str) -> list[LogRecord]:
    """All that is kept of a slot, or of the driver, page by page."""
    records: list[LogRecord] = []
    after = 0
    while (page := read(LogFilter(slot=slot), after=after)).entries:
        records += [entry.record for entry in page.entries]
        after = page.after
    return records


def _text(records: list[LogRecord], name: str, *known: str) -> Response:
    if name not in known:
        raise NotFound(NO_FILE)
    return text_response(_content(name, records))


def _content(name: str, records: list[LogRecord]) -> str:
    if name == SLOT_LINES:
        lines = (each.text for each in records if each.logger in (STDOUT, STDERR))
    else:
        lines = (as_text(each) for each in records)
    return "".join(f"{line}\n" for line in lines)


def _file(name: str, records: list[LogRecord], now_ms: int) -> dict[str, object]:
    size = len(_content(name, records).encode(errors="replace"))
    return {"name": name, "size": size, "mtime": records[-1].at_ms if records else now_ms}
