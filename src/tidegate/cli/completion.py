"""``tidegate completion``: what a shell needs to complete commands, options and their keys."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_TIDEGATE_COMPLETE"


@click.command(short_help="Print the script that makes a shell complete commands.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that makes a shell complete commands, options and keys of settings.

    \b
    bash, in ~/.bashrc:                   eval "$(tidegate completion bash)"
    zsh, in ~/.zshrc:                     eval "$(tidegate completion zsh)"
    fish, in ~/.config/fish/config.fish:  tidegate completion fish | source
    """
    command = click.get_current_context().find_root().command
    completer = get_completion_class(shell)
    assert completer is not None, "click knows these shells"
    click.echo(completer(command, {}, "tidegate", _VARIABLE).source())
