"""Processes in which a user's function is called, each by one thread at a time.

A process that dies is replaced, and its row called again. All of them die with the slot: the kernel
kills them as the thread that began them ends, and where it cannot, they notice that the connection
is closed.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Final, cast

from tidegate.api.rows.batches import shown
from tidegate.errors import TidegateError, UserCodeFailed
from tidegate.typeinfo.by_value import pickled_by_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.operators.async_calls.call_context import CallContext

DEATHS_MAX: Final = 3
"""A row at which so many processes died is taken for the reason."""

END_S: Final = 5.0
"""How long a process may take to close its function."""

_CODE: Final = (
    "import json, sys\n"
    "sys.path[:] = json.loads(sys.argv[1])\n"
    "from tidegate.operators.async_calls.call_process_main import serve\n"
    "serve(int(sys.argv[2]), int(sys.argv[3]))\n"
)


class _Died(Exception):
    pass


class _TraceThere(Exception):
    """Shows where in the other process an exception came from."""


class _Process:
    def __init__(self, function: bytes, context: CallContext) -> None:
        self._connection, theirs = Pipe(duplex=True)
        try:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-c", _CODE),
                    *(json.dumps(sys.path), str(theirs.fileno()), str(os.getpid())),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        finally:
            theirs.close()
        try:
            self._say(pickle.dumps((function, context), protocol=5))
            self._answer()
        except BaseException:
            self.end()
            raise

    def call(self, argument: bytes) -> object:
        self._say(argument)
        return self._answer()

    def _say(self, message: bytes) -> None:
        try:
            self._connection.send_bytes(message)
        except OSError as error:
            raise _Died(self._how()) from error

    def _answer(self) -> object:
        try:
            answer = self._connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise _Died(self._how()) from error
        ok, outcome, trace = pickle.loads(answer)
        if ok:
            return outcome
        error = cast("Exception", outcome)
        if not isinstance(error, TidegateError):
            error.__cause__ = _TraceThere(f"in a process of its own:\n{trace}")
        raise error

    def _how(self) -> str:
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Ends the process if nobody waits for its answer."""
        self.kill()
        self._connection.close()

    def close(self) -> None:
        try:
            self._say(b"")
            if self._connection.poll(END_S):
                self._answer()
        except _Died:
            pass
        finally:
            self.end()


class CallProcesses:
    """Processes for one operator, as many as threads call at once."""

    def __init__(self, function: bytes) -> None:
        self._function = function
        self._lock = threading.Lock()
        self._free: list[_Process] = []
        self._busy: set[_Process] = set()
        self._over = False

    def begin(self, context: CallContext) -> None:
        """Starts the first process. Raises what ``open`` raises there."""
        self._context = context
        self._use(lambda _: None, "while it was opened")

    def call(self, argument: object, began: Callable[[], None]) -> object:
        """Calls the function in one process; ``began`` is called once a process has the call."""
        message = pickled_by_value(argument)

        def asked(process: _Process) -> object:
            began()
            return process.call(message)

        return self._use(asked, f"at the row {shown(argument)}")

    def _use(self, act: Callable[[_Process], object], place: str) -> object:
        how = ""
        for _ in range(DEATHS_MAX):
            try:
                process = self._taken()
                try:
                    given = act(process)
                except _Died:
                    self._forget(process)
                    raise
                except Exception:
                    self._give_back(process)
                    raise
            except _Died as died:
                how = str(died)
                continue
            self._give_back(process)
            return given
        operator = self._context.name
        raise UserCodeFailed(
            f"the process in which operator '{operator}' calls its function died "
            f"{DEATHS_MAX} times in a row; the last one {how}",
            where=f"operator '{operator}', {place}",
            remedy="Find out what the function does with the row: a crash in a library or a lack "
            "of memory ends a process without an exception.",
        )

    def _taken(self) -> _Process:
        with self._lock:
            if self._free:
                process = self._free.pop()
                self._busy.add(process)
                return process
        process = _Process(self._function, self._context)
        with self._lock:
            self._busy.add(process)
            over = self._over
        if over:
            self._forget(process)
            raise _Died("ended with its operator")
        return process

    def _give_back(self, process: _Process) -> None:
        with self._lock:
            self._busy.discard(process)
            self._free.append(process)

    def _forget(self, process: _Process) -> None:
        with self._lock:
            self._busy.discard(process)
        process.end()

    def kill_busy(self) -> None:
        """Kills processes in calls that nobody waits for any more."""
        with self._lock:
            self._over = True
            busy = list(self._busy)
        for process in busy:
            process.kill()

    def close(self) -> None:
        """Closes the function in the others, and ends them. Raises what the first one raises."""
        first: Exception | None = None
        with self._lock:
            free, self._free = self._free, []
        for process in free:
            try:
                process.close()
            except Exception as error:
                first = first or error
        if first is not None:
            raise first
