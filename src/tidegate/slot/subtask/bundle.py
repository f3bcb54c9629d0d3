"""All that it takes to run a step that failed again, elsewhere: the replay bundle.

It is made when a step has failed, from what is at hand then; until then a job that keeps bundles
pays for references to its last batches alone. So state is as the function has left it.
"""

from __future__ import annotations

import io
import itertools
import json
import pickle
import sys
import zipfile
from dataclasses import dataclass
from importlib.metadata import distributions
from operator import eq, is_
from typing import TYPE_CHECKING, Any, Final

from tidegate.api import ship
from tidegate.api.functions import TimeDomain
from tidegate.api.rows.batches import as_rows, shown
from tidegate.config.option import without_secrets
from tidegate.errors import ConfigError, UserCodeFailed
from tidegate.model.control import FailedStep
from tidegate.model.elements import ArrowBatch, RowBatch
from tidegate.model.ids import CheckpointId
from tidegate.model.replay import FACTS, FORMAT, STATE, STEP, StepToReplay
from tidegate.model.versions import versions
from tidegate.slot.driver_link import as_ours, operator_of
from tidegate.state.user.timers import TIMERS
from tidegate.storage.places import inline_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from tidegate.clock import Clock
    from tidegate.errors import FailedCall
    from tidegate.loops.cells import KeyCell
    from tidegate.model.elements import Batch
    from tidegate.model.settings import ReplaySettings
    from tidegate.slot.subtask.chain import ChainedOperator
    from tidegate.slot.subtask.subtask import Subtask
    from tidegate.state.backend import StatesOfKey

LOOKING_S: Final = 2.0
"""How long state is looked through for the key."""

ON_TIMER: Final = "on_timer"
_USER_TIMERS: Final = {True: f"{TIMERS}event_user-timers", False: f"{TIMERS}processing_user-timers"}
_SHOWN_MAX: Final = 20
_TEXT_MAX: Final = 1_000


@dataclass(slots=True)
class _Given:
    """Input of the failed call: a piece of a batch, or a timer. key, group: None without."""

    batch: Batch | None = None
    port: int = 0
    row: object = None
    timer: tuple[int, bool] | None = None
    key: object = None
    group: int | None = None


def bundle_of(subtask: Subtask, error: Exception, clock: Clock) -> FailedStep | None:
    """The bundle of a subtask that fails; None where no function of a step has raised."""
    if not isinstance(error, UserCodeFailed) or error.call is None:
        return None
    failed = _failed(subtask, error)
    if failed is None:
        return None
    index, chained = failed
    settings = subtask.deployment.settings
    assert settings.slot.replay is not None, "asked for"
    given = _given(chained, error.call)
    state = _state(chained, given, clock)
    step = StepToReplay(
        subtask.deployment.deploy.operators,
        index,
        subtask.deployment.vertex.operators[index],
        subtask.deployment.vertex,
        subtask.deployment.index,
        clock.wall_ms(),
        chained.watermark_ms,
        given.batch,
        given.port,
        given.timer,
        without_secrets(settings.parameters),
        _inputs(subtask) if index == 0 else 1,
    )
    facts = _facts(subtask, chained, error, given, state, clock)
    content = _written(step, chained, state, facts, settings.slot.replay)
    return FailedStep(subtask.execution, chained.context.info.name, content)


def _failed(subtask: Subtask, error: UserCodeFailed) -> tuple[int, ChainedOperator] | None:
    """The operator whose function has raised: by the traceback, else by its name."""
    operators = subtask.chain.operators
    found: ChainedOperator | None = None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        found = operator_of(trace.tb_frame) or found
        trace = trace.tb_next
    assert error.call is not None, "looked at before"
    name = error.call.operator
    for index, each in enumerate(operators):
        if each is found or (found is None and each.context.info.name == name):
            return index, each
    return None


def _inputs(subtask: Subtask) -> int:
    """How many inputs the head of its chain has."""
    topology = subtask.deployment.deploy.topology
    edges = topology.inputs(subtask.deployment.vertex.id)
    return 1 + max((topology.edges[edge].port for edge in edges), default=0)


def _given(chained: ChainedOperator, call: FailedCall) -> _Given:
    cell = chained.backend.cell
    if call.name == ON_TIMER:
        row: Any = getattr(chained.operator, "_row", None)
        by_event = row is None or row.domain is TimeDomain.EVENT_TIME
        timer = (call.row, by_event) if isinstance(call.row, int) else None
        return _Given(timer=timer, key=cell.key, group=cell.group)
    if call.name or chained.inputs is None or not chained.inputs.batches:
        return _Given()
    for batch, port in reversed(chained.inputs.batches):
        if isinstance(batch, RowBatch):
            at = _place(batch, call, cell, is_)
            if at is not None:
                return _of_row(_plain(batch.piece(at, at + 1)), port)
    batch, port = chained.inputs.batches[-1]
    if type(batch) is RowBatch or (isinstance(batch, ArrowBatch) and batch.key_column is None):
        return _Given(batch, port, call.row)  # of a function of whole batches
    rows = _plain(batch)  # of columns, of which the function was given a row that is gone
    at = _place(rows, call, cell, eq)
    if at is None:
        return _Given(rows, port, call.row)
    return _of_row(rows.piece(at, at + 1), port)


