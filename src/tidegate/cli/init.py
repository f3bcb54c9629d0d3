"""``tidegate init``: a project to begin with, from the texts in the folder ``project``."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Final

import click

from tidegate.cli.options import tell, with_json
from tidegate.errors import UserError

_FILES: Final = {
    "job.py": "job.py.txt",
    "test_job.py": "test_job.py.txt",
    "conf.yaml": "conf.yaml.txt",
    "README.md": "README.md.txt",
    ".gitignore": "gitignore.txt",
}
_SOURCE: Final = {"source.py": "source.py.txt", "test_source.py": "test_source.py.txt"}

_GENERATED: Final = {
    "imports": '''

def order(n):
    """The nth order; stands for whatever your orders come from."""
    return {"shop": f"shop-{n % 3}", "price": n % 50, "time": 100 * n}
''',
    "orders": (
        'orders = env.generate(order, 3_000, rate=300).uid("orders")\n'
        "    orders = orders.assign_timestamps_and_watermarks(in_time)"
    ),
    "rows": "",
}
_READ: Final = {
    "imports": "from source import Orders\n",
    "orders": 'orders = env.from_source(Orders(), in_time, "orders").uid("orders")',
    "rows": "| `source.py`, `test_source.py` | a source of your own, and its test |\n",
}


@click.command(short_help="Start a new project in FOLDER.")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--source",
    is_flag=True,
    help="Add a source of your own, from which the job reads.",
)
@with_json
def init(folder: Path, source: bool, as_json: bool) -> None:
    """Start a new project in FOLDER: a job, a test, settings and a README.

    Existing files are never changed.
    """
    name = folder.absolute().name
    texts = files("tidegate.cli") / "project"
    blanks = {"name": name, "literal": json.dumps(name), **(_READ if source else _GENERATED)}
    written = {**_FILES, **(_SOURCE if source else {})}
    try:
        there = [file for file in written if (folder / file).exists()]
        if there:
            raise UserError(
                f"There is a project already: {', '.join(there)}",
                where=str(folder),
                remedy="Name another folder.",
            )
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in written.items():
            template = Template((texts / text).read_text(encoding="utf-8"))
            (folder / file).write_text(template.substitute(blanks), encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"The project cannot be written: {error}",
            where=str(folder),
            remedy="Name a folder that can be written to.",
        ) from None
    tell(
        f"{folder}: {', '.join(written)}",
        as_json=as_json,
        folder=str(folder),
        files=list(written),
    )
    click.echo(f"go on with: cd {folder} && tidegate run -c conf.yaml job.py", err=True)
