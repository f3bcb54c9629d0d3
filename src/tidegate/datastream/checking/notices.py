"""Warnings for a program when it is submitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.api.operator import SourceOperator
from tidegate.config.checkpointing import (
    CHECKPOINT_DIRECTORY,
    CHECKPOINT_INTERVAL,
    CHECKPOINTS_AFTER_TASKS_FINISH,
)
from tidegate.config.configuration import closest_key, configuration_warnings
from tidegate.config.warnings import SILENCED, Warn, process_warnings
from tidegate.errors import GraphError
from tidegate.graph.transformations import NodeKind

if TYPE_CHECKING:
    from tidegate.config.configuration import Configuration
    from tidegate.config.warnings import Warnings
    from tidegate.graph.stream_graph import StreamGraph
    from tidegate.model.settings import CheckpointSettings


def warn(graph: StreamGraph, configuration: Configuration, checkpoints: CheckpointSettings) -> None:
    """Log what a program sets or leaves out without seeing what comes of it.

    Raises GraphError for a sink that would never show anything, or not all.
    """
    warnings = process_warnings(configuration)
    for text in configuration_warnings(configuration):
        warnings.warn(Warn.OPTION_WITHOUT_EFFECT, "a setting has no effect", setting=text)
    for key, where in configuration.unread_keys().items():
        warnings.warn(
            Warn.UNKNOWN_OPTION,
            "no option has this key, and nothing has read it",
            key=key,
            nearest=closest_key(key),
            where=where,
        )
    if not checkpoints.periodic and configuration.get(CHECKPOINT_DIRECTORY) is None:
        _check_sinks(graph, warnings)
    if checkpoints.periodic and not checkpoints.after_tasks_finish:
        _check_ends(graph)
    if checkpoints.interval_ms is not None:
        _check_interval(graph, checkpoints.interval_ms)
    _warn_of_sources(graph, warnings)
    _warn_of_no_sink(graph, warnings)
    missing = graph.missing_uids() if checkpoints.periodic else {}
    if missing:
        warnings.warn(
            Warn.MISSING_UID,
            "operators with state have no uid; after a change of the program "
            "their state may not be found: call uid() on each",
            proposed_uids=missing,
        )


def _check_sinks(graph: StreamGraph, warnings: Warnings) -> None:
    """Raises GraphError if a sink would never show anything of its endless input."""
    from tidegate.operators.sinks.sink import SinkHost

    endless = _fed_without_end(graph)
    for node in graph.nodes:
        operator = node.operator
        if node.id not in endless or not isinstance(operator, SinkHost) or not operator.commits:
            continue
        if not warnings.is_silenced(Warn.NO_CHECKPOINTS):
            raise GraphError(
                f"'{node.name}' shows its output when a checkpoint is complete, and its input "
                "never ends, but the job takes no checkpoints: nothing would ever be seen",
                where=f"sink '{node.name}'",
                remedy="Call env.enable_checkpointing(10_000). Where checkpoints are only taken on "
                f"demand, set {CHECKPOINT_DIRECTORY.key}, or {SILENCED.key} to "
                f"{Warn.NO_CHECKPOINTS.value}.",
            )


def _check_ends(graph: StreamGraph) -> None:
    """Raises GraphError if a sink waits for a checkpoint that is not taken once a source ends."""
    from tidegate.operators.sinks.sink import SinkHost

    ending = [
        node.name
        for node in graph.nodes
        if isinstance(node.operator, SourceOperator) and node.operator.bounded
    ]
    for node in graph.nodes:
        if ending and isinstance(node.operator, SinkHost) and node.operator.waits_for_checkpoints:
            raise GraphError(
                f"'{node.name}' shows its output when a checkpoint is complete, and none is taken "
                f"once '{ending[0]}' has ended: the output after the last one would never be seen",
                where=f"sink '{node.name}', {CHECKPOINTS_AFTER_TASKS_FINISH.key}: false",
                remedy=f"Leave {CHECKPOINTS_AFTER_TASKS_FINISH.key} at true, or take no "
                "checkpoints: then sinks commit at the end.",
            )


def _check_interval(graph: StreamGraph, interval_ms: int) -> None:
    """Raises GraphError if a sink's output would be lost before a checkpoint commits it."""
    from tidegate.operators.sinks.sink import SinkHost

    for node in graph.nodes:
        limit_ms = node.operator.commits_within_ms if isinstance(node.operator, SinkHost) else None
        if limit_ms is not None and interval_ms >= limit_ms:
            raise GraphError(
                f"A checkpoint is taken each {interval_ms / 1000:g} s, and '{node.name}' loses "
                f"what is not committed within {limit_ms / 1000:g} s",
                where=f"sink '{node.name}', {CHECKPOINT_INTERVAL.key}",
                remedy="Take checkpoints more often; or let the sink wait longer, as with "
                'set_property("transaction.timeout.ms", …) of a KafkaSink.',
            )


def _fed_without_end(graph: StreamGraph) -> set[int]:
    """Ids of the nodes that an endless source feeds."""
    reached = {
        node.id
        for node in graph.nodes
        if isinstance(node.operator, SourceOperator) and not node.operator.bounded
    }
    for node in graph.nodes:  # each stands behind all that it reads
        if any(edge.target == node.id and edge.source in reached for edge in graph.edges):
            reached.add(node.id)
    return reached


def _warn_of_sources(graph: StreamGraph, warnings: Warnings) -> None:
    from tidegate.operators.sources.source import SourceReaderOperator

    for node in graph.nodes:
        if not isinstance(node.operator, SourceReaderOperator):
            continue
        if unmatched := node.operator.unmatched:
            warnings.warn(
                Warn.NOTHING_TO_READ,
                "no file matches yet; the source goes on looking",
                source=node.name,
                pattern=", ".join(unmatched),
            )
        if missing := node.operator.missing_columns:
            warnings.warn(
                Warn.MISSING_COLUMNS,
                "no file has these columns of the schema, so that they are null in each row",
                source=node.name,
                columns=", ".join(missing),
                nearest={name: near for name, near in missing.items() if near},
            )


def _warn_of_no_sink(graph: StreamGraph, warnings: Warnings) -> None:
    if any(node.kind is NodeKind.SINK for node in graph.nodes):
        return
    read = {edge.source for edge in graph.edges}
    warnings.warn(
        Warn.NO_SINK,
        "the job has no sink, so the results of its last steps go nowhere; call print or sink_to",
        steps=[node.name for node in graph.nodes if node.id not in read],
    )
