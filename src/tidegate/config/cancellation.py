"""Options of cancelling calls of user functions."""

from __future__ import annotations

from typing import Final

from tidegate.config.option import ConfigOption
from tidegate.config.values import DurationType

INTERVAL: Final = ConfigOption(
    "task.cancellation.interval",
    DurationType(),
    200,
    "Time between two tries to break off the call of a user's function that a cancelled subtask is "
    "in, by an exception raised in it; the first is made at once, with 0 the only one.",
    differs="Python functions come to an end sooner or not at all.",
)
TIMEOUT: Final = ConfigOption(
    "task.cancellation.timeout",
    DurationType(),
    1_000,
    "When a call has gone on for so long after its subtask was cancelled, the slot's process is "
    "ended; operators that are being closed have 10 s at least. 0 waits for ever.",
    differs="A slot's process is replaced in milliseconds, and holds nothing that is not in a "
    "checkpoint.",
)

OPTIONS: Final = (INTERVAL, TIMEOUT)
