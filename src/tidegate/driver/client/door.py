"""The door to a running job: how other processes of its user reach it on the driver's machine.

A Unix socket in a folder that only this user may enter, so nothing has to be kept secret, and a
sign beside the job's records that says where it is. A connection carries one request and one
answer, a line of JSON each; before the answer come lines that say what it waits for, where the
request asks for them. The door knows the job by its `JobClient` alone. It has threads of its
own, for a stop is answered when the driver's loop has ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import socketserver
import tempfile
import threading
from concurrent.futures import wait
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from flinkformat.frozen import frozen
from tidegate.api.job import CheckpointDone
from tidegate.driver.client.requests import begin
from tidegate.driver.telling import watching
from tidegate.errors import (
    DriverSilent,
    FormatError,
    PeerLost,
    StorageFailed,
    TidegateError,
    UserError,
)
from tidegate.model.control import JobStatus, LogRecord
from tidegate.storage import paths
from tidegate.storage.stores import Stores
from tidegate.typeinfo.decoders import json_decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future

    import structlog

    from tidegate.api.job import JobClient
    from tidegate.model.ids import Epoch, JobId
    from tidegate.model.logs import LogPage
    from tidegate.storage.store import Store

REQUEST_TIMEOUT_S: Final = 5.0
"""How long a connection may take to say what it wants."""

_PREFIX: Final = "tidegate-"
_NAME: Final = "door"

_POLL_S: Final = 0.05
"""How often the door looks whether it is to be shut."""

_LOG_QUIET_S: Final = 10.0
_LOG_EVERY_S: Final = 0.2
"""How often the log is looked at for those who follow it."""

REQUEST_BYTES_MAX: Final = 64 * 1024

ANSWER_TIMEOUT_S: Final = 3_600.0
"""How long a line of an answer is waited for; a savepoint has its own, shorter time."""

ANSWER_SOON_S: Final = 3.0
"""How long a driver may take to say what it knows without waiting."""

QUIET_S: Final = 12.0
"""Silence after which whoever waits is told so: a driver says every 10 s what it waits for."""


@frozen
class DoorSign:
    """Where the door of a job is: the driver's machine and process, and the socket there.

    rest: the URL of its REST interface; "" where it has none. job: the id; "" of old drivers.
    """

    host: str
    pid: int
    socket: str
    rest: str = ""
    job: str = ""


class Door:
    """Takes requests for one job.

    directory: the checkpoint folder; None if the job keeps no records, and so cannot be found.
    rest: as in its sign.
    """

    def __init__(
        self,
        job_name: str,
        directory: str | None,
        log: structlog.typing.FilteringBoundLogger,
        *,
        rest: str = "",
    ) -> None:
        self._job_name = job_name
        self._directory = directory
        self._log = log
        self._rest = rest
        self._lock = threading.Lock()
        self._ended = False
        self._folder: str | None = None
        self._sign: tuple[Store, str] | None = None
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def open(self, client: JobClient, epoch: Epoch) -> None:
        """Take requests from now on; where that cannot be, the job runs without. Blocking.

        epoch: of the job's driver.
        """
        with self._lock:
            if self._directory is None or self._ended or not hasattr(socket, "AF_UNIX"):
                return
            try:
                self._server = self._serve(client)
                self._put_up_sign(self._directory, epoch, client.get_job_id())
            except (OSError, StorageFailed) as error:
                self._log.warning(
                    "the job cannot be reached from the command line",
                    job=self._job_name,
                    error=str(error),
                )

    def _serve(self, client: JobClient) -> _Server:
        self._folder = tempfile.mkdtemp(prefix=_PREFIX)  # nobody else may enter it
        server = _Server(self._socket, lambda request: answer(client, request))
        self._thread = threading.Thread(
            target=server.serve_forever, args=(_POLL_S,), name="tidegate-door", daemon=True
        )
        self._thread.start()
        return server

    @property
    def _socket(self) -> str:
        assert self._folder is not None, "the folder is made first"
        return str(Path(self._folder) / _NAME)

    def _put_up_sign(self, directory: str, epoch: Epoch, job: JobId) -> None:
        store = Stores().open(directory)
        # What a driver that was killed has left; a damaged sign names nothing to remove.
        with contextlib.suppress(FormatError):
            former = read_sign(store, self._job_name)
            if former is not None and former.host == socket.gethostname():
                _remove_left(Path(former.socket))
        store.delete([file.path for file in store.list(paths.doors_folder(self._job_name))])
        sign = DoorSign(socket.gethostname(), os.getpid(), self._socket, self._rest, job)
        self._sign = store, paths.door_file(self._job_name, epoch)
        store.create(self._sign[1], json.dumps(asdict(sign)).encode())

    def shut(self) -> None:
        """Take no more requests and leave nothing behind; who waits is answered later. Blocking."""
        with self._lock:
            self._ended = True
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.socket.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._sign is not None:
            store, sign = self._sign
            with contextlib.suppress(StorageFailed):
                store.delete([sign])

    def close(self) -> None:
        """The job's result is out: wait until all who asked are answered. Blocking."""
        if self._server is not None:
            self._server.server_close()


