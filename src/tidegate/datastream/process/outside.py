"""Settings of a program from outside: a configuration file, and ``tidegate run``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from tidegate.config.configuration import Configuration
from tidegate.config.load import load_configuration
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIGURATION_VARIABLE: Final = "TIDEGATE_CONF"
"""Path of the configuration file that every environment starts from."""

RUNTIME_VARIABLE: Final = "TIDEGATE_RUNTIME"
"""Name of the runtime that ``get_execution_environment`` takes; set by ``tidegate run``."""

SETTINGS_VARIABLE: Final = "TIDEGATE_SETTINGS"
"""JSON object of settings by key, which win over the file; set by ``tidegate run``."""


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
