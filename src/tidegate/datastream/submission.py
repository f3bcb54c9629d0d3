"""How a program becomes a job: translated, warned about, and handed to a runtime."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tidegate.config import execution, recovery
from tidegate.datastream.checking.notices import warn
from tidegate.datastream.process import dry_run, python_files
from tidegate.datastream.process.script import script_name
from tidegate.datastream.settings.execution_config import ExecutionConfig
from tidegate.errors import ConfigError, GraphError
from tidegate.graph.explain import explain_mermaid, explain_text
from tidegate.graph.job_graph import translate
from tidegate.graph.runtime import load_check
from tidegate.graph.stream_graph import build_stream_graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.api.job.client import JobClient
    from tidegate.api.job.failures import FailureEnricher
    from tidegate.api.job.hooks import MasterTriggerRestoreHook
    from tidegate.api.job.listeners import JobStatusChangedListener
    from tidegate.config.configuration import Configuration
    from tidegate.datastream.program import Program
    from tidegate.graph.job_graph import JobGraph
    from tidegate.graph.runtime import Runtime
    from tidegate.graph.stream_graph import StreamGraph
    from tidegate.graph.transformations import OperatorTransformation

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
        """The graph with all of them."""
        return replace(
            graph,
            hooks=tuple(self._hooks.values()),
            enrichers=tuple(self._enrichers),
            listeners=tuple(self._listeners),
        )


def send_failed_rows_where_asked(program: Program, configuration: Configuration) -> None:
    """Adds steps that write failed rows to a folder, where an option names one."""
    if (folder := configuration.get(execution.DEAD_LETTERS)) is not None:
        from tidegate.datastream.steps.dead_letters import send_failed_rows  # many operators

        send_failed_rows(program, folder)


def translated(
    operators: tuple[OperatorTransformation, ...],
    configuration: Configuration,
    job_name: str | None,
) -> tuple[StreamGraph, JobGraph]:
    """The job as written, and as it would run. Raises GraphError."""
    max_parallelism = ExecutionConfig(configuration).get_max_parallelism()
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
    if dry_run.is_wanted():
        raise dry_run.Planned(stream_graph, graph, configuration)
    python_files.make_importable(configuration.get(execution.PYTHON_FILES))
    if CHECK_VARIABLE in os.environ:
        return load_check(os.environ[CHECK_VARIABLE]).submit(graph)
    for node in stream_graph.nodes:
        node.operator.check()
    warn(stream_graph, configuration, checkpointing=graph.settings.checkpoints.periodic)
    return make_runtime(configuration.copy()).submit(graph)


def explained(graph: JobGraph, format: str) -> str:
    """The graph for people, as text or as a diagram. Raises GraphError for another format."""
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
