"""``tidegate compile``: the loops around user functions as machine code."""

from __future__ import annotations

from pathlib import Path

import click

from tidegate.loops.build import build


@click.command("compile", short_help="Compile the loops around user functions.")
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for compiled modules. By default the package's own, or the user's cache.",
)
def compile_loops(into: Path | None) -> None:
    """Compile the loops around user functions, for this Python on this machine.

    Jobs of rows need less time then; their results are the same. This takes half a minute, a C
    compiler, the headers of Python, and `pip install 'tidegate[compile]'`. Run it again after an
    upgrade of Tidegate or Python. On a cluster, run it on each machine or in the image.
    """
    click.echo(f"compiled in {build(into)}")
