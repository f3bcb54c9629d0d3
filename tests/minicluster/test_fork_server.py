"""The process that slots are forked from: one for a program, alive while that is."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from structlog.testing import capture_logs

from tidegate import Configuration, JobFailed, JobStatus, StreamExecutionEnvironment
from tidegate.minicluster.fork_server import LOOK_S
from tidegate.minicluster.forking import Forking, forking
from tidegate.minicluster.processes import ProcessProvider
from tidegate.model.control import SlotInvitation
from tidegate.model.settings import LinkSettings
from tidegate.transport.security import LinkSecurity

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.errors import TidegateError
    from tidegate.jobmaster.view import JobView

LIMIT_S = 120.0

PROGRAM = """
import sys
from tidegate import StreamExecutionEnvironment

def told(number):
    print("told", number)
    return number

env = StreamExecutionEnvironment.local(1)
print("before")
"""


def run(folder: Path, program: str) -> subprocess.Popen[str]:
    script = folder / "program.py"
    script.write_text(PROGRAM + program)
    return subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, bufsize=1)


def family(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def test_what_functions_and_sinks_print_stands_in_order_between_what_the_program_prints(
    tmp_path: Path,
) -> None:
    program = "env.from_collection([1, 2]).map(told).print()\nenv.execute()\nprint('after')\n"
    with run(tmp_path, program) as process:
        output, _ = process.communicate(timeout=LIMIT_S)
    first, *between, last = output.splitlines()
    assert (first, last) == ("before", "after")
    assert sorted(between) == ["1", "2", "told 1", "told 2"]
    # How many rows the function is given at once is not said, their order is.
    assert between.index("told 1") < between.index("1") < between.index("2")
    assert between.index("told 1") < between.index("told 2") < between.index("2")
    assert process.returncode == 0


def test_functions_log_as_the_program_has_set_logging_up(tmp_path: Path) -> None:
    program = """
import logging

logging.basicConfig(
    level=logging.INFO, format="%(levelname)s of %(name)s: %(message)s", stream=sys.stdout
)
logging.getLogger("quiet").setLevel(logging.ERROR)

def logged(number):
    logging.getLogger("job").info("saw %d", number)
    logging.getLogger("quiet").warning("unheard")
    return number

env.from_collection([7]).map(logged).filter(lambda number: False).print()
env.execute()
"""
    with run(tmp_path, program) as process:
        output, _ = process.communicate(timeout=LIMIT_S)
    assert output.splitlines() == ["before", "INFO of job: saw 7"]


def test_a_program_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    program = "env.generate(told, rate=100).filter(lambda n: False).print()\nenv.execute()\n"
    with run(tmp_path, program) as process:
        assert process.stdout is not None
        assert next(line for line in process.stdout if line.startswith("told"))
        started = family(process.pid)
        assert len(started) == 3  # the fork server, the slot, its guard
        process.kill()
        _, alive = psutil.wait_procs(started, timeout=LIMIT_S)
    assert not alive


@pytest.mark.parametrize("beside", ["", "threading.Thread(target=note, args=('thread',)).start()"])
def test_what_functions_leave_for_the_end_of_the_process_is_done(
    tmp_path: Path, beside: str
) -> None:
    program = f"""
import atexit
import threading

def note(who):
    threading.Event().wait(0.2)
    print(who, flush=True)

def called(number):
    atexit.register(note, "at exit")
    {beside or "pass"}
    return number

env.from_collection([1]).map(called).print()
env.execute()
"""
    with run(tmp_path, program) as process:
        output, _ = process.communicate(timeout=LIMIT_S)
    expected = ["before", "1", "at exit", *(["thread"] if beside else [])]
    assert sorted(output.splitlines()) == sorted(expected)


def test_slots_of_later_attempts_find_loaded_what_a_program_loads(tmp_path: Path) -> None:
    program = """
import os

def tell(number):
    if number == 0:
        print(os.getpid(), "tidegate.datastream.environment" in sys.modules)
    return number

