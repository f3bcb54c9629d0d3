"""A step that failed in a job, run again here: its code, row, state and time come from a bundle.

The step is run as `OperatorHarness` runs one: alone, by the engine's own operator, under a clock
that stands where it stood.
"""

from __future__ import annotations

import json
import pickle
import zipfile
import zlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from flinkformat.frozen import frozen
from tidegate.api import ship
from tidegate.api.operator import SourceOperator
from tidegate.checkpoint.restore.redistribution import redistribute_operator
from tidegate.config.configuration import Configuration
from tidegate.config.settings import job_settings
from tidegate.errors import FormatError, TidegateError, UserCodeFailed, UserError
from tidegate.model.elements import Watermark
from tidegate.model.ids import CheckpointId
from tidegate.model.replay import FACTS, FORMAT, STATE, STEP, StepToReplay
from tidegate.model.restore import RestoredOperatorState
from tidegate.model.topology import Partitioner
from tidegate.testing.clock import ManualClock, ManualLoop
from tidegate.testing.harness import StepSubtask, the_step
from tidegate.testing.results import Results

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike

    from flinkformat.snapshots import SubtaskState
    from tidegate.api.operator import Operator, VertexPlan
    from tidegate.datastream.stream import DataStream

_TURNS_MAX: Final = 10_000

_DAMAGED: Final = (
    OSError,
    EOFError,
    KeyError,
    ValueError,
    RuntimeError,  # it is encrypted, compressed in an unknown way, or its JSON nests too deeply
    zipfile.BadZipFile,
    zlib.error,
)
"""Exceptions by which it shows that a file is no bundle, or not a whole one."""


@frozen
class Replayed:
    """The outcome of a step that was run again.

    error: what it has raised; None if nothing. results: with their event times. waits: for
    something outside, such as a service, which a replay does not wait for.
    """

    error: TidegateError | None
    results: list[tuple[Any, int | None]]
    side_results: Mapping[str, list[tuple[Any, int | None]]]
    waits: bool = False


class ReplayBundle:
    """A replay bundle that was read. facts: what it says for people.

    Running it runs the code in it: open only bundles of your own jobs.
    """

    def __init__(self, facts: Mapping[str, Any], step: bytes, state: bytes | None) -> None:
        self.facts: Final = facts
        self._step = step
        self._state = state

    @staticmethod
    def read(path: str | PathLike[str]) -> ReplayBundle:
        """Reads a file, without running anything in it. Raises UserError, FormatError."""
        try:
            with zipfile.ZipFile(path) as file:
                names = file.namelist()
                facts = json.loads(file.read(FACTS))
                step = file.read(STEP)
                state = file.read(STATE) if STATE in names else None
            if not isinstance(facts, dict):
                raise ValueError(f"{FACTS} holds {type(facts).__name__}, and not an object")
        except FileNotFoundError as error:
            raise UserError(f"There is no file {path}", where="tidegate replay") from error
        except PermissionError as error:
            raise UserError(
                f"The file {path} may not be read",
                where="tidegate replay",
                remedy="A bundle is for the user alone whose driver has written it.",
            ) from error
        except _DAMAGED as error:
            raise FormatError(
                f"This is no replay bundle: {error}",
                where=str(path),
                remedy="Name a file that a job has written to its tidegate.replay.dir.",
            ) from error
        if facts.get("format") != FORMAT:
            raise UserError(
                f"The bundle has format {facts.get('format')}, and this version reads {FORMAT}",
                where=str(path),
                remedy="Use the version of Tidegate that has written it, which its facts name.",
            )
        return ReplayBundle(facts, step, state)

    def run(self, build: Callable[..., DataStream[Any]] | None = None) -> Replayed:
        """Runs the step once. build: makes it as it is now, from its streams, as for a harness.

        Raises UserError for a step that cannot be run again, UserCodeFailed where its code cannot
        be loaded here.

        >>> ReplayBundle.read("late.replay").run(lambda s: s.key_by(user).process(Totals()))
        """
        step = self._loaded()
        if build is None:
            return self._run(step, self._plan(step).operators[step.operator])
        vertex = step.vertex
        _, node, _ = the_step(build, _inputs(step), vertex.parallelism, vertex.max_parallelism)
        return self._run(step, node.operator)

    def run_operator(self, operator: Operator) -> Replayed:
        """Runs a step of a program in the place of the one in the bundle. Raises as `run`."""
        return self._run(self._loaded(), operator)

    def _run(self, step: StepToReplay, operator: Operator) -> Replayed:
        operator = cast("Operator", ship.loads(ship.dumps(operator, name=step.info.name), name=""))
        _check(step, operator, self.facts)
        clock = ManualClock(step.wall_ms if step.timer is None else max(step.wall_ms, _due(step)))
        loop, results = ManualLoop(clock), Results()
        inputs = [(Partitioner.REBALANCE, port) for port in range(_inputs(step))]
        info = replace(step.info, upstream=None)
        vertex = replace(step.vertex, operators=(info,))
        settings = replace(job_settings(Configuration()), parameters=step.parameters)
        subtask = StepSubtask(
            vertex, inputs, operator, step.subtask, settings, loop, results, CheckpointId(1)
        )
        subtask.outputs += [cast("Any", _NobodySends())] * len(inputs)
        error, waits = None, False
        try:
            loop.on(partial(subtask.open, self._restored()))
            waits = _run(subtask, step, loop)
        except UserCodeFailed as failed:
            error = failed
        finally:
            _end(subtask, loop)
        return Replayed(error, results.main, results.sides, waits)

    def _loaded(self) -> StepToReplay:
        return cast("StepToReplay", ship.loads(self._step, name=self.facts["operator"]))

    def _plan(self, step: StepToReplay) -> VertexPlan:
        return cast("VertexPlan", ship.loads(step.plan, name=step.info.name))

    def _restored(self) -> RestoredOperatorState:
        if self._state is None:
            return RestoredOperatorState()
        state = cast("SubtaskState", pickle.loads(self._state))
        [lists] = redistribute_operator([state.managed_operator], 1)
        return RestoredOperatorState(
            managed_keyed=() if state.managed_keyed is None else (state.managed_keyed,),
            managed_operator=tuple(lists),
        )


