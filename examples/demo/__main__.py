"""Runs the demonstration: ``python -m examples.demo`` in the folder of the repository."""

import sys

import click

from examples.demo.command import demo
from tidegate.cli.main import INTERRUPTED, told
from tidegate.errors import TidegateError


def main() -> int:
    """Run the command of this process; its errors become text and an exit code."""
    try:
        return demo.main(prog_name="python -m examples.demo", standalone_mode=False)
    except (click.ClickException, TidegateError) as error:
        return told(error)
    except click.Abort:
        click.echo("interrupted", err=True)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
