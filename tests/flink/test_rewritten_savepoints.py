"""Snapshots of Flink as canonical savepoints of Flink that we write."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from golden import FIXTURES

from flinkformat import metadata
from tests.flink.job_states import JOBS, keyed_state, opened, operator_state
from tidegate import ConfigError, RestoreRefused, UserCodeFailed, rewrite_flink_savepoint
from tidegate.cli.main import commands
from tidegate.errors import FormatError
from tidegate.snapshots.flink_snapshot import FlinkSnapshot

if TYPE_CHECKING:
    from pathlib import Path

IN_FLIGHT = "unaligned-chk"


def rewritten(name: str, target: Path) -> FlinkSnapshot:
    told = json.loads((FIXTURES / name / "expected.json").read_text())
    was = told.get("originalSharedParent")
    moved = {} if was is None else {was: str(FIXTURES / name)}
    rewrite_flink_savepoint(FIXTURES / name, target / "first", moved=moved)
    # It stands alone: nothing but its own folder is needed, wherever that is.
    shutil.move(target / "first", target / "elsewhere")
    return FlinkSnapshot.open(target / "elsewhere")


def without_backend(state: Any) -> Any:
    return state and {name: value for name, value in state.items() if name != "backend"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in JOBS if name != IN_FLIGHT])
def test_state_is_the_same_in_the_new_savepoint(name: str, tmp_path: Path) -> None:
    before, after = opened(name), rewritten(name, tmp_path)
    assert after.metadata.properties is not None and after.metadata.properties.is_savepoint
    assert after.metadata.master_states == before.metadata.master_states
    for old, new in zip(before.operators, after.operators, strict=True):
        keyed = [keyed_state(list(s.keyed_state(o))) for s, o in ((before, old), (after, new))]
        assert without_backend(keyed[0]) == without_backend(keyed[1])
        assert operator_state(before, old) == operator_state(after, new)
        assert {part.backend for part in after.keyed_state(new)} <= {"canonical"}
        assert old.coordinator_state == new.coordinator_state
        assert old.fully_finished == new.fully_finished
    data = (tmp_path / "elsewhere" / "_metadata").read_bytes()
    assert metadata.encode(metadata.decode(data, lambda: "")) == data


def test_changes_of_a_changelog_are_part_of_it(tmp_path: Path) -> None:
    after = rewritten("changelog-memory-chk", tmp_path)
    [operator] = [each for each in after.operators if each.uid == "alpha-keyed"]
    counts = {
        entry.key: entry.value
        for part in after.keyed_state(operator)
        for entry in part.entries()
        if entry.state.name == "count"
    }
    assert counts == {f"alpha-k{n}": 2 if n == 0 else 1 for n in (0, 2, 5, 7, 8)}


def test_data_in_flight_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="data in flight"):
        rewrite_flink_savepoint(FIXTURES / IN_FLIGHT, tmp_path / "out")
    assert not (tmp_path / "out" / "_metadata").exists()


def test_what_cannot_be_read_or_is_there_already_is_refused(tmp_path: Path) -> None:
    source = FIXTURES / "keyed-heapfile-savepoint-native"
    rewrite_flink_savepoint(source, tmp_path / "out")
    with pytest.raises(ConfigError, match="not empty: it holds _metadata"):
        rewrite_flink_savepoint(source, tmp_path / "out")
    with pytest.raises(RestoreRefused, match="Cannot find"):
        rewrite_flink_savepoint(tmp_path / "nothing", tmp_path / "other")
    shutil.copytree(source, tmp_path / "cut")
    for file in (tmp_path / "cut").iterdir():
        if file.name not in ("_metadata", "expected.json", "state.json"):
            file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises((FormatError, RestoreRefused)) as caught:
        rewrite_flink_savepoint(tmp_path / "cut", tmp_path / "other")
    assert "operator 'alpha-" in caught.value.where and "subtask" in caught.value.where
    assert not (tmp_path / "other").exists()


def test_lists_of_subtasks_are_changed_as_one(tmp_path: Path) -> None:
    source = FIXTURES / "keyed-heapfile-savepoint-native"
    changes = {
        "alpha-list": lambda elements: [n * 10 for n in elements],
        "alpha-union": lambda elements: [*elements, 5],
        "names": lambda elements: (),
    }
    rewrite_flink_savepoint(source, tmp_path / "out", operator_state={"alpha-source": changes})
    before, after = FlinkSnapshot.open(source), FlinkSnapshot.open(tmp_path / "out")
    for old, new in zip(before.operators, after.operators, strict=True):
        if new.uid != "alpha-source":
            assert operator_state(before, old) == operator_state(after, new)
            continue
        held = {
            index: {each.state.name: each.elements for each in states}
            for index, states in after.operator_state(new)
        }
        assert held == {
            0: {"alpha-list": [0, 20, 1010, 1030], "alpha-union": [1000, 5], "names": []},
            1: {"alpha-list": [10, 1000, 1020], "alpha-union": [1001], "names": []},
        }
        modes = [
            {
                each.state.name: each.mode
                for _, states in snapshot.operator_state(each)
                for each in states
            }
            for snapshot, each in ((before, old), (after, new))
        ]
        assert modes[0] == modes[1]


def test_broadcast_state_is_changed_as_a_dict(tmp_path: Path) -> None:
    source = FIXTURES / "types-heap-savepoint-canonical"
    changes = {"rules": lambda rules: {**rules, "rule-1": 11, "rule-9": 90}}
    rewrite_flink_savepoint(source, tmp_path / "out", operator_state={"alpha-bc": changes})
    after = FlinkSnapshot.open(tmp_path / "out")
    [operator] = [each for each in after.operators if each.uid == "alpha-bc"]
    [(_, [rules])] = after.operator_state(operator)
    assert rules.elements == [{"rule-0": 0, "rule-1": 11, "rule-2": 20, "rule-9": 90}]


def broken(_: Any) -> Any:
    raise KeyError("no such rule")


@pytest.mark.parametrize(
    ("operator", "state", "change", "error", "match"),
    [
        ("alpha-gone", "rules", dict, ConfigError, "no operator 'alpha-gone'.*alpha-bc"),
        ("alpha-bc", "laws", dict, ConfigError, "no operator state 'laws'.*rules"),
        ("alpha-bc", "rules", broken, UserCodeFailed, "operator state 'rules'"),
        ("alpha-bc", "rules", len, UserCodeFailed, "Return a dict"),
        ("alpha-bc", "rules", lambda rules: {"rule-0": "ten"}, FormatError, "state 'rules'"),
    ],
)
def test_a_change_that_cannot_be_is_refused_before_anything_is_written(
    operator: str, state: str, change: Any, error: Any, match: str, tmp_path: Path
) -> None:
    source = FIXTURES / "types-heap-savepoint-canonical"
    with pytest.raises(error, match=f"(?s){match}"):
        rewrite_flink_savepoint(
            source, tmp_path / "out", operator_state={operator: {state: change}}
        )
    assert not (tmp_path / "out").exists()


def test_the_command_line_writes_it(tmp_path: Path) -> None:
    source = str(FIXTURES / "keyed-rocks-savepoint-native")
    run = CliRunner().invoke(commands, ["migrate", "--for-flink", source, str(tmp_path / "out")])
    assert run.exit_code == 0 and str(tmp_path / "out") in run.output
    assert FlinkSnapshot.open(tmp_path / "out").operators
    refused = CliRunner().invoke(
        commands, ["migrate", "--for-flink", "--json", source, str(tmp_path / "b")]
    )
    assert refused.exit_code == 2
