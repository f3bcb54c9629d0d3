"""``tidegate config``: the settings that are in force, and where each comes from."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flinkformat.frozen import frozen
from tidegate.cli.options import AS_PROGRAM, with_json, with_settings
from tidegate.cli.plan import planned_by
from tidegate.cli.tables import show as show_table
from tidegate.config.configuration import ALL, by_key
from tidegate.config.flink_keys import FLINK_ONLY
from tidegate.config.load import load_configuration, read_dynamic
from tidegate.config.metrics import is_of_reporter
from tidegate.config.option import HIDDEN, is_secret
from tidegate.datastream.process.outside import CONFIGURATION_VARIABLE

if TYPE_CHECKING:
    from tidegate.config.configuration import Configuration
    from tidegate.config.option import ConfigOption


@click.group(short_help="Show the settings in effect.", no_args_is_help=False)
def config() -> None:
    """Show settings. 'tidegate options' lists the options that can be set."""


@config.command(context_settings=AS_PROGRAM)
@click.option("--all", "with_defaults", is_flag=True, help="Include options that are not set.")
@with_json
@with_settings
@click.argument(
    "script", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def show(
    with_defaults: bool,
    as_json: bool,
    dynamic: tuple[str, ...],
    config: Path | None,
    script: Path | None,
    args: tuple[str, ...],
) -> None:
    """Show each setting with its value and where it comes from.

    If a program SCRIPT is given, it runs with its arguments ARGS up to its first job, and the
    settings that it makes are included. Secrets are masked.
    """
    if script is None:
        settings = settings_in_force(config, dynamic)
    else:
        load_configuration(config, dynamic)  # before the program starts
        settings = planned_by(script, args, None, config, read_dynamic(dynamic)).configuration
    held = [_Held.of(key, settings) for key in settings.key_set()]
    if with_defaults:
        held += map(_Held.by_default, (each for each in ALL if not settings.contains(each)))
    held.sort(key=lambda each: each.option)
    if as_json:
        click.echo(json.dumps([asdict(each) for each in held], indent=2))
    elif held:
        show_table(("option", "value", "from"), (each.cells for each in held))
    else:
        click.echo("nothing is set; --all shows the defaults", err=True)


def settings_in_force(file: Path | None, dynamic: tuple[str, ...]) -> Configuration:
    """Settings that a job would get from outside: the command line, over a file or TIDEGATE_CONF's.

    Raises ConfigError.
    """
    variable = os.environ.get(CONFIGURATION_VARIABLE)
    return load_configuration(file or (Path(variable) if variable else None), dynamic)


@frozen
class _Held:
    """A setting. source: where it comes from. note: why it has no effect, else empty."""

    option: str
    value: str | None
    source: str
    note: str = ""

    @staticmethod
    def of(key: str, settings: Configuration) -> _Held:
        # The key already says which -D it was, unless that used an older spelling.
        source = settings.where_set(key).removesuffix(f", -D {key}") or "the program"
        value = HIDDEN if is_secret(key) else settings.get_string(key, "")
        return _Held(key, value, source, _note(key))

    @staticmethod
    def by_default(option: ConfigOption[object]) -> _Held:
        value = None if option.default is None else option.default_text
        return _Held(option.key, value, "default")

    @property
    def cells(self) -> tuple[str, str | None, str]:
        source = f"{self.source}; {self.note}" if self.note else self.source
        return self.option, self.value, source


def _note(key: str) -> str:
    if by_key(key) is not None or is_of_reporter(key):
        return ""
    if key in FLINK_ONLY:
        return "Flink reads it, Tidegate does not"
    return "not an option of Tidegate"
