"""The fork server of a program, and the slots that come of it; started by ``forking``."""

from __future__ import annotations

import signal
import socket
import sys

from tidegate.minicluster.fork_server import ForkServer, warm_up
from tidegate.minicluster.forking import FOR_THE_PROGRAM
from tidegate.minicluster.processes import slot_process

if __name__ == "__main__":
    for number in FOR_THE_PROGRAM:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FOR_THE_PROGRAM)
    warm_up()
    invitation = ForkServer(socket.socket(fileno=int(sys.argv[1]))).run()
    sys.exit(0 if invitation is None else slot_process(invitation))
