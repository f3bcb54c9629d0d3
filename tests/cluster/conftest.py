"""One cluster for all tests of a process; each has a job of its own, with a driver of its own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.cluster.job import ClusterJob
from tests.cluster.standalone import StandaloneCluster
from tests.conftest import child_processes

StartJob = Callable[..., ClusterJob]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """A master and three workers, started once; nothing of them is left at the end."""
    cluster = StandaloneCluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
    left = [each for host in cluster.hosts for each in cluster.network.processes(host)]
    assert not left, f"processes that outlive their cluster: {left}"


@pytest.fixture
def start_job(
    cluster: StandaloneCluster, tmp_path: Path, known_processes: set[psutil.Process]
) -> Iterator[StartJob]:
    """Starts a job and waits for its first rows, save of a batch, which commits them at its end.

    Afterwards nothing of it is left on any host.
    """
    with ExitStack() as stack:

        def start(*, batch: bool = False, **options: object) -> ClusterJob:
            job = ClusterJob(cluster, tmp_path, batch=batch, **options)  # type: ignore[arg-type]
            stack.callback(job.close)
            job.start()
            if not batch:
                job.wait_rows()
            return job

        yield start
    cluster.wait_idle()
    known_processes |= child_processes()  # the servers of the cluster, which tests have replaced
