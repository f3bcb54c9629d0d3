"""``tidegate serve``: which folders and which port its arguments come to."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from tests.e2e.rest import Rest
from tests.rest.left import put_archive
from tests.rest.world import JOB
from tidegate.cli.main import commands
from tidegate.model.control import JobStatus
from tidegate.model.ids import JobId
from tidegate.rest.cluster import cluster_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

OTHER = JobId("f" * 32)
TOKEN = "0123456789abcdef"


class Asked(cluster_server.ClusterServer):
    """Is asked for its jobs once it is ready, and ends then."""

    jobs: list[Any]

    async def serve(self, ready: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        token = TOKEN if self.login_url() else None
        rest = Rest(self.url, job=JOB, token=token)

        def ask() -> None:
            Asked.jobs = [job["jid"] for job in rest.get("/jobs/overview")["jobs"]]

        def seen() -> None:
            ready()
            loop.run_in_executor(None, ask).add_done_callback(lambda _: self.over.set())

        await super().serve(seen)


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Asked.jobs = []
    monkeypatch.setattr(cluster_server, "ClusterServer", Asked)
    put_archive(tmp_path / "one", JobStatus.FINISHED)
    put_archive(tmp_path / "two", JobStatus.FAILED, OTHER)


def serve(*args: str) -> Result:
    return CliRunner().invoke(commands, ["serve", *args])


def test_jobs_of_the_given_folders_are_served(tmp_path: Path) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    served = serve("-d", one, "-d", two, "--port", "0")
    assert served.exit_code == 0, served.output
    assert set(Asked.jobs) == {JOB, OTHER}
    [line] = served.stderr.splitlines()
    assert line.startswith("serving jobs at http://localhost:") and "Ctrl-C" in line


def test_a_folder_that_is_not_there_is_told_at_the_start(tmp_path: Path) -> None:
    served = serve("-d", str(tmp_path / "one"), "-d", f"{tmp_path}/ordres", "--port", "0")
    assert served.exit_code == 0, served.output
    assert served.stderr.splitlines()[1] == f"there is no folder {tmp_path}/ordres yet"


def test_jobs_of_configured_folders_are_served_on_the_configured_port(tmp_path: Path) -> None:
    place = f"execution.checkpointing.dir={tmp_path / 'one'}"
    served = serve("-D", place, "-D", "rest.port=0")
    assert served.exit_code == 0, served.output
    assert Asked.jobs == [JOB]


def test_archives_alone_are_enough(tmp_path: Path) -> None:
    own = f"jobmanager.archive.fs.dir={tmp_path / 'one' / '.history'}"
    further = f"historyserver.archive.fs.dir={tmp_path / 'two' / '.history'}"
    served = serve("-D", own, "-D", further, "--port", "0")
    assert served.exit_code == 0, served.output
    assert set(Asked.jobs) == {JOB, OTHER}


def test_with_a_token_a_link_for_a_browser_is_printed(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text(TOKEN)
    secured = f"tidegate.rest.token-file={file}"
    served = serve("-d", str(tmp_path / "one"), "-D", secured, "--port", "0")
    assert served.exit_code == 0, served.output
    _, link = served.stderr.splitlines()
    assert "open in a browser (works once" in link and "/login?code=" in link
    assert Asked.jobs == [JOB]


def test_without_a_folder_it_says_what_to_name() -> None:
    refused = serve("--port", "0")
    assert refused.exit_code == 2
    assert "No folder of jobs is given" in refused.stderr
    assert "execution.checkpointing.dir" in refused.stderr


def test_without_the_http_servers_package_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, cluster_server.__name__, None)
    refused = serve("-d", str(tmp_path), "--port", "0")
    assert refused.exit_code == 2 and "pip install 'tidegate[rest]'" in refused.stderr
