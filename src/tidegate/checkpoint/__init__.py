"""The checkpoint protocol without an engine: machines that take an event and the time, and decide.

Flink's checkpoints need four decisions, and each has its machine here. A machine has no clock,
thread, file or socket; whoever hosts it performs its commands, and reports the results as events.

- `CheckpointCoordinator`, in the driver: when checkpoints are taken, completed, given up and
  deleted. Its words are `events` and `commands`. `NoCheckpoints` stands in for it in batch mode.
- `barrier_handler`, one for each subtask: which channels wait for a barrier, and when the subtask
  takes its snapshot. Its words are in `barriers.protocol`.
- `ChannelStateGroup`, one for the subtasks that share files: data that barriers have overtaken.
- `assign`, at a restore: what each subtask starts from, at any parallelism.

Another engine can use them: they import the values of `tidegate.model`, `tidegate.errors` and the
format of `flinkformat` alone. `tests/checkpoint/test_face.py` is an engine in a hundred lines, and
`tests/checkpoint/scripts` shows who says what in which order. Names are loaded when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidegate.checkpoint.barriers.modes import make_barrier_handler as barrier_handler
    from tidegate.checkpoint.channel_state.group import ChannelStateGroup
    from tidegate.checkpoint.completed import CompletedCheckpoint, CompletedCheckpoints
    from tidegate.checkpoint.coordinator import commands, events
    from tidegate.checkpoint.coordinator.absent import NoCheckpoints
    from tidegate.checkpoint.coordinator.coordinator import CheckpointCoordinator
    from tidegate.checkpoint.registry import SharedStateRegistry
    from tidegate.checkpoint.restore.assignment import assign

__all__ = [
    "ChannelStateGroup",
    "CheckpointCoordinator",
    "CompletedCheckpoint",
    "CompletedCheckpoints",
    "NoCheckpoints",
    "SharedStateRegistry",
    "assign",
    "barrier_handler",
    "commands",
    "events",
]

_PLACES: Final = {
    "ChannelStateGroup": "channel_state.group:ChannelStateGroup",
    "CheckpointCoordinator": "coordinator.coordinator:CheckpointCoordinator",
    "CompletedCheckpoint": "completed:CompletedCheckpoint",
    "CompletedCheckpoints": "completed:CompletedCheckpoints",
    "NoCheckpoints": "coordinator.absent:NoCheckpoints",
    "SharedStateRegistry": "registry:SharedStateRegistry",
    "assign": "restore.assignment:assign",
    "barrier_handler": "barriers.modes:make_barrier_handler",
    "commands": "coordinator.commands",
    "events": "coordinator.events",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, place = _PLACES[name].partition(":")
    found: object = import_module(f"{__name__}.{module}")
    if place:
        found = getattr(found, place)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
