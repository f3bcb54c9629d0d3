"""``tidegate run -d``: a program in a process of its own, which outlives the shell.

The new process tells over a pipe what its first job is doing, until the job runs; it does not
notice when nobody reads that any more.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tidegate.config import rest
from tidegate.config.log import LEVEL_VARIABLE
from tidegate.datastream.process.interrupts import running_jobs
from tidegate.datastream.process.outside import START_TOLD_TO
from tidegate.errors import TidegateError, UserError
from tidegate.model.control import ExecutionState, JobStatus

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from tidegate.api.job import JobClient
    from tidegate.config.configuration import Configuration

START_S: Final = 90.0
"""How long the start of a job is waited for; slots alone have a minute for theirs."""

_LOOK_S: Final = 0.2
_SETTLED_S: Final = 1.0
"""How long a job is at work that runs without a row; one that fails at its first row is not."""

_LINES_SHOWN: Final = 20
_AT_WORK: Final = (ExecutionState.RUNNING, ExecutionState.FINISHED)


def start_detached(
    given: Sequence[str], script: Path, log_file: Path | None, settings: Configuration
) -> None:
    """Starts ``tidegate run`` once more; returns when its job runs, and says so.

    given: its arguments. settings: of the command line and the file. Raises UserError if the log
    cannot be written, and Exit: with the program's code if it ends before its job runs, with 130
    after Ctrl-C, behind which the program goes on.
    """
    reading, writing = os.pipe()
    log = (log_file or Path(f"{script.stem}-{os.getpid()}.log")).absolute()
    command = [sys.executable, "-m", "tidegate", "run", *_served(settings), *given]
    environment = {LEVEL_VARIABLE: "info", **os.environ, START_TOLD_TO: str(writing)}
    try:
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                pass_fds=(writing,),
                start_new_session=True,
            )
    except OSError as error:
        os.close(reading)
        raise UserError(
            f"The program cannot be started in the background: {error}",
            where=str(log),
            remedy="Name a file for its output that can be written to, with --log-file.",
        ) from error
    finally:
        os.close(writing)
    try:
        told = _told_by(process, reading)
    except KeyboardInterrupt:
        click.echo("interrupted; the program goes on in the background:", err=True)
        click.echo(f"  process  {process.pid}, which 'kill {process.pid}' ends", err=True)
        click.echo(f"  log      {log}", err=True)
        raise click.exceptions.Exit(128 + signal.SIGINT) from None
    finally:
        os.close(reading)
    if not told.get("runs") and process.poll() is not None:
        _tell_end(process.returncode, log)
    else:
        _tell(process.pid, told, log)


def _served(settings: Configuration) -> tuple[str, ...]:
    """A port of its own for a job that is given none, where the HTTP server is installed."""
    asked = settings.get(rest.REST_PORT) or settings.get(rest.REST_BIND_PORT)
    if asked or importlib.util.find_spec("aiohttp") is None:
        return ()
    return ("-D", f"{rest.REST_PORT.key}=0")


def _told_by(process: subprocess.Popen[bytes], pipe: int) -> dict[str, Any]:
    """Waits until the process tells that its job runs, or ends; returns what it has told last."""
    until, left, told = time.monotonic() + START_S, b"", dict[str, Any]()
    while time.monotonic() < until:
        if not select.select([pipe], [], [], _LOOK_S)[0]:
            if process.poll() is not None:  # slots of its may still hold the pipe
                return told
            continue
        if not (piece := os.read(pipe, 1 << 16)):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(until - time.monotonic())
            return told
        *lines, left = (left + piece).split(b"\n")
        if lines:
            told = json.loads(lines[-1])
            if told["runs"]:
                return told
    return told


def _tell(pid: int, told: dict[str, Any], log: Path) -> None:
    if told.get("runs"):
        click.echo(f"job '{told['name']}' runs in the background")
    else:
        why = told.get("waits") or "its program has not started a job"
        told_late = f"not running after {START_S:g} s; it keeps trying in the background: {why}"
        click.echo(told_late, err=True)
    facts = {
        "job id": told.get("job"),
        "address": told.get("address"),
        "process": pid,
        "log": log,
    }
    for about, fact in facts.items():
        if fact is not None:
            click.echo(f"  {about:<8} {fact}")
    if told and told.get("checkpoints") is None:
        click.echo(
            "Without execution.checkpointing.dir commands such as 'tidegate stop' do not find it.",
            err=True,
        )


def _tell_end(code: int, log: Path) -> None:
    if code == 0:
        click.echo(f"the program has already ended; its output is in {log}")
        return
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    for line in lines[-_LINES_SHOWN:]:
        click.echo(line, err=True)
    click.echo(f"the program has ended with {code} before its job ran; all is in {log}", err=True)
    raise click.exceptions.Exit(code if code > 0 else 128 - code)


@contextmanager
def telling_start(pipe: int) -> Generator[None]:
    """Within the block, tells whoever reads the pipe how the first job of this process starts."""
    os.set_inheritable(pipe, False)
    over = threading.Event()
    teller = threading.Thread(
        target=_tell_until, args=(pipe, over), name="tidegate-detached", daemon=True
    )
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
        os.close(pipe)


def _tell_until(pipe: int, over: threading.Event) -> None:
    """Tells of the first job until it runs, or the block is over."""
    at_work_s: float | None = None
    while not over.wait(_LOOK_S):
        for client in running_jobs().clients[:1]:
            # It ends, or its driver is busy; the next look will do.
            with contextlib.suppress(TidegateError, TimeoutError):
                told = _state_of(client)
                if not told["runs"]:
                    at_work_s = None
                elif not told["rows"]:
                    at_work_s = at_work_s or time.monotonic()
                    if time.monotonic() - at_work_s < _SETTLED_S:
                        continue
                try:
                    os.write(pipe, json.dumps(told).encode() + b"\n")
                except BrokenPipeError:
                    return
                if told["runs"]:
                    return


def _state_of(client: JobClient) -> dict[str, Any]:
    view = client.view()
    tasks = [subtask.state for vertex in view.vertices for subtask in vertex.subtasks]
    wanted = sum(vertex.parallelism for vertex in view.vertices)
    last = f"; it failed last with: {view.failures[0].error}" if view.failures else ""
    works = [state in _AT_WORK for state in tasks]
    # Tasks of a batch come one after another.
    at_work = any(works) if view.in_stages else len(tasks) == wanted and all(works)
    return {
        "runs": view.status is JobStatus.RUNNING and at_work,
        "rows": view.counts.read,
        "job": view.job,
        "name": view.name,
        "address": client.get_web_interface_url(),
        "checkpoints": view.settings.checkpoints.directory,
        "waits": f"the job is {view.status.value}, {sum(works)} of "
        f"{wanted} tasks run, {len(view.slots)} of {view.slots_wanted} slots have come{last}",
    }
