"""``tidegate doctor``: whether jobs can run on this machine, and what is missing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import click

from tidegate.cli.config import settings_in_force
from tidegate.cli.health import Verdict, examine
from tidegate.cli.options import with_json, with_runtime, with_settings
from tidegate.cli.tables import counted, show

if TYPE_CHECKING:
    from pathlib import Path

LACKING: Final = 1
"""Exit code where something is missing that a job needs."""

_COLOURS: Final = {
    Verdict.OK: "green",
    Verdict.ABSENT: None,
    Verdict.DOUBTFUL: "yellow",
    Verdict.MISSING: "red",
}


@click.command(short_help="Check whether jobs can run on this machine.")
@with_json
@with_runtime
@with_settings
def doctor(
    as_json: bool, runtime: str | None, dynamic: tuple[str, ...], config: Path | None
) -> None:
    """Check Python, packages, Java, ports, folders and limits, and say what is missing.

    Requirements depend on the settings and on --runtime: a job with --runtime spark needs PySpark
    and Java.

    Exit code: 0 if nothing that a job needs is missing, else 1.
    """
    findings = examine(settings_in_force(config, dynamic), runtime or "local")
    missing = [each for each in findings if each.verdict is Verdict.MISSING]
    if as_json:
        told = [
            {
                "about": each.about,
                "verdict": each.verdict.value,
                "found": each.found,
                "remedy": each.remedy,
            }
            for each in findings
        ]
        click.echo(json.dumps(told, indent=2))
    else:
        show(
            ("about", "verdict", "found"),
            ((each.about, each.verdict.value, each.found) for each in findings),
        )
        wrong = (Verdict.DOUBTFUL, Verdict.MISSING)
        remedies = [each for each in findings if each.verdict in wrong]
        if remedies:
            click.echo("\nwhat to do:")
        for each in remedies:
            head = click.style(each.about, fg=_COLOURS[each.verdict])
            click.echo(f"  {head}: {each.remedy}")
        if any(each.verdict is Verdict.ABSENT for each in findings):
            click.echo("\nwhat is 'not there' is needed by jobs that use it alone:")
            click.echo("  pip install 'tidegate[NAME]' brings an extra")
        lacking = counted(len(missing), "thing")
        click.echo(f"\n{lacking} missing" if missing else "\nall is there that a job needs")
    if missing:
        raise click.exceptions.Exit(LACKING)
