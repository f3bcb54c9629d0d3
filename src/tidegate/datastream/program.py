"""Content of a program so far, and how it becomes a job: translated, and handed to a runtime."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tidegate.config import execution, recovery
from tidegate.config.warnings import Warn, process_warnings
from tidegate.datastream.checking.notices import warn
from tidegate.datastream.process.outside import Planned, is_dry_run, make_importable, script_name
from tidegate.errors import ConfigError, GraphError
from tidegate.graph.job_graph import translate
from tidegate.graph.stream_graph import build_stream_graph
from tidegate.graph.transformations import NodeKind, OperatorTransformation, Placement, StateOf

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.api.job import (
        FailureEnricher,
        JobClient,
        JobStatusChangedListener,
        MasterTriggerRestoreHook,
    )
    from tidegate.api.operator import Operator
    from tidegate.config.configuration import Configuration
    from tidegate.graph.job_graph import JobGraph
    from tidegate.graph.runtime import Runtime
    from tidegate.graph.stream_graph import StreamGraph
    from tidegate.graph.transformations import Transformation


class Program:
    """Counts the calls and keeps the operators that were made since the last execution.

    Sources are kept by those who read them.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._calls = 0
        self.shown = False
        """Whether the program was asked for its plan, which may be all that was wanted."""
        self.executed = False
        """Whether steps were taken for an execution before."""
        self._operators: list[OperatorTransformation] = []

    @property
    def operators(self) -> tuple[OperatorTransformation, ...]:
        """The operators that the next execution runs, with all that they read."""
        return tuple(self._operators)

    def add(
        self,
        kind: NodeKind,
        name: str,
        operator: Operator,
        inputs: tuple[Transformation, ...] = (),
        *,
        keyed: bool = False,
        stateful: bool = False,
        parallelism_max: int | None = None,
    ) -> OperatorTransformation:
        self._calls += 1
        parallelism = self._configuration.get(execution.PARALLELISM)
        made = OperatorTransformation(
            id=self._calls,
            kind=kind,
            name=name,
            operator=operator,
            inputs=inputs,
            placement=Placement(min(parallelism, parallelism_max or parallelism), parallelism_max),
            state=StateOf(keyed, stateful),
        )
        if kind is not NodeKind.SOURCE:
            self._operators.append(made)
        return made

    def number(self) -> int:
        """How many operators were made in all; grows with each."""
        return self._calls

    def take(self) -> tuple[OperatorTransformation, ...]:
        """The operators, which then belong to whoever took them; a new program begins."""
        taken = self.operators
        self._operators.clear()
        return taken

    def take_for_execution(self) -> tuple[OperatorTransformation, ...]:
        """Takes the operators. Raises GraphError if an execution before has taken all."""
        taken = self.take()
        if not taken and self.executed:
            raise GraphError(
                "No operators defined in streaming topology. Cannot execute: the execution before "
                "has taken all steps",
                remedy="Each of execute, execute_async, execute_and_collect, collect and to_arrow "
                "runs what was built since the one before; call one of them, or build the steps "
                "again.",
            )
        self.executed = True
        return taken


CHECK_VARIABLE: Final = "TIDEGATE_CHECK"
"""Path of the snapshot that programs are only laid over, by ``tidegate check``; nothing is run."""


