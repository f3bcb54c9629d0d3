"""Threads of this process, and where each of them is."""

from __future__ import annotations

import sys
import threading
import traceback

from tidegate.model.control import ThreadStack


def thread_stacks() -> tuple[ThreadStack, ...]:
    """Stacks of all threads now, by name; threads that Python has not started have a number."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return tuple(
        sorted(
            (
                ThreadStack(names.get(ident, f"thread {ident}"), _stack(frame))
                for ident, frame in sys._current_frames().items()  # pyright: ignore[reportPrivateUsage]
            ),
            key=lambda each: each.thread,
        )
    )


def _stack(frame: object) -> str:
    return "".join(traceback.format_stack(frame))  # pyright: ignore[reportArgumentType]
