"""A job on the cluster, started as a user starts it, and looked at from outside."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import psutil

from tests.cluster.counts import Orders
from tests.cluster.network import end
from tests.cluster.standalone import DRIVER, PYTHONPATH, ROOT, START_S, WORKERS, session_settings
from tests.e2e.journal import Journal, Latch
from tests.e2e.ledger import ledger_files, rows_of
from tests.e2e.rest import Rest
from tests.e2e.runtimes import RESTART_AT_ONCE
from tests.e2e.watch import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.cluster.standalone import StandaloneCluster
    from tests.e2e.ledger import Rows

REST_PORT: Final = 8081
ROW_S: Final = 0.01
"""What a reader takes for a row; three of them read 300 a second."""


@dataclass(frozen=True)
class PlacedSlot:
    """A slot and the host that it says it is on."""

    host: str
    pid: int


class ClusterJob:
    """One job of `tests.cluster.counts`, driver after driver. folder: of it alone.

    spark: further settings of the session, settings: of the job. batch: over Spark's shuffle. It is
    slow until `hurry`.
    """

    def __init__(
        self,
        cluster: StandaloneCluster,
        folder: Path,
        *,
        rows: int,
        slots: int = 3,
        spark: Mapping[str, str] | None = None,
        settings: Mapping[str, object] | None = None,
        batch: bool = False,
    ) -> None:
        self.cluster = cluster
        self.folder = folder
        self.journal = Journal(folder / "journal")
        folder.mkdir(parents=True, exist_ok=True)
        session = {**session_settings(cluster), "spark.cores.max": str(slots)}
        session |= spark or {}
        self._orders = Orders(str(folder), rows, ROW_S, slots, session, by_count=batch)
        self._settings = dict(settings or {})
        if batch:
            self._settings["execution.runtime-mode"] = "BATCH"
        self._slow = Latch(folder / "slow")
        self._slow.set()
        self._driver: subprocess.Popen[bytes] | None = None
        self._read: dict[str, Rows] = {}

    @property
    def total(self) -> int:
        """Rows that the job counts."""
        return self._orders.rows

    def start(self, *, latest: bool = False) -> None:
        """Runs `tidegate run`, as somebody on the driver's host would; returns at once."""
        assert self._driver is None, "it has a driver"
        address = self.cluster.network.address(DRIVER)
        settings = {
            "execution.checkpointing.interval": "500 ms",
            "execution.checkpointing.dir": str(self.folder / "checkpoints"),
            "tidegate.batch.rows": 8,
            "tidegate.slots.start-timeout": "180 s",  # the machine may have much else to do
            "rest.port": str(REST_PORT),
            "rest.bind-address": address,
            **RESTART_AT_ONCE,
            **self._settings,
        }
        options = [word for k, v in settings.items() for word in ("-D", f"{k}={v}")]
        where = ["--from", "latest"] if latest else []
        program = [str(ROOT / "tests" / "cluster" / "counts.py"), json.dumps(asdict(self._orders))]
        run = [sys.executable, "-m", "tidegate", "run", *where, *options, *program]
        with self._log.open("ab") as output:
            self._driver = subprocess.Popen(
                self.cluster.network.on(DRIVER, run),
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env={**self.cluster.environment(DRIVER), "PYTHONPATH": PYTHONPATH},
                start_new_session=True,
            )

    @property
    def _log(self) -> Path:
        return self.folder / "driver.log"

    def log(self) -> str:
        """What its drivers have written."""
        return self._log.read_text()

    def rest(self) -> Rest:
        """Its REST interface, once that answers."""
        url = f"http://{self.cluster.network.address(DRIVER)}:{REST_PORT}"
        found: list[Rest] = []

        def answers() -> bool:
            self.check_driver()
            try:
                found.append(Rest(url))
            except (OSError, IndexError):
                return False
            return True

        until(answers, "the job's REST interface", START_S)
        return found[0]

    @property
    def is_over(self) -> bool:
        """True if the driver has ended."""
        return self._driver is None or self._driver.poll() is not None

    def check_driver(self) -> None:
        """Fails, with its log, if the driver has ended."""
        assert self._driver is not None and self._driver.poll() is None, self.log()[-8_000:]

    def slots(self) -> list[PlacedSlot]:
        """The slots that the driver has."""
        told: Any = self.rest().get("/taskmanagers")["taskmanagers"]
        places = [re.fullmatch(r"(.*), pid (\d+)", each["path"]) for each in told]
        return [PlacedSlot(place[1], int(place[2])) for place in places if place is not None]

    def on_worker(self) -> dict[int, str]:
        """By pid the worker on whose host each slot truly is."""
        processes = {each.pid: host for host in WORKERS for each in self.cluster.slots(host)}
        return {slot.pid: processes[slot.pid] for slot in self.slots() if slot.pid in processes}

    def rows(self) -> Iterator[dict[str, int]]:
        """The committed rows."""
        for file in ledger_files(self.folder / "out"):
            if file.name not in self._read:
                self._read[file.name] = rows_of(file)
        for rows in self._read.values():
            yield from rows

    def wait_rows(
        self, since_ms: int = 0, above: int = -1, within_s: float = START_S
    ) -> dict[str, int]:
        """Wait for committed rows that were counted later, by a higher attempt; the first."""
        found: list[dict[str, int]] = []

        def came() -> bool:
            self.check_driver()
            found.extend(
                row
                for row in self.rows()
                if row["emitted_ms"] > since_ms and row["attempt"] > above
            )
            return bool(found)

        until(came, f"committed rows of later, of attempts above {above}", within_s)
        return min(found, key=itemgetter("emitted_ms"))

    def attempt(self) -> int:
        """The highest attempt of which rows are committed."""
        return max(row["attempt"] for row in self.rows())

    def hurry(self) -> None:
        """Lets the job read as quickly as it can."""
        self._slow.release()

    def wait_end(self, within_s: float) -> None:
        """Wait until the driver ends with its job."""
        assert self._driver is not None, "it has no driver"
        code = self._driver.wait(within_s)
        self._driver = None
        assert code == 0, self.log()[-8_000:]

    def kill_driver(self) -> None:
        """SIGKILL for the driver's Python; its JVM is a process of its own, and left alone."""
        assert self._driver is not None, "it has no driver"
        process = psutil.Process(self._driver.pid)
        end([process])
        self._driver.wait()
        self._driver = None

    def close(self) -> None:
        """Ends all that runs on the driver's host."""
        end(self.cluster.network.processes(DRIVER))
        if self._driver is not None:
            self._driver.wait()
            self._driver = None


def now_ms() -> int:
    """The time of day, as rows carry it."""
    return time.time_ns() // 1_000_000