class Observers:
    """Companions of a job beside its steps: hooks, enrichers of failures, listeners."""

    def __init__(self) -> None:
        self._hooks: dict[str, MasterTriggerRestoreHook[Any]] = {}
        self._enrichers: list[FailureEnricher] = []
        self._listeners: list[JobStatusChangedListener] = []

    def add_hook(self, hook: MasterTriggerRestoreHook[Any]) -> bool:
        """Adds a hook, and tells if none had its identifier. Raises ConfigError for a blank one."""
        name = hook.get_identifier()
        if not name.strip():
            raise ConfigError(
                "A master hook has a blank identifier",
                where="add_master_hook",
                remedy="Return a name from get_identifier; its state is found again by it.",
            )
        if name in self._hooks:
            return False
        self._hooks[name] = hook
        return True

    def add_enricher(self, enricher: FailureEnricher) -> None:
        """Adds an enricher. Raises ConfigError for keys that are blank, missing or taken."""
        keys = enricher.get_output_keys()
        taken = {key for known in self._enrichers for key in known.get_output_keys()}
        if not keys or not all(key.strip() for key in keys) or keys & taken:
            raise ConfigError(
                f"A failure enricher gives the keys {sorted(keys)}",
                where="add_failure_enricher",
                remedy="Return from get_output_keys at least one key, none of them blank"
                f"{f' or among {sorted(taken)}' if taken else ''}.",
            )
        self._enrichers.append(enricher)

    def add_listener(self, listener: JobStatusChangedListener) -> None:
        """Adds a listener. Raises ConfigError for anything else."""
        if not callable(getattr(listener, "on_event", None)):
            raise ConfigError(
                f"{listener!r} is not a job status listener",
                where="register_job_listener",
                remedy="Give an instance of a class derived from JobStatusChangedListener.",
            )
        self._listeners.append(listener)

    def attached_to(self, graph: JobGraph) -> JobGraph:
        return replace(
            graph,
            hooks=tuple(self._hooks.values()),
            enrichers=tuple(self._enrichers),
            listeners=tuple(self._listeners),
        )


def tell_of_unexecuted(program: Program, configuration: Configuration) -> None:
    """Warn at the end of the process if the program has sinks, or all its steps, left to run."""
    # Held weakly: programs that were dropped on purpose need no warning.
    kept = weakref.ref(program, lambda _: atexit.unregister(tell))

    def tell() -> None:
        left = kept()
        if left is None or left.shown or hasattr(sys, "last_value"):
            return
        steps = left.operators
        sinks = [each.name for each in steps if each.kind is NodeKind.SINK]
        if sinks:
            facts = {"sinks": sinks}
        elif steps and not left.executed and not hasattr(sys, "ps1"):
            facts = {"steps": [each.name for each in steps]}
        else:
            return
        process_warnings(configuration).warn(
            Warn.NOT_EXECUTED,
            "the program ends, and these steps have never run; call env.execute()",
            **facts,
        )

    atexit.register(tell)


def translated(
    operators: tuple[OperatorTransformation, ...],
    configuration: Configuration,
    job_name: str | None,
) -> tuple[StreamGraph, JobGraph]:
    max_parallelism = configuration.get(execution.MAX_PARALLELISM)
    stream_graph = build_stream_graph(operators, max_parallelism if max_parallelism > 0 else None)
    fork, named = map(configuration.get, (recovery.FORK_NAME, execution.JOB_NAME))
    name = fork or job_name or named or script_name()
    return stream_graph, translate(stream_graph, configuration, name)


def submitted(
    stream_graph: StreamGraph,
    graph: JobGraph,
    configuration: Configuration,
    make_runtime: Callable[[Configuration], Runtime],
) -> JobClient:
    """Starts a job, or only looks at it where ``tidegate plan`` or ``tidegate check`` does.

    Raises GraphError and ConfigError before anything is started.
    """
    if is_dry_run():
        raise Planned(stream_graph, graph, configuration)
    make_importable(configuration.get(execution.PYTHON_FILES))
    if CHECK_VARIABLE in os.environ:
        import_module("tidegate.upgrade.check").check_only(graph, os.environ[CHECK_VARIABLE])
    for node in stream_graph.nodes:
        node.operator.check()
    warn(stream_graph, configuration, graph.settings.checkpoints)
    return make_runtime(configuration.copy()).submit(graph)


def explained(graph: JobGraph, format: str) -> str:
    from tidegate.graph.explain import explain_mermaid, explain_text  # few programs ask

    match format:
        case "text":
            return explain_text(graph)
        case "mermaid":
            return explain_mermaid(graph)
        case _:
            raise GraphError(
                f"There is no form {format!r} of explain",
                where="explain",
                remedy="Ask for 'text' or 'mermaid'.",
            )
