"""Commands over snapshots that bring code along: it runs where that is asked for, else never."""

from __future__ import annotations

import datetime
import pickle
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from flinkformat.row import Row
from tests.cli.touch import Touch
from tests.migration.pyflink_states import FLAGS, PYFLINK
from tests.snapshots.filled import filled
from tests.snapshots.world import EACH_FORM, Snapshots, snapshots
from tidegate.api.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from tidegate.api.windows import TimeWindow
from tidegate.cli.main import commands
from tidegate.cli.unpickling import state_as_data
from tidegate.errors import UnpicklingRefused
from tidegate.typeinfo.pickling import unpickled_value
from tidegate.typeinfo.types import Types

FLAG = "--unsafe-unpickle"


def run(*args: object) -> Result:
    return CliRunner().invoke(commands, [*map(str, args)])


def put_value(state: Any, value: object) -> None:
    state.update(value)


def put_list(state: Any, value: object) -> None:
    state.add_all([1, value])


def put_map(state: Any, value: object) -> None:
    state.put("one", 1)
    state.put("two", value)


KINDS = {
    "value": (ValueStateDescriptor("any"), put_value),
    "list": (ListStateDescriptor("any"), put_list),
    "map": (MapStateDescriptor("any", Types.STRING()), put_map),
}
"""States that a pickle can be in."""


def planted(world: Snapshots, kind: str, value: object) -> str:
    descriptor, put = KINDS[kind]
    keys = [f"key {n}" for n in range(4)]
    snapshot = filled(
        world, descriptor, keys, lambda state, _: put(state, value), key_type=Types.STRING()
    )
    return snapshot.path


@pytest.mark.parametrize("form", EACH_FORM)
@pytest.mark.parametrize("kind", list(KINDS))
def test_code_in_a_snapshot_runs_only_where_it_was_asked_for(
    tmp_path: Path, form: str, kind: str
) -> None:
    touched = tmp_path / "touched"
    with snapshots(tmp_path / "made", form) as world:
        path = planted(world, kind, Touch(touched))
        touched.unlink(missing_ok=True)
        shown = run("diff", path, path, "--keys")
        assert not touched.exists()
        assert shown.exit_code == 1 and FLAG in shown.output, shown.output
        assert run("inspect", path, "--key-groups").exit_code == 0 and not touched.exists()
        run("fsck", path)
        assert not touched.exists()
        shown = run("diff", path, path, FLAG)
        assert touched.exists() and FLAG not in shown.output


def test_data_are_compared_without_being_asked(tmp_path: Path) -> None:
    known: list[object] = [Decimal(3), datetime.date(2013, 1, 1), Row(1, "a"), TimeWindow(0, 9)]
    for number, value in enumerate([(1, {"a": [2.5, None, b"x"]}, {7}), *known]):
        with snapshots(tmp_path / str(number)) as world:
            path = planted(world, "value", value)
            shown = run("diff", path, path)
        assert shown.exit_code == 0 and "both hold the same" in shown.output, shown.output


@pytest.mark.parametrize(
    "code",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"\x80\x04\x8c\x10tidegate.testing\x8c\x04Path\x93.",
        b"\x80\x04\x8c\x18tidegate.typeinfo.hashes\x8c\x02no\x93.",
        b"\x80\x04\x8c\x14tidegate.api.windows\x8c\x13TimeWindow.__init__\x93.",
        b"\x80\x04\x8c\x08builtins\x8c\x07getattr\x93.",
    ],
)
def test_no_other_name_is_looked_up(code: bytes) -> None:
    with state_as_data(trusted=False), pytest.raises(UnpicklingRefused, match="which is code"):
        unpickled_value(code)


def test_what_a_program_unpickles_by_itself_is_its_own_affair(tmp_path: Path) -> None:
    model = pickle.dumps(Touch(tmp_path / "touched"))
    with state_as_data(trusted=False):
        pickle.loads(model)
    assert (tmp_path / "touched").exists()
    with state_as_data(trusted=True):
        assert unpickled_value(pickle.dumps(Path("x"))) == Path("x")


def test_a_savepoint_of_pyflink_brings_no_code_along_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "planted"
    shutil.copytree(PYFLINK, source)
    for file in source.iterdir():
        data = file.read_bytes()
        begin = data.find(b"\x80\x04\x95\x1c")
        if begin >= 0:
            code = b"cos\nmkdir\n(Vtouched\ntR.".ljust(0x27, b".")
            file.write_bytes(data[:begin] + code + data[begin + len(code) :])
    shown = run("migrate", source, tmp_path / "out", *FLAGS)
    assert shown.exit_code == 2 and "names os.mkdir" in shown.output and FLAG in shown.output
    assert not (tmp_path / "touched").exists() and not (tmp_path / "out").exists()
    assert run("migrate", PYFLINK, tmp_path / "out", *FLAGS).exit_code == 1  # its source's state
    run("migrate", source, tmp_path / "ran", *FLAGS, FLAG)
    assert (tmp_path / "touched").exists()


def test_it_is_said_that_state_runs_code() -> None:
    for command in ("diff", "check", "migrate", "inspect"):
        shown = run(command, "--help").output
        assert FLAG in shown and "runs code that the snapshot brings" in " ".join(shown.split())
