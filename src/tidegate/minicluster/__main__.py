"""The fork server of a program, and the slots that come of it; started by ``forking``."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import socket
import sys
import threading

from tidegate.minicluster.fork_server import ForkServer
from tidegate.minicluster.forking import FOR_THE_PROGRAM
from tidegate.minicluster.processes import slot_process
from tidegate.slot.process.preload import SLOT, preload

if __name__ == "__main__":
    for number in FOR_THE_PROGRAM:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FOR_THE_PROGRAM)
    gc.disable()  # modules stay, so there is nothing to collect while they are loaded
    preload(SLOT)
    gc.enable()
    invitation = ForkServer(socket.socket(fileno=int(sys.argv[1]))).run()
    if invitation is None:
        os._exit(0)  # the program waits, and the server has nothing to put in order
    status = slot_process(invitation)
    if threading.active_count() == 1:
        # To take the interpreter apart, for which the job would wait, takes as long as a small job.
        # So it is done as in multiprocessing.
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
        for output in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                output.flush()
        os._exit(status)
    sys.exit(status)
