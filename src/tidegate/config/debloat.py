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
    "Make row batches in front of a slow step so small that what is in flight takes the target "
    "time; they have no more rows than take the step 20 ms without it.",
)
TARGET: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.target",
    DurationType(at_least_ms=1),
    1_000,
    "How long a subtask should need for the rows that are in flight to it.",
)
PERIOD: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.period",
    DurationType(at_least_ms=1),
    200,
    "Time between two measurements, of the time in which a subtask is not idle.",
)
SAMPLES: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.samples",
    IntegerType(at_least=1),
    20,
    "Measurements over which the size is averaged.",
)
THRESHOLD: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.threshold-percentages",
    IntegerType(at_least=0, at_most=100),
    25,
    "The least change of the size, in percent, that senders are told.",
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
