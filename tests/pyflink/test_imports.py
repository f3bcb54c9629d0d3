"""`import pyflink`: each name in its place, what is not there by its name, and nothing left behind.

`surface.tsv` says what PyFlink's modules give; scripts/pyflink_surface.py makes it.
"""

import sys
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner

import tidegate
from tests.pyflink.surface import SURFACE, WANTED
from tidegate.cli.main import commands
from tidegate.errors import ConfigError, GraphError, PeerLost
from tidegate.model.control import SlotInvitation
from tidegate.pyflink import install, is_installed, uninstall
from tidegate.pyflink.imports import Absent
from tidegate.slot.process.serve import serve


@pytest.mark.usefixtures("pyflink")
def test_each_class_that_is_wanted_stands_in_its_place() -> None:
    wanted = [line for line in SURFACE if line["name"] in WANTED]
    assert len(wanted) > 200
    assert [
        f"{line['module']}.{line['name']}"
        for line in wanted
        if isinstance(getattr(import_module(line["module"]), line["name"], Absent("", "")), Absent)
    ] == []


@pytest.mark.usefixtures("pyflink")
def test_all_names_of_a_module_are_those_it_lists() -> None:
    space: dict[str, object] = {}
    exec("from pyflink.datastream.window import *", space)
    assert space["TumblingEventTimeWindows"] is tidegate.TumblingEventTimeWindows
    assert "StreamExecutionEnvironment" not in space


@pytest.mark.usefixtures("pyflink")
def test_every_name_that_a_module_lists_is_there() -> None:
    modules = [import_module(line["module"]) for line in SURFACE if line["name"] in WANTED]
    for module in modules:
        for name in module.__all__:
            assert getattr(module, name) is not None, f"{module.__name__}.{name}"


@pytest.mark.usefixtures("pyflink")
def test_a_name_is_found_in_a_module_that_only_uses_it() -> None:
    from pyflink.datastream.functions import ValueState
    from pyflink.datastream.state import ValueState as Defined

    assert ValueState is Defined is tidegate.ValueState


@pytest.mark.usefixtures("pyflink")
def test_submodules_come_from_their_package() -> None:
    from pyflink import datastream
    from pyflink.datastream import window

    assert window.TimeWindow is datastream.TimeWindow
    assert {"window", "TimeWindow"} <= set(dir(datastream))


@pytest.mark.usefixtures("pyflink")
def test_a_name_that_pyflink_does_not_have_is_missed_as_anywhere() -> None:
    import pyflink.common

    assert not hasattr(pyflink.common, "Tpyes")
    with pytest.raises(ImportError, match=r"cannot import name 'Tpyes'.*tidegate.pyflink"):
        exec("from pyflink.common import Tpyes")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'pyflink\.comon'"):
        import_module("pyflink.comon")


@pytest.mark.usefixtures("pyflink")
@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("pyflink.table", "no Table API"),
        ("pyflink.java_gateway", "No JVM"),
        ("pyflink.datastream.connectors.pulsar", "write a Source or a Sink"),
        ("pyflink.datastream.formats.avro", "Use JSON, CSV or Parquet"),
    ],
)
def test_a_module_that_cannot_be_here_says_so_by_its_name(module: str, says: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=rf"PyFlink's module {module}\b.*{says}"):
        import_module(f"{module}.below")
    with pytest.raises(ModuleNotFoundError, match=rf"PyFlink's module {module}\b.*{says}"):
        import_module(module)


@pytest.mark.usefixtures("pyflink")
def test_a_class_of_javas_may_be_imported_and_says_so_when_it_is_used() -> None:
    from pyflink.datastream.connectors.kafka import FlinkKafkaConsumer, Semantic

    with pytest.raises(GraphError, match=r"FlinkKafkaConsumer(.|\n)*Use KafkaSource"):
        FlinkKafkaConsumer("topic", None, {})
    with pytest.raises(GraphError, match=r"Semantic(.|\n)*DeliveryGuarantee"):
        Semantic.EXACTLY_ONCE  # noqa: B018
    with pytest.raises(GraphError, match="FlinkKafkaConsumer"):

        class Mine(FlinkKafkaConsumer): ...

    assert "Tidegate does not have" in repr(Semantic)


def test_what_is_taken_away_leaves_nothing_behind() -> None:
    before = list(sys.meta_path)
    install()
    install()
    from pyflink.common import Row

    assert Row is tidegate.Row and is_installed()
    uninstall()
    uninstall()
    assert sys.meta_path == before
    assert [name for name in sys.modules if name.startswith("pyflink")] == []


def test_a_pyflink_that_is_installed_gives_way_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyflink").mkdir()
    (tmp_path / "pyflink" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.warns(UserWarning, match=r"PyFlink is installed .*Tidegate's classes instead"):
        install()
    try:
        from pyflink.common import Types

        assert Types is tidegate.Types
    finally:
        uninstall()


def test_a_pyflink_that_is_imported_already_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyflink").mkdir()
    (tmp_path / "pyflink" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    real = import_module("pyflink")
    try:
        with pytest.raises(ConfigError, match=r"imported already(.|\n)*before the first import"):
            install()
        assert sys.modules["pyflink"] is real
    finally:
        del sys.modules["pyflink"]


def test_a_slot_process_has_it_while_it_serves() -> None:
    with pytest.raises(PeerLost):
        serve(SlotInvitation(driver="127.0.0.1:1", secret=b"s" * 32, pyflink=True))
    assert not is_installed()


JOB = """
from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment
from beside import Named

env = StreamExecutionEnvironment.get_execution_environment()
named = env.from_collection([3, 1, 2], Types.INT()).rebalance().map(
    Named(), output_type=Types.ROW_NAMED(["domain", "n"], [Types.STRING(), Types.INT()])
)
with named.execute_and_collect("named") as rows:
    print(sorted(row.n for row in rows))
"""

BESIDE = """
import pyflink.datastream as ds
from pyflink.datastream.functions import MapFunction

class Named(MapFunction):
    def map(self, value):
        from pyflink.common import Row
        return Row(domain=ds.TimeDomain.EVENT_TIME.name, n=value)
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text(BESIDE)
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


@pytest.mark.parametrize("parallelism", ["1", "2"])
def test_a_program_runs_as_it_is_in_this_process_and_in_slots_of_their_own(
    job: Path, parallelism: str
) -> None:
    result = CliRunner().invoke(
        commands, ["run", "--pyflink", "--runtime", "local", "-p", parallelism, str(job)]
    )
    sys.modules.pop("beside", None)
    assert result.exit_code == 0, result.output
    assert result.stdout == "[1, 2, 3]\n"
    assert not is_installed()


def test_a_program_is_checked_against_a_snapshot_as_it_is(job: Path, tmp_path: Path) -> None:
    arguments = ["check", "--pyflink", "--from", str(tmp_path / "none"), str(job)]
    result = CliRunner().invoke(commands, arguments)
    sys.modules.pop("beside", None)
    assert "No module named 'pyflink'" not in result.output
    assert str(tmp_path / "none") in result.output  # it came as far as the snapshot
    assert not is_installed()


def test_a_program_for_pyflink_is_told_of_the_flag(job: Path) -> None:
    result = CliRunner().invoke(commands, ["run", str(job)])
    assert result.exit_code == 1
    assert "No module named 'pyflink'" in result.stderr
    assert "--pyflink" in result.stderr
