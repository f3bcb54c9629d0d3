"""Tells a cancellation of one's own task from that of what it waits for."""

import asyncio


def cancelled() -> bool:
    """True if somebody cancels the running task, even if its time has just run out as well."""
    task = asyncio.current_task()
    assert task is not None, "asked in a task"
    return task.cancelling() > 0