def _remove_left(place: Path) -> None:
    """Remove a socket and its folder, but nothing that does not look like one of ours."""
    ours = place.name == _NAME and place.parent.name.startswith(_PREFIX)
    if ours and place.is_socket():
        shutil.rmtree(place.parent, ignore_errors=True)


class _Server(socketserver.ThreadingUnixStreamServer):
    """Answers each connection on a thread of its own; ``server_close`` waits for them."""

    daemon_threads = False

    def get_request(self) -> tuple[socket.socket, Any]:
        """The next connection, later where there is no descriptor for it: who knocks can wait."""
        try:
            return super().get_request()
        except OSError:
            threading.Event().wait(_POLL_S)
            raise

    def __init__(
        self, place: str, answers: Callable[[Mapping[str, Any]], Iterator[dict[str, object]]]
    ) -> None:
        self.answers = answers
        super().__init__(place, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores clients that have gone, or said nothing."""


class _Handler(socketserver.StreamRequestHandler):
    timeout = REQUEST_TIMEOUT_S

    def handle(self) -> None:
        line = self.rfile.readline(REQUEST_BYTES_MAX)
        for answered in cast("_Server", self.server).answers(json.loads(line)):
            self.wfile.write(json.dumps(answered).encode() + b"\n")


def answer(client: JobClient, request: Mapping[str, Any]) -> Iterator[dict[str, object]]:
    """Do what a request asks for, and wait for it; an error is an answer too.

    The answer comes last. Before it come pages of a log that is followed, and, where the request
    has ``tell``, what is waited for, each time it has lasted for as long again.
    """
    try:
        if request["do"] == "log":
            yield from _log(client, request)
            return
        done = cast("Future[Any]", begin(client, request))
        if request.get("tell"):
            every_s, waited_s = watching.TELL_EVERY_MS / 1000, 0.0
            while not wait([done], every_s).done:
                waited_s += every_s
                why = _why_waiting(client)
                yield {"waits": f"{request['do']}: not done after {waited_s:g} s; it {why}"}
        yield {"done": _plain(done.result())}
    except TidegateError as error:
        told = {"what": error.what, "where": error.where, "remedy": error.remedy}
        yield {"error": told, "user": isinstance(error, UserError)}


def _log(client: JobClient, request: Mapping[str, Any]) -> Iterator[dict[str, object]]:
    """Pages of the log, until the job is over where it is followed."""
    from tidegate.model.logs import PAGE_MAX, LogFilter  # few jobs are asked for it

    chosen = {name: value for name, value in request["filter"].items() if value is not None}
    wanted, after = LogFilter(**chosen), request.get("after")
    result = client.get_job_execution_result()
    page = client.log(wanted, after=after, limit=request.get("limit", PAGE_MAX))
    quiet_s = _LOG_QUIET_S  # the first page is told even if empty, so that it can be waited for
    while request.get("follow"):
        quiet_s = 0.0 if page.entries else quiet_s + _LOG_EVERY_S
        if page.entries or quiet_s > _LOG_QUIET_S:  # whoever has gone is noticed by writing to them
            quiet_s = 0.0
            yield {"page": _page(page)}
        is_over = result.done()
        page = client.log(wanted, after=page.after)
        if is_over and not page.entries:
            break
        wait([result], _LOG_EVERY_S)
    yield {"done": _page(page)}


def _page(page: LogPage) -> dict[str, object]:
    return {"after": page.after, "records": [asdict(entry.record) for entry in page.entries]}


def _why_waiting(client: JobClient) -> str:
    try:
        return watching.why_waiting(client.view())
    except PeerLost as error:  # the request goes on, and so does whoever waits for it
        return f"cannot say why: {error.what}"


def _plain(result: str | dict[str, object] | JobStatus | CheckpointDone | None) -> object:
    match result:
        case JobStatus():
            return result.value
        case CheckpointDone():
            return asdict(result)
        case _:
            return result


def read_sign(store: Store, job_name: str) -> DoorSign | None:
    """Where the door of a job is; None if its driver has none, or has ended.

    Raises FormatError for a file that is no sign.
    """
    signs = sorted(file.path for file in store.list(paths.doors_folder(job_name)))
    return read_sign_at(store, signs[-1]) if signs else None


def read_sign_at(store: Store, path: str) -> DoorSign:
    """The sign in a file. Raises FormatError for a file that is none, FileMissing."""
    try:
        return json_decoder(DoorSign).decode(store.read(path))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(
            f"The sign that says how to reach the job can't be read: {error}",
            where=paths.join(store.root, path),
            remedy="Delete the file; a driver puts up another when it starts.",
            expected="a JSON object with host, pid and socket",
        ) from error


def ask_at(
    sign: DoorSign,
    job_name: str,
    request: Mapping[str, object],
    *,
    tell: Callable[[str], None] | None = None,
    within_s: float = ANSWER_TIMEOUT_S,
) -> object:
    """Ask the driver of a job, and wait for its answer.

    tell: is told every 10 s what the answer waits for, and that a driver says nothing at all.
    within_s: how long the driver may say nothing. Raises UserError where the driver cannot be
    reached from here, PeerLost where it is gone, DriverSilent where it is there and says nothing,
    and what the driver answers.
    """
    told = {**request, "tell": tell is not None}
    quiet_s = within_s if tell is None else QUIET_S
    for answered in _answers(sign, job_name, told, quiet_s=quiet_s, within_s=within_s):
        if "silent_s" in answered and tell is not None:
            silent = f"process {sign.pid}, has not answered for {answered['silent_s']:g} s"
            tell(f"{request['do']}: not done; the driver, {silent}")
        elif "waits" in answered and tell is not None:
            tell(answered["waits"])
        elif "done" in answered:
            return answered["done"]
    raise _gone(_where(sign, job_name))


def follow_log(
    sign: DoorSign, job_name: str, request: Mapping[str, object]
) -> Iterator[tuple[list[LogRecord], int]]:
    """Pages of a job's log, each with the place that it ends at, until the job is over.

    request: with ``filter``, ``after``, ``limit``, ``follow``. Raises as `ask_at`, and PeerLost
    where the driver ends without a word, or whoever follows has not read for long.
    """
    has_begun = False
    for answered in _answers(sign, job_name, {**request, "do": "log"}, quiet_s=ANSWER_SOON_S):
        if "silent_s" in answered:
            if not has_begun:
                raise _silent(_where(sign, job_name), answered["silent_s"])
            continue
        has_begun = True
        page = answered["page" if "page" in answered else "done"]
        yield [LogRecord(**each) for each in page["records"]], page["after"]
        if "done" in answered:
            return
    raise _gone(_where(sign, job_name))


def _where(sign: DoorSign, job_name: str) -> str:
    return f"job '{job_name}', process {sign.pid} on {sign.host}"


def _answers(
    sign: DoorSign,
    job_name: str,
    request: Mapping[str, object],
    *,
    quiet_s: float,
    within_s: float = ANSWER_TIMEOUT_S,
) -> Iterator[dict[str, Any]]:
    """Lines of an answer, the last one included. Raises what is wrong with the request.

    Between them comes ``silent_s`` each time the driver has said nothing for quiet_s longer, until
    within_s.
    """
    where = _where(sign, job_name)
    if sign.host != socket.gethostname():
        raise UserError(
            "The job's driver runs on another machine, and takes requests only there",
            where=where,
            remedy=f"Run this command on {sign.host}.",
        )
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(quiet_s)
            _connect(link, sign.socket)
            link.sendall(json.dumps(request).encode() + b"\n")
            silent_s = 0.0
            for line in _lines(link):
                if line is not None:
                    silent_s = 0.0
                    yield _answered(line)
                elif (silent_s := silent_s + quiet_s) < within_s:
                    yield {"silent_s": silent_s}
                else:
                    raise _silent(where, silent_s)
    except TimeoutError as error:
        raise _silent(where, quiet_s) from error
    except BlockingIOError as error:
        raise _silent(where, ANSWER_SOON_S) from error
    except PermissionError as error:
        raise UserError(
            "The job belongs to another user",
            where=where,
            remedy="Run this command as the user who runs the job.",
        ) from error
    except OSError as error:
        raise _gone(where) from error


def _connect(link: socket.socket, place: str) -> None:
    """Knocks; where as many wait as may, again for ANSWER_SOON_S. Raises OSError."""
    for _ in range(round(ANSWER_SOON_S / _POLL_S)):
        with contextlib.suppress(BlockingIOError):
            link.connect(place)
            return
        threading.Event().wait(_POLL_S)
    link.connect(place)


def _lines(link: socket.socket) -> Iterator[bytes | None]:
    """Lines that come, and None each time none has come for as long as the link may take."""
    left = b""
    while True:
        try:
            piece = link.recv(1 << 16)
        except TimeoutError:
            yield None
            continue
        if not piece:
            return
        *lines, left = (left + piece).split(b"\n")
        yield from lines


def _answered(line: bytes) -> dict[str, Any]:
    answered = cast("dict[str, Any]", json.loads(line))
    if "error" in answered:
        raise (UserError if answered["user"] else TidegateError)(**answered["error"])
    return answered


def _silent(where: str, waited_s: float) -> DriverSilent:
    return DriverSilent(
        f"The job's driver is there, but has not answered for {waited_s:g} s",
        where=where,
        remedy="It may be stopped, as by Ctrl-Z (kill -CONT lets it go on), or too busy; see its "
        "log, and try again.",
    )


def _gone(where: str) -> PeerLost:
    return PeerLost(
        "The job's driver does not answer: it has ended, or was killed",
        where=where,
        remedy="Look at the job with 'tidegate list'; 'tidegate run --from latest' goes on with "
        "one whose driver was killed.",
    )
