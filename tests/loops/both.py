"""Both forms of the loops in one process."""

from tidegate.loops.build import build
from tidegate.loops.forms import INTERPRETED, Loops, loops
from tidegate.model.settings import LoopForm


def both_forms() -> tuple[Loops, Loops]:
    """The plain twin, and compiled loops, which are built where that was not done."""
    build()
    return INTERPRETED, loops(LoopForm.COMPILED)
