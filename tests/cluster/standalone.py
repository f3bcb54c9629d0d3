"""A standalone Spark cluster of PySpark's own jars: a master, and workers on hosts of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.cluster.archive import quick_flags
from tests.cluster.network import end, network
from tests.e2e.kafka import free_ports
from tests.e2e.watch import until
from tests.e2e.zookeeper import LOGGING, jars, java

if TYPE_CHECKING:
    from collections.abc import Iterable

    import psutil

ROOT: Final = Path(__file__).resolve().parents[2]
PYTHONPATH: Final = os.pathsep.join(
    str(ROOT / each) for each in ("src", "packages/flinkformat/src", "")
)
MASTER, DRIVER = "master", "driver"
WORKERS: Final = ("worker-1", "worker-2", "worker-3")
HALVES: Final = {MASTER: 0, DRIVER: 0, "worker-1": 0, "worker-2": 1, "worker-3": 1}
"""Which half of the network a host is in."""

CORES = 3
"""Of each worker, on paper: slots wait more than they work."""

START_S = 180.0
SPARKS_OWN: Final = ("-Dspark.deploy.recoveryMode=FILESYSTEM", "-Dspark.worker.timeout=4")
FOLDER: Final = "-Dspark.deploy.recoveryDirectory"
"""A master that comes back knows its applications by what it has written there; a worker that is
silent for 4 s is lost, which by itself Spark takes a minute for."""

EXECUTOR = "CoarseGrainedExecutorBackend"
DAEMON = "tidegate.spark.daemon"


class StandaloneCluster:
    """A master, three workers, and a host for drivers. folder: for logs and working folders."""

    def __init__(self, folder: Path) -> None:
        self.flags = quick_flags(ROOT / "build" / "cluster")
        self.network = network(HALVES)
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._port = 7077 if self.network.named else free_ports(1)[0]
        self._page = ""

    @property
    def hosts(self) -> list[str]:
        """Names of all hosts."""
        return list(HALVES)

    @property
    def url(self) -> str:
        """The master, as drivers and workers name it."""
        return f"spark://{self.network.address(MASTER)}:{self._port}"

    def start(self) -> None:
        """Returns once all workers have registered."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "log4j2.properties").write_text(LOGGING)
        self.start_master()
        for worker in WORKERS:
            self.start_worker(worker)
        self.wait_for_workers(*WORKERS)

    def start_master(self) -> None:
        """Starts the master, and waits for its page."""
        at = ("--port", str(self._port), "--webui-port", "0")
        self._start(MASTER, "org.apache.spark.deploy.master.Master", *at)
        until(self._has_page, "the master's page", START_S)

    def _has_page(self) -> bool:
        log = self.log(MASTER)
        assert self._processes[MASTER].poll() is None, f"the master has ended:\n{log}"
        found = re.search(r"Bound MasterWebUI to \S+ and started at http://\S+:(\d+)", log)
        if found is not None:
            self._page = f"http://{self.network.address(MASTER)}:{found[1]}/json/"
        return found is not None

    def start_worker(self, worker: str) -> None:
        """Starts a worker; `wait_for_workers` waits for it."""
        room = ("--cores", str(CORES), "--memory", "3g", "--webui-port", "0")
        work = ("--work-dir", str(self._folder / worker))
        self._start(worker, "org.apache.spark.deploy.worker.Worker", *room, *work, self.url)

    def wait_for_workers(self, *workers: str) -> None:
        """Wait until the master counts exactly these."""
        wanted = {self.network.address(worker) for worker in workers}
        until(lambda: self._workers() == wanted, f"registered workers {sorted(wanted)}", START_S)

    def _workers(self) -> set[str]:
        for name, process in self._processes.items():
            assert process.poll() is None, f"{name} has ended:\n{self.log(name)}"
        return {each["host"] for each in self.state()["workers"] if each["state"] == "ALIVE"}

    def wait_idle(self) -> None:
        """Wait until no host has an executor, or anything that one has started."""
        until(lambda: not any(map(self._busy, WORKERS)), "no executor runs", START_S)

    def _busy(self, worker: str) -> bool:
        return len(self.network.processes(worker)) > 1

    def state(self) -> Any:
        """What the master knows, as its page tells it."""
        with urllib.request.urlopen(self._page, timeout=START_S) as answer:
            return json.load(answer)

    def _start(self, host: str, main: str, *arguments: str) -> None:
        address = self.network.address(host)
        logging = f"-Dlog4j2.configurationFile={self._folder}/log4j2.properties"
        command = [
            java(),
            "-Xmx192m",
            *self.flags,
            *SPARKS_OWN,
            f"{FOLDER}={self._folder / 'apps'}",
        ]
        command += [logging, "-cp", f"{jars().parent}/conf/:{jars()}/*", main, "--host", address]
        log = self._folder / f"{host}.log"
        log.unlink(missing_ok=True)
        with log.open("wb") as output:
            self._processes[host] = subprocess.Popen(
                self.network.on(host, [*command, *arguments]),
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=self.environment(host),
                start_new_session=True,  # Ctrl-C is for the tests, which end it
            )

    def environment(self, host: str) -> dict[str, str]:
        """Of processes on a host: what was installed there and what it is called, nothing else."""
        return {
            **{key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ},
            "JAVA_HOME": str(Path(java()).resolve().parents[1]),
            "SPARK_HOME": str(jars().parent),
            "SPARK_LOCAL_IP": self.network.address(host),
            "SPARK_LOCAL_DIRS": str(self._folder / f"{host}-local"),
            # `spark-class` sets it, which would be one process more between us and Java.
            "SPARK_SCALA_VERSION": next(jars().glob("spark-core_*")).name.split("_")[1][:4],
        }

    def log(self, host: str) -> str:
        """What the server on a host has written."""
        return (self._folder / f"{host}.log").read_text()

    def executors(self, host: str) -> list[psutil.Process]:
        """Executors that run on a host."""
        return [each for each in self.network.processes(host) if EXECUTOR in _line(each)]

    def slots(self, host: str) -> list[psutil.Process]:
        """Python workers of Spark on a host: children of a daemon, which is an executor's child."""
        children = (child for each in self.executors(host) for child in _children(each))
        return [
            slot for daemon in children if DAEMON in _line(daemon) for slot in _children(daemon)
        ]

    def kill_worker(self, worker: str) -> None:
        """All that runs on the host dies at once: the worker, its executors, their Python."""
        process = self._processes.pop(worker)
        end(self.network.processes(worker))
        process.wait()

    def kill_master(self) -> None:
        """The master dies, as by a crash."""
        process = self._processes.pop(MASTER)
        end(self.network.processes(MASTER))
        process.wait()

    def close(self) -> None:
        """Ends all processes on all hosts, and the hosts."""
        self.network.close()
        for process in self._processes.values():
            process.wait()


def _line(process: psutil.Process) -> str:
    import psutil

    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _children(process: psutil.Process) -> Iterable[psutil.Process]:
    import psutil

    try:
        return process.children()
    except psutil.Error:
        return ()


def session_settings(cluster: StandaloneCluster) -> dict[str, str]:
    """Spark's settings for a session on the cluster."""
    return {
        "spark.master": cluster.url,
        "spark.driver.host": cluster.network.address(DRIVER),
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.driver.extraJavaOptions": " ".join(cluster.flags),
        "spark.executor.extraJavaOptions": " ".join(cluster.flags),
        "spark.pyspark.python": sys.executable,
        "spark.python.daemon.module": DAEMON,
        "spark.executorEnv.PYTHONPATH": PYTHONPATH,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
