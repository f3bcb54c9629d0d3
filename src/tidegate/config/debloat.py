"""Buffer debloating: its options, and the settings made of them."""

from __future__ import annotations

from typing import Final

from tidegate.config.option import ConfigOption, ReadableConfig
from tidegate.config.values import BooleanType, DurationType, IntegerType
from tidegate.model.settings import DebloatSettings

ENABLED: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.enabled",
    BooleanType(),
    False,
    "Make row batches in front of a slow step so small that the rows in flight take the target "
    "time. Without it, a batch takes the step at most 20 ms.",
)
TARGET: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.target",
    DurationType(at_least_ms=1),
    1_000,
    "Time that a subtask should need for the rows in flight to it.",
)
PERIOD: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.period",
    DurationType(at_least_ms=1),
    200,
    "Time between two measurements; only time in which a subtask is not idle counts.",
)
SAMPLES: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.samples",
    IntegerType(at_least=1),
    20,
    "Number of measurements over which the size is averaged.",
)
THRESHOLD: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.threshold-percentages",
    IntegerType(at_least=0, at_most=100),
    25,
    "Smallest change of the size, in percent, that is sent to senders.",
)

OPTIONS: Final[tuple[ConfigOption[object], ...]] = (ENABLED, TARGET, PERIOD, SAMPLES, THRESHOLD)


def debloat_settings(configuration: ReadableConfig) -> DebloatSettings | None:
    """Settings of debloating; None if it is off."""
    if not configuration.get(ENABLED):
        return None
    return DebloatSettings(
        target_ms=configuration.get(TARGET),
        period_ms=configuration.get(PERIOD),
        samples=configuration.get(SAMPLES),
        threshold_percent=configuration.get(THRESHOLD),
    )
