"""``tidegate fsck``: whether snapshots are whole, and what lies beside them that nobody needs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console

from tidegate.cli.options import with_key_file
from tidegate.cli.tables import counted, show
from tidegate.snapshots.checking import fsck as snapshots

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.snapshots.checking.findings import Finding, FsckReport

FINDINGS: Final = 1
"""Exit code where something is wrong."""


@click.command(short_help="Check that no file of a snapshot is missing or damaged.")
@click.argument("path")
@click.option("--delete-orphans", is_flag=True, help="Delete files that no snapshot uses.")
@with_key_file
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def fsck(path: str, delete_orphans: bool, key_file: Path | None, as_json: bool) -> None:
    """Check the snapshots at PATH for files that are missing, damaged or unused.

    PATH is a checkpoint or savepoint, the folder of a job, or a folder that holds any of these.
    Nothing is changed without --delete-orphans, and no file of a running job is ever deleted.

    Exit code: 0 if all is well, 1 if something is found, 2 if there is nothing to check.
    """
    with Console(stderr=True).status(f"checking {path}") as status:
        report = snapshots.fsck(
            path,
            delete_orphans=delete_orphans,
            key_file=key_file,
            on_file=lambda file: status.update(f"reading {file}"),
        )
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2))
    else:
        _print(report)
    if not report.healthy:
        click.get_current_context().exit(FINDINGS)


def _print(report: FsckReport) -> None:
    show(
        ("snapshot", "kind", "number", "job", "files", "bytes"),
        (
            (each.path, each.kind, number, each.job, each.files, each.size_bytes)
            for each in report.snapshots
            for number in [None if each.checkpoint < 0 else each.checkpoint]
        ),
    )
    if report.findings and report.snapshots:
        click.echo()
    show(
        ("found", "file", "what", "of"),
        ((_fault(each), each.path, each.what, each.operator) for each in report.findings),
    )
    left = [finding.fault for finding in report.findings if not finding.deleted]
    if left:
        click.echo("\nwhat to do:")
    for fault in dict.fromkeys(left):
        click.echo(f"  {fault.value}: {fault.remedy}")
    if report.snapshots or report.findings:
        click.echo()
    for note in report.notes:
        click.echo(f"note: {note}")
    checked = counted(len(report.snapshots), "snapshot")
    files = f"{counted(report.files, 'file')} beside _metadata"  # small state lies within it
    total = f"{checked}, {files}, {counted(report.size_bytes, 'byte')}"
    click.echo(f"{total}: {counted(len(left), 'finding') if left else 'healthy'}")


def _fault(finding: Finding) -> str:
    return f"{finding.fault.value}, deleted" if finding.deleted else finding.fault.value
