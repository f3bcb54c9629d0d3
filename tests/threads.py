"""Threads that a test started and that must have ended after it."""

import threading
import time

_LOOKED_AT_EACH_S = 0.005


def left_behind(known: set[threading.Thread], *, prefix: str = "", within_s: float) -> list[str]:
    """The names of threads beside the known ones that still run after a time, [] as soon as none.

    They are looked at anew each time: one that is only being started can not be joined yet.
    """
    deadline = time.monotonic() + within_s
    while True:
        left = [
            each.name for each in set(threading.enumerate()) - known if each.name.startswith(prefix)
        ]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(_LOOKED_AT_EACH_S)
