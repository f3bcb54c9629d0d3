"""What all tests share: profiles, Spark's worker, the record of what each test shows.

`--results FILE` writes the outcome of every test, `--feature-marks FILE` which test carries which
rows of docs/features.tsv; scripts/features.py lays the two together. `--part 1/2` runs the tests of
about half the files, `--part 2/2` the others. `--by-row` runs them with no function evaluated over
columns, unless a test says so itself.
"""

import faulthandler
import json
import os
import sys
import threading
import zlib
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

from scripts.trees import tree_hash
from tests.e2e.kafka import KafkaServer
from tests.e2e.zookeeper import ZooKeeperServer
from tests.properties import register_profiles
from tests.threads import left_behind
from tidegate.config.execution import TRACE_FUNCTIONS
from tidegate.minicluster.forking import forking

register_profiles()

TESTS = Path(__file__).parent
SPARK_TESTS = TESTS / "spark"
SPARK, SPARK_PROGRAMS = "spark", "spark-programs"
GROUPS = (SPARK, SPARK_PROGRAMS, "kafka", "cluster")
"""Of tests that one process runs one after the other."""
SOCKETS_OF_PYSPARK = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
"""It leaves sockets to its gateway open. Ours are an error in every other process of tests."""
LIVES_SHORT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Flags of Java for Spark: tests end before the better code of its second compiler pays."""
ENDS_WITHIN_S = 60.0
HANGS_S = 120.0
"""How long a test may go on behind its time limit before it ends its process: the limit is a
signal, which a call of C never hears, and does not hold for what is tidied up behind it."""
LONG_VALUE = 100
LINUX = sys.platform == "linux"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tidegate")
    group.addoption("--results", type=Path, help="write the outcome of each test as JSON")
    group.addoption("--feature-marks", type=Path, help="write which test marks which feature")
    group.addoption("--by-row", action="store_true", help="call each function for each row")
    group.addoption("--part", default="1/1", help="run the files of one part only, such as 1/2")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("SPARK_SUBMIT_OPTS", LIVES_SHORT)
    if config.getoption("--by-row"):
        object.__setattr__(TRACE_FUNCTIONS, "default", False)
    if hasattr(config, "workerinput"):
        return  # the outcomes of all workers arrive at the process that started them
    results = config.getoption("--results")
    if results is not None:
        config.pluginmanager.register(OutcomeRecord(results))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Passes over files of other parts before they are imported. None leaves it to pytest."""
    part, parts = map(int, config.getoption("--part").split("/"))
    # Those of the house read the whole source: one process does that, once.
    house = collection_path.parent.name == "house"
    name = b"house" if house else collection_path.relative_to(TESTS).as_posix().encode()
    if collection_path.suffix == ".py" and zlib.crc32(name) % parts != part - 1:
        return True
    return None


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A short name for a long text: a test's name had megabytes. None leaves it to pytest."""
    if isinstance(val, str | bytes) and len(val) > LONG_VALUE:
        return f"{argname} of {len(val)}"
    return None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks Spark's tests here, for xdist reads the groups before other hooks see the list."""
    if SPARK_TESTS in item.path.parents:
        item.add_marker(pytest.mark.spark)
    if item.get_closest_marker("spark") is not None:
        # One process has the session; programs that make their own run beside it.
        shares = "spark" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group(SPARK if shares else SPARK_PROGRAMS))
        item.add_marker(SOCKETS_OF_PYSPARK)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Ends the process, with the stacks of all threads, where a test does not come to its end."""
    if "pyspark" in sys.modules:
        # What PySpark has left open may be collected in any later test of the process.
        item.add_marker(SOCKETS_OF_PYSPARK)
    _end_if_it_hangs(item)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _end_if_it_hangs(item: pytest.Item) -> None:
    marker = item.get_closest_marker("timeout")
    limits = marker.args if marker else (item.config.getoption("timeout"),)
    limit_s = float(limits[0] or item.config.getini("timeout"))
    stderr = item.config.stash[fault_handler_stderr_fd_key]
    faulthandler.dump_traceback_later(limit_s + HANGS_S, exit=True, file=stderr)


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: object) -> None:
    """A failure stops the watch, for the sake of debuggers; what comes behind it may hang too."""
    if isinstance(node, pytest.Item):
        _end_if_it_hangs(node)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    marks = config.getoption("--feature-marks")
    if marks is not None:
        marks.write_text(json.dumps({item.nodeid: feature_ids(item) for item in items}, indent=1))


def feature_ids(item: pytest.Item) -> list[str]:
    """The rows of docs/features.tsv whose check this test performs."""
    return [name for marker in item.iter_markers("feature") for name in marker.args]


class OutcomeRecord:
    """Writes the outcome of each test of a session, with the name of the tree that was tested."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tree = tree_hash()
        self._outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # xdist adds the group to the name
        name = report.nodeid
        for group in GROUPS:
            name = name.removesuffix(f"@{group}")
        ended = report.when == "call" or report.outcome != "passed"
        if ended and self._outcomes.get(name) != "failed":
            self._outcomes[name] = report.outcome

    def pytest_sessionfinish(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        record = {"tree": self._tree, "outcomes": self._outcomes}
        self._path.write_text(json.dumps(record, indent=1))


@pytest.fixture(scope="session")
def known_processes() -> set[psutil.Process]:
    """The children of this process that no test has to answer for."""
    return child_processes()


@pytest.fixture(autouse=True)
def nothing_is_left_behind(
    request: pytest.FixtureRequest, known_processes: set[psutil.Process]
) -> Iterator[None]:
    """Fails a test that leaves a thread or a process; Spark's own outlive its tests."""
    on_spark = request.node.get_closest_marker("spark") is not None
    threads = set(threading.enumerate())
    yield
    left = left_behind(threads, prefix="tidegate" if on_spark else "", within_s=ENDS_WITHIN_S)
    assert not left, f"threads are left behind: {left}"
    if on_spark:
        known_processes |= child_processes()
        return
    _, alive = psutil.wait_procs(child_processes() - known_processes, timeout=ENDS_WITHIN_S)
    known_processes.update(alive)
    assert not alive, f"processes are left behind: {alive}"


@pytest.fixture(autouse=True)
def no_session_of_other_tests(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that a test runs without Spark does not go to the session of Spark's tests."""
    if request.node.get_closest_marker("spark") is None and "pyspark" in sys.modules:
        from pyspark import SparkContext

        monkeypatch.setattr(SparkContext, "_active_spark_context", None)


@pytest.fixture(scope="session")
def zookeeper(
    tmp_path_factory: pytest.TempPathFactory, known_processes: set[psutil.Process]
) -> Iterator[ZooKeeperServer]:
    """A real server, one for all tests of this process; each keeps to a root of its own."""
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    try:
        server.start()
        known_processes |= child_processes()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def kafka(
    tmp_path_factory: pytest.TempPathFactory, known_processes: set[psutil.Process]
) -> Iterator[KafkaServer]:
    """A real broker, one for all tests of this process; each makes topics of its own."""
    server = KafkaServer(tmp_path_factory.mktemp("kafka"))
    try:
        server.start()
        known_processes |= child_processes()
        yield server
    finally:
        server.stop()


def child_processes() -> set[psutil.Process]:
    """The living children of this process, theirs included, beside the fork server of its jobs."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return set()  # a usual case, and known without reading all of /proc after every test
    server = forking().pid
    if LINUX and children_of(os.getpid()) == {server} and not children_of(server):
        return set()  # the other one
    return {each for each in psutil.Process().children(recursive=True) if each.pid != server}


def children_of(pid: int | None) -> set[int]:
    """Read from the kernel's own lists; a thread may end meanwhile."""
    children: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            children.update(map(int, (task / "children").read_text().split()))
    return children


@pytest.fixture(autouse=True)
def logs_as_at_the_start() -> Iterator[None]:
    """Capturing logs configures structlog for the whole process; the next test is not to see it."""
    yield
    if (structlog := sys.modules.get("structlog")) is not None:
        structlog.reset_defaults()
