"""Which jobs a server of many knows, and what it says of drivers that do not answer."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, TypeVar

import pytest
import structlog
from structlog.testing import capture_logs

from tests.e2e.certificates import Authority
from tests.rest.left import driver, put_archive, put_sign
from tests.rest.world import JOB
from tidegate.clock import SystemClock
from tidegate.model.control import JobStatus
from tidegate.model.ids import Epoch, JobId
from tidegate.model.settings import TlsStores
from tidegate.rest.cluster import asking
from tidegate.rest.cluster.asking import Asking
from tidegate.rest.cluster.folders import JobFolders
from tidegate.rest.cluster.known_jobs import LOOK_S, KnownJobs, SeenJob
from tidegate.rest.guard import Guard
from tidegate.rest.refusals import Forbidden, NotFound
from tidegate.storage import paths
from tidegate.transport.keys import read_keys, service_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path


T = TypeVar("T")

ANYBODY = TlsStores()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def look(
    folder: Path,
    ask: Callable[[KnownJobs], Awaitable[T]],
    *,
    token: str | None = None,
    stores: TlsStores = ANYBODY,
    ask_s: float = 20.0,
) -> T:
    async def live() -> T:
        tls = service_context(read_keys(stores, prefix="x"), check_names=True)
        async with Asking(token, tls, ask_s=ask_s) as asking:
            known = KnownJobs(
                JobFolders([str(folder)], []),
                asking,
                SystemClock(),
                asyncio.to_thread,
                60_000,
                structlog.get_logger(),
            )
            try:
                return await ask(known)
            finally:
                await known.close()

    return asyncio.run(live())


def seen(folder: Path, *, token: str | None = None, stores: TlsStores = ANYBODY) -> SeenJob:
    [job] = look(folder, lambda known: known.all(), token=token, stores=stores)
    return job


def test_a_driver_that_answers_tells_its_job(stack: ExitStack, tmp_path: Path) -> None:
    put_sign(tmp_path, driver(stack).url)
    put_archive(tmp_path, JobStatus.SUSPENDED)  # of an earlier run of the same job
    job = seen(tmp_path)
    assert (job.live, job.state, job.trouble) == (True, "RUNNING", "")
    assert "trouble" not in job.shown()


def test_a_driver_without_rest_is_shown_by_its_archive(tmp_path: Path) -> None:
    put_sign(tmp_path, "")
    put_archive(tmp_path, JobStatus.RUNNING)
    job = seen(tmp_path)
    assert (job.live, job.state) == (False, "RUNNING")
    assert "rest.port=0" in job.trouble and "left last" in job.trouble


def test_the_address_of_another_machine_is_not_taken_for_one_of_this(
    stack: ExitStack, tmp_path: Path
) -> None:
    put_sign(tmp_path, driver(stack).url, host="elsewhere")
    job = seen(tmp_path)
    assert not job.live and "elsewhere" in job.trouble and "rest.bind-address" in job.trouble


def test_every_address_of_another_machine_is_none_to_dial(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as here:
        put_sign(tmp_path, f"http://0.0.0.0:{here.getsockname()[1]}", host="elsewhere")
        job = seen(tmp_path)
    assert not job.live and "rest.address" in job.trouble


def test_another_machine_that_refuses_does_not_say_that_its_driver_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_is_loopback", lambda host: False)
    with closing(socket.create_server(("127.0.0.1", 0))) as port:
        address = f"http://127.0.0.1:{port.getsockname()[1]}"
    put_sign(tmp_path, address, host="elsewhere")
    put_archive(tmp_path, JobStatus.RUNNING)
    job = seen(tmp_path)
    assert (job.live, job.state) == (False, "RUNNING")
    assert "cannot be reached" in job.trouble and "if it was killed there" in job.trouble


def test_a_driver_that_is_asked_under_a_name_it_does_not_know_says_so(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise Forbidden("not under this name")

    put_sign(tmp_path, driver(stack).url)
    monkeypatch.setattr(Guard, "check", refuse)
    trouble = seen(tmp_path).trouble
    assert "tidegate.rest.allowed-hosts" in trouble and "token" not in trouble


def test_a_job_that_was_resumed_is_not_taken_for_its_last_end(
    stack: ExitStack, tmp_path: Path
) -> None:
    put_archive(tmp_path, JobStatus.CANCELED)
    put_sign(tmp_path, driver(stack).url)
    assert (seen(tmp_path).live, seen(tmp_path).state) == (True, "RUNNING")
    put_sign(tmp_path, driver(stack).url, pid=dead_pid())
    stack.close()
    job = seen(tmp_path)
    assert (job.live, job.state, job.trouble) == (False, "CANCELED", "")


def test_whoever_has_the_port_of_a_dead_driver_does_not_see_the_token(
    stack: ExitStack, tmp_path: Path
) -> None:
    put_sign(tmp_path, driver(stack).url, pid=dead_pid())
    assert seen(tmp_path).live  # nothing is given away
    job = seen(tmp_path, token="0123456789abcdef")
    assert (job.live, job.state) == (False, "SUSPENDED") and "was killed" in job.trouble


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_driver_that_does_not_answer_delays_the_others_by_a_limit(
    tmp_path: Path,
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        put_sign(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}")
        put_archive(tmp_path, JobStatus.RESTARTING)
        began = time.monotonic()
        [job] = look(tmp_path, lambda known: known.all(), ask_s=0.2)
        assert time.monotonic() - began < LOOK_S
    assert (job.live, job.state) == (False, "RESTARTING")
    assert "has not answered within 0.2 s" in job.trouble


@pytest.mark.parametrize("left", [None, JobStatus.RUNNING, JobStatus.RESTARTING])
def test_a_driver_that_is_gone_leaves_a_job_that_can_go_on(
    tmp_path: Path, left: JobStatus | None
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as port:
        address = f"http://127.0.0.1:{port.getsockname()[1]}"
    put_sign(tmp_path, address)
    if left is not None:
        put_archive(tmp_path, left)
    job = seen(tmp_path)
    assert (job.live, job.state, job.overview["name"]) == (False, "SUSPENDED", "orders")
    assert "was killed" in job.trouble and "--from latest" in job.trouble


def test_another_job_at_the_address_is_not_taken_for_it(stack: ExitStack, tmp_path: Path) -> None:
    put_sign(tmp_path, driver(stack).url, job="f" * 32)
    job = seen(tmp_path)
    assert (job.found.id, job.state) == ("f" * 32, "SUSPENDED")


def test_an_archive_without_a_driver_says_whether_the_job_is_over(tmp_path: Path) -> None:
    put_archive(tmp_path, JobStatus.FAILED)
    assert (seen(tmp_path).state, seen(tmp_path).trouble) == ("FAILED", "")
    put_archive(tmp_path, JobStatus.SUSPENDED)
    assert (seen(tmp_path).state, seen(tmp_path).trouble) == ("SUSPENDED", "")
    put_archive(tmp_path, JobStatus.RUNNING)
    assert seen(tmp_path).state == "SUSPENDED" and "without saying" in seen(tmp_path).trouble


def test_a_driver_that_wants_a_token_is_asked_with_it(stack: ExitStack, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text("0123456789abcdef")
    put_sign(tmp_path, driver(stack, token_file=str(file)).url)
    assert seen(tmp_path, token="0123456789abcdef").live
    for wrong in (None, "fedcba9876543210"):
        job = seen(tmp_path, token=wrong)
        assert not job.live and "tidegate.rest.token-file" in job.trouble


def test_a_driver_with_tls_is_asked_if_its_certificate_is_trusted(
    stack: ExitStack, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    own = TlsStores(keystore=str(authority.issue("own.pem")))
    put_sign(tmp_path, driver(stack, tls=own).url)
    assert seen(tmp_path, stores=TlsStores(truststore=str(authority.pem))).live
    job = seen(tmp_path)
    assert not job.live and "security.ssl.rest.truststore" in job.trouble


def test_damaged_files_hide_no_other_job(stack: ExitStack, tmp_path: Path) -> None:
    put_sign(tmp_path, driver(stack).url)
    damaged = tmp_path / paths.door_file("broken", Epoch(1))
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{")
    with capture_logs() as logged:
        assert seen(tmp_path).live
    assert [each["log_level"] for each in logged] == ["warning"]


def test_a_sign_with_an_address_that_is_none_hides_no_other_job(
    stack: ExitStack, tmp_path: Path
) -> None:
    put_sign(tmp_path, driver(stack).url)
    put_sign(tmp_path, "http://[::1", name="broken", job="f" * 32)
    jobs = look(tmp_path, lambda known: known.all())
    assert [job.found.id for job in jobs if job.live] == [JOB]


@pytest.mark.parametrize("time", ["5", "Infinity", "null"])
def test_an_archive_with_a_time_that_is_none_hides_no_other_job(tmp_path: Path, time: str) -> None:
    for job in (JOB, JobId("f" * 32)):
        put_archive(tmp_path, JobStatus.FINISHED, job)
    broken = tmp_path / paths.history_folder() / ("f" * 32)
    shown = '\\"end-time\\":5000'
    assert shown in broken.read_text()
    text = '\\"5\\"' if time == "5" else time
    broken.write_text(broken.read_text().replace(shown, f'\\"end-time\\":{text}'))
    with capture_logs() as logged:
        assert seen(tmp_path).found.id == JOB
    assert [each["log_level"] for each in logged] == ["warning"]


def test_jobs_are_looked_for_once_for_all_who_ask(stack: ExitStack, tmp_path: Path) -> None:
    put_sign(tmp_path, driver(stack).url)

    async def ask(known: KnownJobs) -> list[int]:
        looks: list[int] = []
        real = known.folders.look
        known.folders.look = lambda: looks.append(1) or real()  # type: ignore[method-assign]
        await asyncio.gather(*(known.all() for _ in range(20)))
        await known.one(JOB)
        with pytest.raises(NotFound):
            await known.one("e" * 32)
        return looks

    assert look(tmp_path, ask) == [1]


def test_a_job_that_stops_answering_is_looked_at_again(stack: ExitStack, tmp_path: Path) -> None:
    put_sign(tmp_path, driver(stack).url)

    async def ask(known: KnownJobs) -> tuple[SeenJob, SeenJob]:
        before = await known.one(JOB)
        await asyncio.to_thread(stack.close)
        return before, await known.after(before)

    before, after = look(tmp_path, ask)
    assert before.live and not after.live and after.state == "SUSPENDED"


@pytest.mark.parametrize("archived", [True, False])
def test_a_driver_tells_results_for_as_long_as_it_answers_without_a_sign(
    stack: ExitStack, tmp_path: Path, archived: bool
) -> None:
    put_sign(tmp_path, driver(stack).url)

    async def ask(known: KnownJobs) -> tuple[SeenJob, SeenJob]:
        running = await known.one(JOB)
        (tmp_path / paths.door_file("orders", Epoch(1))).unlink()
        if archived:
            put_archive(tmp_path, JobStatus.FINISHED)
        ending = await known.after(running)
        await asyncio.to_thread(stack.close)
        if not archived:
            with pytest.raises(NotFound):
                await known.after(ending)
            return ending, ending
        return ending, await known.after(ending)

    ending, over = look(tmp_path, ask)
    assert ending.live and ending.found.sign is not None
    assert not archived or (over.live, over.state, over.trouble) == (False, "FINISHED", "")
