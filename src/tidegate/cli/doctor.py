"""``tidegate doctor``: whether jobs can run on this machine, and what is missing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, cast

import click

from tidegate.cli.config import settings_in_force
from tidegate.cli.health import Verdict, examine
from tidegate.cli.jobs import folder_of
from tidegate.cli.options import with_folder, with_json, with_runtime
from tidegate.cli.tables import counted, show, wrapped

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tidegate.cli.jobs import JobFolder

LACKING: Final = 1
"""Exit code where something is missing that a job needs."""

_COLOURS: Final = {
    Verdict.OK: "green",
    Verdict.ABSENT: None,
    Verdict.DOUBTFUL: "yellow",
    Verdict.MISSING: "red",
}


@click.command(short_help="Check this machine, or say what is slow in a running job.")
@click.argument("job", required=False)
@with_json
@with_runtime
@with_folder
def doctor(
    job: str | None,
    as_json: bool,
    runtime: str | None,
    dynamic: tuple[str, ...],
    config: Path | None,
    checkpoints: str | None,
) -> None:
    """Check Python, packages, Java, ports, folders and limits, and say what is missing.

    Requirements depend on the settings and on --runtime: a job with --runtime spark needs PySpark
    and Java.

    With JOB, the name or id of a running job, say instead what is slow or in trouble in it and why:
    the step that others wait for, a key with most of the rows, event time that stands, checkpoints
    that fail, state that only grows.

    Exit code: 0 if nothing that a job needs is missing, or nothing is wrong with JOB, else 1.
    """
    if job is not None:
        _examine_job(folder_of(dynamic, config, checkpoints), job, as_json=as_json)
        return
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
            click.echo("\n'not installed' items are optional; only jobs that use them need them:")
            click.echo("  pip install 'tidegate[NAME]' brings an extra")
        lacking = counted(len(missing), "requirement")
        click.echo(f"\n{lacking} missing" if missing else "\neverything a job needs is installed")
    if missing:
        raise click.exceptions.Exit(LACKING)


def _examine_job(folder: JobFolder, job: str, *, as_json: bool) -> None:
    picture = cast("Mapping[str, Any]", folder.ask(job, {"do": "picture"}))
    findings = picture["findings"]
    if as_json:
        click.echo(json.dumps(findings, indent=2))
    elif not findings:
        click.echo(f"Nothing is slow or in trouble in '{picture['job']['name']}'.")
    else:
        for each in findings:
            click.secho(each["subject"], bold=True, fg="yellow")
            click.echo(wrapped(each["what"], indent="  "))
            click.echo(wrapped(each["remedy"], indent="  "))
    if not as_json and picture["job"]["costs"]:
        click.echo(f"Costs: {picture['job']['costs']}.")
    if findings:
        raise click.exceptions.Exit(LACKING)