settings = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "0 ms"}
settings["restart-strategy.fixed-delay.attempts"] = 1_000
env = StreamExecutionEnvironment.local(1, configuration=settings)
env.generate(lambda n: n, rate=100).map(tell).filter(lambda n: False).print()
env.execute()
"""
    loaded: list[bool] = []
    with run(tmp_path, program) as process:
        assert process.stdout is not None and process.stdout.readline() == "before\n"
        for line in process.stdout:
            pid, found = line.split()
            loaded.append(found == "True")
            if loaded[-1] or len(loaded) == 10:
                break
            threading.Event().wait(2 * LOOK_S)  # the server loads when it has nothing else to do
            os.kill(int(pid), signal.SIGKILL)
        process.kill()
    assert loaded[0] is False and loaded[-1] is True


def test_a_program_that_ends_over_a_running_job_leaves_no_process(tmp_path: Path) -> None:
    program = """
env.generate(told, rate=100).filter(lambda n: False).print()
env.execute_async()
sys.stdin.read(1)
"""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM + program)
    with subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        assert next(line for line in process.stdout if line.startswith("told"))
        started = family(process.pid)
        process.stdin.write("x")
        process.stdin.close()
        assert process.wait(LIMIT_S) == 0
        _, alive = psutil.wait_procs(started, timeout=LIMIT_S)
    assert not alive


def heaps_of(folder: str) -> int:
    """How many of glibc's heaps this process has, once eight threads hold memory of it."""
    libc, held = ctypes.CDLL(None), threading.Barrier(9)
    libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
    libc.free.argtypes = libc.fclose.argtypes = [ctypes.c_void_p]
    libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]

    def holds_some() -> None:
        memory = libc.malloc(5_000)
        held.wait(LIMIT_S)
        libc.free(memory)

    threads = [threading.Thread(target=holds_some) for _ in range(8)]
    for thread in threads:
        thread.start()
    held.wait(LIMIT_S)
    for thread in threads:
        thread.join()
    file = libc.fopen(os.fsencode(f"{folder}/heaps"), b"w")
    libc.malloc_info(0, file)
    libc.fclose(file)
    return Path(folder, "heaps").read_text().count("<heap ")


def test_threads_of_a_slot_share_their_heaps(tmp_path: Path) -> None:
    """Each with its own would keep what it has freed from the others, and the slot would grow."""
    env = StreamExecutionEnvironment.local(1)
    heaps = env.from_collection([str(tmp_path)]).map(heaps_of)
    with heaps.execute_and_collect() as found:
        assert list(found) == [2]


def never_returns(folder: str) -> str:
    Path(folder, "called").touch()
    ctypes.PyDLL(None).pause()  # PyDLL, other than CDLL, keeps the interpreter's lock
    return folder


def test_a_call_that_holds_the_interpreter_leaves_the_driver_free(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.local(1)
    env.from_collection([str(tmp_path)]).map(never_returns).print()
    client = env.execute_async()
    waited_for((tmp_path / "called").exists)
    assert client.get_job_status().result(LIMIT_S) is JobStatus.RUNNING
    (slot,) = client.view().slots  # type: ignore[attr-defined]
    os.kill(slot.pid, signal.SIGKILL)
    with pytest.raises(JobFailed, match="slot"):
        client.get_job_execution_result().result(LIMIT_S)


def test_a_fork_server_that_is_killed_costs_one_restart_and_the_next_one_serves() -> None:
    settings = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "0 s"}
    configuration = Configuration.from_dict(
        {**settings, "restart-strategy.fixed-delay.attempts": "100"}
    )
    env = StreamExecutionEnvironment.local(1, configuration=configuration)
    env.generate(lambda n: n, rate=100).filter(lambda n: False).print()
    client = env.execute_async()
    first = forking().pid
    assert first is not None
    waited_for(lambda: all_run(client.view()))  # type: ignore[attr-defined]
    with capture_logs() as logs:
        os.kill(first, signal.SIGKILL)
        waited_for(lambda: forking().pid not in (None, first))
    (told,) = [entry for entry in logs if "slots are forked from has ended;" in entry["event"]]
    assert (told["process"], told["status"]) == (first, -signal.SIGKILL)
    waited_for(lambda: client.view().restarts > 0)  # type: ignore[attr-defined]
    waited_for(lambda: all_run(client.view()))  # type: ignore[attr-defined]
    client.cancel().result(LIMIT_S)


