"""Slots as processes of this machine: ``python -m tidegate.minicluster``, one a slot.

What a slot must know comes over its standard input, so that the job's secret is in no command line
and no environment, and so that a script needs no ``__main__`` guard.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from tidegate.errors import PeerLost, SlotLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.errors import TidegateError
    from tidegate.model.control import SlotInvitation

CLOSE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class SlotStart:
    """What a slot process is told. path: the parent's import path."""

    invitation: SlotInvitation
    path: tuple[str, ...]


class ProcessProvider:
    """The `SlotProvider` that starts processes."""

    def __init__(self) -> None:
        self._invitation: SlotInvitation | None = None
        self._failed: Callable[[str, TidegateError, bool], None] | None = None
        self._processes: list[tuple[subprocess.Popen[bytes], threading.Thread]] = []
        self._released = False

    def start(
        self,
        invitation: SlotInvitation,
        failed: Callable[[str, TidegateError, bool], None],
        ended: Callable[[str], None],
    ) -> None:
        """The driver is ready to be dialled."""
        self._invitation = invitation
        self._failed = failed

    def request(self, count: int) -> None:
        """Start that many processes."""
        for _ in range(count):
            self._start_one()

    def release(self) -> None:
        """Start no more; those that run are told by the driver."""
        self._released = True

    async def close(self) -> None:
        """Wait for the processes; kill those that have not gone in time."""
        self._released = True
        await asyncio.get_running_loop().run_in_executor(None, self._end_processes)

    def _end_processes(self) -> None:
        for _, thread in self._processes:
            thread.join(CLOSE_TIMEOUT_S)
        for process, thread in self._processes:
            if thread.is_alive():
                process.kill()
                thread.join()

    @property
    def hint(self) -> str:
        """What may be the matter."""
        return "slot processes are slow to start: the machine may be busy"

    def _start_one(self) -> None:
        invitation = self._invitation
        assert invitation is not None, "started before anything is requested"
        request = f"process-{len(self._processes)}"
        told = SlotStart(replace(invitation, request=request), tuple(sys.path))
        process = subprocess.Popen(
            [sys.executable, "-m", "tidegate.minicluster"],
            stdin=subprocess.PIPE,
            env=_environment(),
        )
        with contextlib.suppress(BrokenPipeError):
            stdin = cast("IO[bytes]", process.stdin)
            stdin.write(pickle.dumps(told))
            stdin.close()
        thread = threading.Thread(
            target=self._wait, args=(process, request), name=f"tidegate-{request}", daemon=True
        )
        self._processes.append((process, thread))
        thread.start()

    def _wait(self, process: subprocess.Popen[bytes], request: str) -> None:
        status = process.wait()
        # Status 0 too: a slot whose link broke before its offer came ends well, and is missed.
        if not self._released and self._failed is not None:
            lost = SlotLost(f"slot process {process.pid} ended with status {status}")
            self._failed(request, lost, False)


def _environment() -> dict[str, str]:
    """The parent's environment, with the package's own folder on the import path."""
    package_parent = str(Path(__file__).resolve().parents[2])
    paths = [package_parent, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def slot_process(stdin: IO[bytes]) -> int:
    """Life of a slot process; the result is its exit status."""
    told = cast("SlotStart", pickle.load(stdin))
    sys.path[:] = list(told.path)
    from tidegate.slot.serve import serve

    try:
        serve(told.invitation)
    except PeerLost as error:
        sys.stderr.write(f"tidegate: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
