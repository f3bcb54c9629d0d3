"""History: where a job leaves a last view of itself, and what `tidegate serve` keeps of them."""

from __future__ import annotations

from typing import Final

from tidegate.config.option import ConfigOption
from tidegate.config.values import DurationType, IntegerType, ListType, TextType

ARCHIVE_DIRECTORY: Final[ConfigOption[str | None]] = ConfigOption(
    "jobmanager.archive.fs.dir",
    TextType(),
    None,
    "Folder in which the driver leaves what a job has last shown, as JSON: each 30 s while the job "
    "runs, and at its end. By default .history in execution.checkpointing.dir; a job with neither "
    "leaves nothing.",
    differs="In Flink nothing is left by default, and nothing before the end.",
)
HISTORY_DIRECTORIES: Final[ConfigOption[tuple[str, ...]]] = ConfigOption(
    "historyserver.archive.fs.dir",
    ListType(),
    (),
    "Folders of such archives that tidegate serve shows, beside those of its checkpoint folders "
    "and jobmanager.archive.fs.dir.",
)
HISTORY_REFRESH: Final = ConfigOption(
    "historyserver.archive.fs.refresh-interval",
    DurationType(at_least_ms=100),
    2_000,
    "Time after which tidegate serve looks again which jobs there are, if somebody asks.",
    differs="Flink's history server looks each 10 s, whether somebody asks or not.",
)
HISTORY_RETAINED: Final = ConfigOption(
    "historyserver.archive.retained-jobs",
    IntegerType(at_least=-1),
    -1,
    "Number of ended jobs whose archives tidegate serve leaves in each folder; it deletes older "
    "ones. With -1 it deletes none.",
)

OPTIONS: Final[tuple[ConfigOption[object], ...]] = (
    ARCHIVE_DIRECTORY,
    HISTORY_DIRECTORIES,
    HISTORY_REFRESH,
    HISTORY_RETAINED,
)
