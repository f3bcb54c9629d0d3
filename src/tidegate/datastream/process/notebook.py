"""Shows what changes in a notebook, in the cell that it was displayed in."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, Final

from flinkformat.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY_S: Final = 1.0


@frozen
class Shown:
    """A state of what is shown. final: no other will follow."""

    html: str
    final: bool


def show_live(look: Callable[[], Shown], text: str) -> None:
    """Displays what ``look`` gives, and gives anew each second, from a thread, until it is final.

    text: for where there is no notebook. ``look`` raises nothing.
    """
    if not in_notebook():
        sys.stdout.write(f"{text}\n")
        return
    from IPython.display import HTML, display

    shown = look()
    made: Any = HTML
    handle = display(made(shown.html), display_id=True)
    if handle is not None and not shown.final:
        threading.Thread(
            target=_follow, args=(look, handle, made), name="tidegate-notebook", daemon=True
        ).start()


def in_notebook() -> bool:
    """True in a process that a notebook talks to."""
    found = sys.modules.get("IPython")
    shell = None if found is None else found.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def _follow(look: Callable[[], Shown], handle: Any, made: Any) -> None:
    over = threading.Event()
    while not over.wait(EVERY_S):
        shown = look()
        handle.update(made(shown.html))
        if shown.final:
            return
