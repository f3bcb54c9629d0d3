"""``tidegate options``: every option, what it means, and what holds where it is not set."""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

from tidegate.cli.options import complete_keys, with_json
from tidegate.cli.tables import wrapped
from tidegate.config.configuration import ALL, closest_key
from tidegate.config.flink_keys import FLINK_ONLY
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from tidegate.config.option import ConfigOption


@click.command()
@click.argument("words", metavar="[WORD]...", nargs=-1, shell_complete=complete_keys)
@with_json
def options(words: tuple[str, ...], as_json: bool) -> None:
    """List the options that can be set.

    With WORDs, only options with every WORD in their key or description. Set an option with
    -D KEY=VALUE, in a file, or in the program.
    """
    found = [option for option in ALL if _has(option, words)]
    if not found:
        raise _not_found(words)
    if as_json:
        click.echo(json.dumps([_as_json(option) for option in found], indent=2))
    else:
        # Sentences need more room than a table has.
        click.echo("\n\n".join(map(_as_text, found)))


def _has(option: ConfigOption[object], words: tuple[str, ...]) -> bool:
    text = " ".join((option.key, *option.old_keys, option.description)).lower()
    return all(word.lower() in text for word in words)


def _not_found(words: tuple[str, ...]) -> ConfigError:
    named = " ".join(words)
    if named in FLINK_ONLY:
        return ConfigError(
            f"Flink reads {named!r}, and Tidegate does not",
            where="options",
            remedy="Leave it out: it has no effect here.",
        )
    near = _near(named)
    return ConfigError(
        f"There is no option with {named!r} in its key or its description",
        where="options",
        remedy=f"Did you mean {near!r}?" if near else "'tidegate options' lists all of them.",
    )


def _near(named: str) -> str | None:
    parts = {part for option in ALL for part in option.key.split(".")}
    return closest_key(named) or next(iter(get_close_matches(named, parts, n=1)), None)


def _as_text(option: ConfigOption[object]) -> str:
    default = "no default" if option.default is None else f"default {option.default_text}"
    lines = [f"{click.style(option.key, bold=True)}  ({option.type.name}, {default})"]
    lines.append(wrapped(option.description, indent="  "))
    lines.append(wrapped(f"Write {option.type.expects}.", indent="  "))
    if option.differs:
        lines.append(wrapped(f"The default is not Flink's. {option.differs}", indent="  "))
    if option.old_keys:
        lines.append(wrapped(f"Also accepted: {', '.join(option.old_keys)}.", indent="  "))
    return "\n".join(lines)


def _as_json(option: ConfigOption[object]) -> dict[str, object]:
    return {
        "key": option.key,
        "type": option.type.name,
        "expects": option.type.expects,
        "default": None if option.default is None else option.default_text,
        "description": option.description,
        "differs": option.differs,
        "old_keys": list(option.old_keys),
    }