@pytest.mark.parametrize(
    ("end", "how"),
    [
        (lambda _: os.kill(os.getpid(), signal.SIGKILL), r"was ended by signal 9 \(SIGKILL\)"),
        (lambda _: os.kill(os.getpid(), signal.SIGSEGV), r"was ended by signal 11 \(Segm"),
        (lambda _: os._exit(7), "ended with status 7"),
    ],
)
def test_a_slot_that_a_function_ends_is_told_with_how_its_process_ended(
    end: Callable[[int], object], how: str
) -> None:
    numbers = StreamExecutionEnvironment.local().from_collection([1])
    with pytest.raises(JobFailed, match=how) as caught:
        list(numbers.map(end).execute_and_collect())
    assert "lack of memory" in caught.value.remedy


def test_in_process_a_function_runs_in_the_programs_own_process_at_any_parallelism() -> None:
    configuration = Configuration.from_dict({"tidegate.local.in-process": "true"})
    env = StreamExecutionEnvironment.local(2, configuration=configuration)
    with env.from_sequence(1, 4).map(lambda n: os.getpid()).execute_and_collect() as pids:
        assert list(pids) == [os.getpid()] * 4


def test_slots_of_one_server_draw_different_random_numbers() -> None:
    env = StreamExecutionEnvironment.local(2)
    drawn = env.from_sequence(1, 2).map(draw)
    with drawn.execute_and_collect() as numbers:
        assert len(set(numbers)) == 2


def draw(number: int) -> float:
    import numpy as np

    return float(np.random.random())


def test_a_server_that_cannot_start_is_not_tried_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def spawn(servers: socket.socket) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])

    monkeypatch.setattr("tidegate.minicluster.forking._spawn", spawn)
    failures: list[tuple[str, bool]] = []
    failed = threading.Event()

    def note(request: str, error: TidegateError, final: bool) -> None:
        failures.append((error.what, final))
        failed.set()

    forks = Forking()
    provider = ProcessProvider(forks, LinkSecurity(LinkSettings(), "127.0.0.1"))
    provider.start(SlotInvitation(driver="127.0.0.1:1", secret=b""), note, lambda who: None)
    provider.request(1)
    assert failed.wait(LIMIT_S)
    asyncio.run(provider.close())
    forks.end()
    ((what, final),) = failures
    assert final and "status 3" in what


def all_run(view: JobView) -> bool:
    return {s.state.value for v in view.vertices for s in v.subtasks} == {"RUNNING"}


def waited_for(reached: Callable[[], bool]) -> None:
    for _ in range(int(LIMIT_S * 20)):
        if reached():
            return
        threading.Event().wait(0.05)
    raise AssertionError("this did not come to be in time")


def answered(made: Forking) -> int | None:
    """Opens a channel that asks for nothing; the server's process once it has closed it too."""
    with made.channel() as channel:
        channel.shutdown(socket.SHUT_WR)
        assert channel.recv(1) == b""
    return made.pid


@pytest.mark.parametrize("room", [0, 1, 2])
def test_a_job_for_which_the_server_lacks_descriptors_does_not_end_it(room: int) -> None:
    made = Forking()
    try:
        server = psutil.Process(answered(made))
        # Its input and outputs, the link to the program, and a pair for signals.
        waited_for(lambda: server.num_fds() == 6)
        taken = {int(each.name) for each in Path(f"/proc/{server.pid}/fd").iterdir()}
        free = [number for number in range(10) if number not in taken]
        former = server.rlimit(psutil.RLIMIT_NOFILE)
        server.rlimit(psutil.RLIMIT_NOFILE, (free[room], former[1]))
        with made.channel() as refused:
            assert refused.recv(1) == b""
        server.rlimit(psutil.RLIMIT_NOFILE, former)
        assert answered(made) == server.pid
        with pytest.raises(psutil.TimeoutExpired):
            server.wait(0.2)
    finally:
        made.end()
