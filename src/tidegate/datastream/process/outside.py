"""The process that builds a program: its settings from outside, and how it is looked at only."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from tidegate.config.configuration import Configuration
from tidegate.config.load import load_configuration
from tidegate.config.warnings import Warn, process_warnings
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidegate.graph.job_graph import JobGraph
    from tidegate.graph.stream_graph import StreamGraph

CONFIGURATION_VARIABLE: Final = "TIDEGATE_CONF"
"""Path of the configuration file that every environment starts from."""

RUNTIME_VARIABLE: Final = "TIDEGATE_RUNTIME"
"""Name of the runtime that ``get_execution_environment`` takes; set by ``tidegate run``."""

SETTINGS_VARIABLE: Final = "TIDEGATE_SETTINGS"
"""JSON object of settings by key, which win over the file; set by ``tidegate run``."""

START_TOLD_TO: Final = "TIDEGATE_START_TOLD_TO"
"""Descriptor of the pipe to which a program in the background tells how its job starts."""


def configuration_from_outside(
    given: Configuration | Mapping[str, object] | None,
) -> Configuration:
    """Merges the configuration file, the command line over it, and the given settings over both.

    Raises ConfigError.
    """
    file = os.environ.get(CONFIGURATION_VARIABLE)
    configuration = load_configuration(Path(file) if file else None)
    for key, value in _settings_from_outside().items():
        configuration.set(key, value, where="command line")
    if given is None:
        return configuration
    return configuration.add_all(Configuration.of(given, where="configuration"))


def warn_of_runtime(name: str, configuration: Configuration) -> None:
    """Log that the program chose another runtime than ``tidegate run`` was told."""
    asked = os.environ.get(RUNTIME_VARIABLE, name)
    if asked != name:
        process_warnings(configuration).warn(
            Warn.RUNTIME_IGNORED,
            "--runtime has no effect: the program names its runtime itself; "
            "call get_execution_environment() to take what is given",
            asked=asked,
            taken=name,
        )


def _settings_from_outside() -> Mapping[str, str]:
    text = os.environ.get(SETTINGS_VARIABLE)
    if not text:
        return {}
    try:
        settings: object = json.loads(text)
    except ValueError as error:
        raise _bad_settings(str(error)) from error
    if not isinstance(settings, dict):
        raise _bad_settings("it is not an object")
    pairs = cast("dict[str, object]", settings)
    return {key: str(value) for key, value in pairs.items()}


def _bad_settings(problem: str) -> ConfigError:
    return ConfigError(
        f"{SETTINGS_VARIABLE} is not a JSON object of settings: {problem}",
        where=f"environment variable {SETTINGS_VARIABLE}",
        remedy="Unset it, or give settings by key.",
    )


PLAN_VARIABLE: Final = "TIDEGATE_PLAN"
"""Set where programs are only looked at, by ``tidegate plan`` and ``tidegate config show``."""


class Planned(BaseException):
    """The program has come to its first job. No program is to catch it as a failure.

    stream_graph: the job as written. graph: as it would run. configuration: as it would hold.
    """

    def __init__(
        self, stream_graph: StreamGraph, graph: JobGraph, configuration: Configuration
    ) -> None:
        super().__init__()
        self.stream_graph = stream_graph
        self.graph = graph
        self.configuration = configuration


def is_dry_run() -> bool:
    return PLAN_VARIABLE in os.environ


def checked_python_file(file_path: str) -> str:
    """The absolute path. Raises ConfigError if there is nothing."""
    path = Path(file_path).absolute()
    if not path.exists():
        raise ConfigError(
            f"There is no Python file or folder {file_path}",
            where="python.files",
            remedy="Name a module (.py), an archive (.zip, .whl, .egg) or a folder of modules.",
        )
    return str(path)


def make_importable(files: Iterable[str]) -> None:
    """Put them on this process's import path, which slots on this machine share.

    Raises ConfigError if there is none of that name.
    """
    for file in map(checked_python_file, files):
        entry = str(Path(file).parent) if file.endswith(".py") else file
        if entry not in sys.path:
            sys.path.append(entry)


def active_session() -> object:
    sql: Any = sys.modules.get("pyspark.sql")
    return None if sql is None else sql.SparkSession.getActiveSession()


def is_submitted() -> bool:
    """True if ``spark-submit`` has started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def script_name() -> str:
    file: str | None = getattr(sys.modules.get("__main__"), "__file__", None)
    if not file:
        return "job"
    path = Path(file)
    return path.parent.name if path.stem == "__main__" else path.stem