class _NobodySends:
    """The sending end of a channel in which nothing comes."""

    def granted(self, batches: int) -> None:
        del batches


def _inputs(step: StepToReplay) -> int:
    """How many inputs a step has; in the first bundles they were not counted."""
    counted: int = getattr(step, "inputs", step.port + 1)
    return counted


def _due(step: StepToReplay) -> int:
    """The time of the timer that was called, where that is processing time."""
    assert step.timer is not None, "a timer's call"
    ms, by_event = step.timer
    return step.wall_ms if by_event else ms


def _check(step: StepToReplay, operator: Operator, facts: Mapping[str, Any]) -> None:
    """Raises UserError for a step that cannot be run again."""
    why = ""
    if isinstance(operator, SourceOperator):
        why = "a source reads from outside"
    elif step.batch is None and step.timer is None:
        why = f"it failed in its {facts['call'] or 'work'}, where it was given no row"
    if why:
        raise UserError(
            f"The step cannot be run again: {why}",
            where=f"operator '{step.info.name}'",
            remedy="The bundle shows what was at hand: error, state, last inputs.",
        )


def _run(subtask: StepSubtask, step: StepToReplay, loop: ManualLoop) -> bool:
    """Give the step what it was given; true if it then waits for something outside."""
    chained = subtask.chained
    loop.on(subtask.begin)
    if step.watermark_ms is not None and step.timer is None:
        loop.on(partial(chained.accept_watermark, Watermark(step.watermark_ms)))
    if step.batch is not None:
        loop.on(partial(chained.accept, step.batch, step.port))
    elif step.timer is not None:
        ms, by_event = step.timer
        if by_event:
            loop.on(partial(chained.accept_watermark, Watermark(ms)))
        else:
            loop.on(chained.ready)
    for _ in range(_TURNS_MAX):
        loop.run_ready()
        if not loop.on(subtask.advance) and chained.idle:
            break
    return not (chained.idle and subtask.operator.drained)


def _end(subtask: StepSubtask, loop: ManualLoop) -> None:
    """Close the step; what fails then is not what the replay is about."""
    try:
        loop.run_until_complete(subtask.close())
    except TidegateError:
        pass
    finally:
        loop.end()
