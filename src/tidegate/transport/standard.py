"""Standard input and outputs, where a process has been started without them, as a daemon may be."""

from __future__ import annotations

import os
from typing import Final

_ERROR: Final = 2


def fill_standard() -> None:
    """Opens the null device in place of a standard input or output that is closed.

    A socket would get its number: prints would go into that, and libuv, which takes it for a fault
    of the program, would abort the process where it closes one.
    """
    while (opened := os.open(os.devnull, os.O_RDWR)) <= _ERROR:
        os.set_inheritable(opened, True)
    os.close(opened)