def _place(
    batch: RowBatch, call: FailedCall, cell: KeyCell, same: Callable[[object, object], bool]
) -> int | None:
    """Where a function's row stands in a batch; None if it is not there.

    same: tells whether a value is that row. Of several the call says which, or the cell does,
    which has the key and the time of the row in hand.
    """

    def agreement(at: int) -> tuple[bool, bool, bool]:
        key = None if batch.keys is None else batch.keys[at]
        stamp_ms = None if batch.timestamps_ms is None else batch.timestamps_ms[at]
        return at == call.at, key == cell.key, stamp_ms == cell.timestamp_ms

    places = [at for at, value in enumerate(batch.values) if same(value, call.row)]
    return max(places, key=agreement, default=None)


def _plain(batch: Batch) -> RowBatch:
    """The rows of a batch that may be columns."""
    rows = as_rows(batch)
    return RowBatch(list(rows.values), rows.timestamps_ms, rows.keys, rows.key_groups)


def _of_row(batch: RowBatch, port: int) -> _Given:
    keyed = batch.keys is not None and batch.key_groups is not None
    key = batch.keys[0] if batch.keys is not None and keyed else None
    group = batch.key_groups[0] if batch.key_groups is not None and keyed else None
    return _Given(batch, port, batch.values[0], key=key, group=group)


def _state(chained: ChainedOperator, given: _Given, clock: Clock) -> StatesOfKey:
    until_s = clock.precise_s() + LOOKING_S
    group = -1 if given.group is None else given.group
    state = chained.backend.of_key(given.key, group, lambda: clock.precise_s() < until_s)
    if given.timer is not None:
        ms, by_event = given.timer
        name, pair = _USER_TIMERS[by_event], (given.key, ms)
        entries = state.entries.setdefault(name, [])
        if all(found != pair for found, _ in entries):  # it was taken out before it was called
            state.put(name, group, [*entries, (pair, True)])
    return state


def _facts(
    subtask: Subtask,
    chained: ChainedOperator,
    error: UserCodeFailed,
    given: _Given,
    state: StatesOfKey,
    clock: Clock,
) -> dict[str, object]:
    info = chained.context.info
    batch = given.batch
    stamps = batch.timestamps_ms if isinstance(batch, RowBatch) else None
    packages = sorted({f"{each.name} {each.version}" for each in distributions()})
    return {
        "format": FORMAT,
        "job": info.job,
        "task": info.numbered_task,
        "operator": info.name,
        "uid": next(
            (one.uid for one in subtask.deployment.vertex.operators if one.id == info.operator),
            None,
        ),
        "subtask": info.subtask,
        "attempt": info.attempt,
        "failed_ms": clock.wall_ms(),
        "watermark_ms": chained.watermark_ms,
        "error": str(as_ours(error, info.numbered_task)),
        "call": "" if error.call is None else error.call.name,
        "rows": 0 if batch is None else len(batch),
        "row": None if batch is None else shown(given.row, _TEXT_MAX),
        "timestamp_ms": stamps[0] if stamps and len(stamps) == 1 else None,
        "timer_ms": None if given.timer is None else given.timer[0],
        "key": None if given.group is None else shown(given.key, _TEXT_MAX),
        "state": {
            name: [shown(entry, _TEXT_MAX) for _, entry in rows[:_SHOWN_MAX]]
            for name, rows in state.entries.items()
            if not name.startswith(TIMERS)
        },
        "timers": {
            name.removeprefix(TIMERS): [shown(key) for key, _ in rows[:_SHOWN_MAX]]
            for name, rows in state.entries.items()
            if name.startswith(TIMERS)
        },
        "last_inputs": [],
        "left_out": list(state.left_out),
        "versions": {**versions(), "python": sys.version.split()[0]},
        "packages": packages,
    }


def _last(chained: ChainedOperator) -> Iterator[str]:
    """The last inputs in words, the newest first."""
    for batch, _ in reversed(chained.inputs.batches if chained.inputs else ()):
        yield from (shown(row, _TEXT_MAX) for row in reversed(as_rows(batch).values))


def _written(
    step: StepToReplay,
    chained: ChainedOperator,
    state: StatesOfKey,
    facts: dict[str, Any],
    limits: ReplaySettings,
) -> bytes:
    """The file. What does not fit is left out, as its facts say. Raises UserError."""
    name = chained.context.info.name
    content = {STEP: ship.dumps(step, name=name)}
    room = limits.bytes_max - len(json.dumps(facts)) - len(content[STEP])
    if room < 0:
        raise ConfigError(
            f"The code and the row of operator '{name}' alone are larger than a bundle may be",
            where="tidegate.replay.max-size",
        )
    pending = state.backend.snapshot(CheckpointId(1))
    pending.finish()
    written = pickle.dumps(pending.upload(inline_place(itertools.count())))
    if len(written) <= room:
        content[STATE] = written
        room -= len(written)
    else:
        facts["left_out"].append(f"state of {len(written):,} bytes")
    for text in itertools.islice(_last(chained), limits.rows):
        room -= len(text) + 4
        if room < 0:
            facts["left_out"].append("earlier inputs")
            break
        facts["last_inputs"].append(text)
    content[FACTS] = json.dumps(facts, indent=2).encode()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle:
        for part, data in content.items():
            bundle.writestr(part, data)
    return file.getvalue()
