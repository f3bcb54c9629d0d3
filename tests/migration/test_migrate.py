"""Savepoints of Flink become ours: what is taken, what is not and why."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from golden import FIXTURES

from flinkformat.handles import KeyGroupsSavepointStateHandle
from flinkformat.operator_ids import operator_id_of_uid
from flinkformat.snapshots import SubtaskState
from flinkformat.state.entries import FlinkEntry
from flinkformat.state.sections import write_canonical_keyed
from tests.e2e.pyflink_twin import STATES
from tests.flink.job_states import opened as flink_snapshot
from tests.migration.pyflink_states import FLAGS, PYFLINK
from tidegate import (
    ConfigError,
    ListStateDescriptor,
    RestoreRefused,
    Row,
    Types,
    ValueStateDescriptor,
    fsck,
    migrate_savepoint,
)
from tidegate.cli.main import commands
from tidegate.errors import FormatError
from tidegate.migration.declarations import declared_states
from tidegate.snapshots.flink_snapshot import FlinkSnapshot
from tidegate.snapshots.snapshot import Snapshot, StateKind
from tidegate.snapshots.writing.new_snapshot import NewSnapshot
from tidegate.typeinfo.key_hash import KeyHasher

CONTINUED = Path(__file__).parents[1] / "pyflink" / "savepoint"


def entries(folder: Path, uid: str) -> dict[str, list[tuple[int | None, Any, Any]]]:
    """Key group, key and entry of all keyed states of an operator; of a timer, its time."""
    snapshot = Snapshot.open(folder)
    assert snapshot.operator(uid).operator_id == operator_id_of_uid(uid)
    return {
        state.name: [(row.key_group, row.key, row.value) for row in snapshot.rows(uid, state)]
        for state in snapshot.states(uid)
        if state.kind.is_keyed
    }


@pytest.mark.slow
def test_state_of_java_is_taken_as_its_serializers_say(tmp_path: Path) -> None:
    """Every entry of RocksDB's files, timers too, in the key groups that they were in."""
    source = FIXTURES / "keyed-rocks-savepoint-native"
    told: list[str] = []
    report = migrate_savepoint(source, tmp_path / "out", on_operator=told.append)
    assert {"reading 'alpha-keyed'", "writing 'alpha-keyed'"} <= set(told)
    assert [s.state for s in report.states if not s.taken] == ["hook-alpha"]
    found = entries(tmp_path / "out", "alpha-keyed")
    snapshot = flink_snapshot(source.name)
    [operator] = [o for o in snapshot.operators if o.uid == "alpha-keyed"]
    expected: dict[str, list[tuple[int, Any, Any]]] = {}
    for part in snapshot.keyed_state(operator):
        for entry in part.entries():
            row = (entry.key_group, entry.key, entry.value)
            expected.setdefault(entry.state.name, []).append(row)
    assert found.keys() == expected.keys()
    for name, rows in found.items():
        assert sorted(rows, key=str) == sorted(expected[name], key=str)
    operator_states = Snapshot.open(tmp_path / "out").states("alpha-source")
    assert {(each.name, each.kind) for each in operator_states} == {
        ("alpha-list", StateKind.OPERATOR_LIST),
        ("names", StateKind.OPERATOR_LIST),
        ("alpha-union", StateKind.UNION_LIST),
    }


def test_what_is_written_is_whole(tmp_path: Path) -> None:
    for name in ("keyed-rocks-savepoint-native", "types-heap-savepoint-canonical"):
        migrate_savepoint(FIXTURES / name, tmp_path / name)
        report = fsck(tmp_path / name)
        assert report.healthy and len(report.snapshots) == 1


def test_keys_of_pyflink_get_the_key_groups_that_they_have_here(tmp_path: Path) -> None:
    migrate_savepoint(PYFLINK, tmp_path / "out", states=STATES)
    counts = entries(tmp_path / "out", "alpha-py-keyed")["count"]
    groups = KeyHasher(Types.STRING(), 8).key_groups([key for _, key, _ in counts])
    assert [group for group, _, _ in counts] == groups.tolist()
    pickled = entries(tmp_path / "out", "alpha-py-pickled")["c"]
    assert {type(key) for _, key, _ in pickled} == {tuple} and len(pickled) == 10


def test_a_list_is_taken_whole_whose_values_pyflink_wrote_as_one(tmp_path: Path) -> None:
    """All that is added to a list in one bundle becomes one element there."""
    told = CliRunner().invoke(commands, ["migrate", str(CONTINUED), "--dry-run"]).output
    assert "--state 'known/all=list:INT'" in told, told
    flags = ["--state=known/all=list:INT", "--state=known/last=value:INT"]
    CliRunner().invoke(commands, ["migrate", str(CONTINUED), str(tmp_path / "out"), *flags])
    lists = {key: value for _, key, value in entries(tmp_path / "out", "known")["all"]}
    assert lists == {"ada": [3, 5, 3], "bob": [20, 10], "cem": [7]}


def test_a_timer_of_each_kind_is_taken_with_its_key(tmp_path: Path) -> None:
    migrate_savepoint(PYFLINK, tmp_path / "out", states=STATES)
    found = entries(tmp_path / "out", "alpha-py-keyed")
    told = json.loads((PYFLINK / "state.json").read_text())
    [operator] = [each for each in told["operators"] if each["uid"] == "alpha-py-keyed"]
    states = operator["keyedState"]["states"]
    timers = [state for state in states if state["name"].startswith("_timer")]
    assert len(timers) == 2
    for state in timers:
        assert sorted((key, at) for _, key, at in found[state["name"]]) == sorted(
            (entry["key"]["row"][0], entry["timestamp"]) for entry in state["entries"]
        )


def test_times_to_live_are_kept(tmp_path: Path) -> None:
    migrate_savepoint(FIXTURES / "keyed-heapfile-savepoint-canonical", tmp_path / "out")
    rows = list(Snapshot.open(tmp_path / "out").rows("alpha-keyed", "ttl-value"))
    assert rows and all(
        row.last_access > 1_600_000_000_000 and isinstance(row.value, str) for row in rows
    )


def test_contents_of_windows_and_splits_of_sources_are_left_with_a_reason(tmp_path: Path) -> None:
    report = migrate_savepoint(FIXTURES / "types-heap-savepoint-canonical", tmp_path / "out")
    why = {(each.operator, each.state): str(each.why) for each in report.states if not each.taken}
    assert why.keys() == {
        ("alpha-window", "window-contents"),
        ("alpha-window", "_timer_state/processing_window-timers"),
        ("alpha-gen", "SourceReaderState"),
        ("alpha-gen", "coordinator"),
    }
    assert "drain" in why["alpha-window", "window-contents"]
    assert "source" in why["alpha-gen", "SourceReaderState"]
    [(_, key, value), *_] = entries(tmp_path / "out", "alpha-tuplekey")["rows"]
    assert isinstance(key, tuple) and all(isinstance(row, Row) for row in value.values())


def test_operators_can_be_given_new_uids(tmp_path: Path) -> None:
    migrate_savepoint(PYFLINK, tmp_path / "out", states=STATES, uids={"alpha-py-keyed": "orders"})
    assert len(entries(tmp_path / "out", "orders")["count"]) == 5


def test_what_the_snapshot_does_not_say_of_python_state_is_asked_for() -> None:
    report = migrate_savepoint(PYFLINK, None)
    assert not report.complete and report.target is None
    hints = {each.state: each.hint for each in report.states if each.hint}
    assert hints.keys() == {"count", "any", "words", "seen", "total", "avg", "c", "rules"}
    assert hints["seen"] == "--state 'alpha-py-keyed/seen=map:STRING,INT'"
    assert hints["words"] == "--state 'alpha-py-keyed/words=list:STRING'"
    assert hints["any"] == "--state 'alpha-py-keyed/any=value:PICKLED_BYTE_ARRAY'"
    assert "alpha-py-keyed/count=value:LONG" in str(hints["count"]) and "DOUBLE" in str(
        hints["count"]
    )


@pytest.mark.parametrize(
    ("states", "why"),
    [
        ([ValueStateDescriptor("words", Types.STRING())], "a value state has one element"),
        ([ListStateDescriptor("seen", Types.STRING())], "it is a map, and declared as List"),
        ([ValueStateDescriptor("count", Types.STRING())], "more bytes (key 'alpha-k"),
        ([ValueStateDescriptor("words", Types.LONG())], "a value state has one element"),
        ([ListStateDescriptor("words", Types.LONG())], "the bytes end within a number"),
        ([ValueStateDescriptor("count", Types.INT())], "a value is followed by more bytes"),
        ([ValueStateDescriptor("count")], "it can't be unpickled"),
    ],
)
def test_a_wrong_declaration_is_told_with_a_key_and_nothing_else_is_lost(
    states: list[Any], why: str, tmp_path: Path
) -> None:
    report = migrate_savepoint(PYFLINK, tmp_path / "out", states={"alpha-py-keyed": states})
    [row] = [each for each in report.states if each.state == states[0].name]
    assert why in str(row.why)
    assert str(row.hint).startswith(f"--state 'alpha-py-keyed/{row.state}=")
    assert not row.taken
    assert "_timer_state/event_user-timers" in entries(tmp_path / "out", "alpha-py-keyed")


def test_names_that_are_not_there_are_refused_with_the_likely_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no operator 'alpha-keyed'") as caught:
        migrate_savepoint(PYFLINK, tmp_path / "out", states={"alpha-keyed": []})
    assert "'alpha-py-keyed' may be meant" in caught.value.remedy
    states = {"alpha-py-keyed": [ValueStateDescriptor("counts", Types.LONG())]}
    with pytest.raises(ConfigError, match="no state of PyFlink 'counts'") as caught:
        migrate_savepoint(PYFLINK, tmp_path / "out", states=states)
    assert "'count' may be meant" in caught.value.remedy
    assert "operator 'alpha-py-keyed'" in caught.value.where
    with pytest.raises(ConfigError, match="one uid"):
        uids = {"alpha-py-keyed": "alpha-py-pickled"}
        migrate_savepoint(PYFLINK, tmp_path / "out", states=STATES, uids=uids)
    assert not (tmp_path / "out").exists()


def test_what_is_no_snapshot_of_flink_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RestoreRefused, match="Cannot find"):
        migrate_savepoint(tmp_path / "nothing", tmp_path / "out")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "_metadata").write_bytes(b"nothing")
    with pytest.raises(FormatError):
        migrate_savepoint(tmp_path / "bad", tmp_path / "out")
    migrate_savepoint(PYFLINK, tmp_path / "out", states=STATES)
    with pytest.raises(ConfigError, match="one of Tidegate's own"):
        migrate_savepoint(tmp_path / "out", tmp_path / "again")
    with pytest.raises(ConfigError, match="not empty: it holds _metadata"):
        migrate_savepoint(PYFLINK, tmp_path / "out", states=STATES)


def test_a_file_that_is_missing_is_named_before_anything_is_written(tmp_path: Path) -> None:
    shutil.copytree(PYFLINK, tmp_path / "cut")
    told = json.loads((PYFLINK / "expected.json").read_text())
    [operator] = [each for each in told["operatorStates"] if each["uid"] == "alpha-py-keyed"]
    name = operator["subtaskStates"]["0"]["managedKeyedState"][0]["delegate"]["relativePath"]
    (tmp_path / "cut" / name).unlink()
    with pytest.raises(RestoreRefused, match=name) as caught:
        migrate_savepoint(tmp_path / "cut", tmp_path / "out", states=STATES)
    assert "operator 'alpha-py-keyed', subtask 0" in caught.value.where
    assert not (tmp_path / "out").exists()


def test_state_that_is_damaged_is_not_taken_and_the_rest_is(tmp_path: Path) -> None:
    shutil.copytree(PYFLINK, tmp_path / "cut")
    told = json.loads((PYFLINK / "expected.json").read_text())
    [operator] = [each for each in told["operatorStates"] if each["uid"] == "alpha-py-keyed"]
    name = operator["subtaskStates"]["0"]["managedKeyedState"][0]["delegate"]["relativePath"]
    file = tmp_path / "cut" / name
    file.write_bytes(file.read_bytes()[:-40])
    report = migrate_savepoint(tmp_path / "cut", tmp_path / "out", states=STATES)
    refused = [each for each in report.states if each.operator == "alpha-py-keyed"]
    assert refused and not any(each.taken for each in refused)
    assert len(entries(tmp_path / "out", "alpha-py-pickled")["c"]) == 10


def test_the_command_line_takes_declarations_and_says_what_is_left(tmp_path: Path) -> None:
    run = CliRunner().invoke(commands, ["migrate", str(PYFLINK), str(tmp_path / "out"), *FLAGS])
    assert run.exit_code == 1  # the source's own state stays behind
    assert "alpha-py-keyed    avg" in run.output and "coordinator" in run.output
    by_api = tmp_path / "by-api"
    migrate_savepoint(PYFLINK, by_api, states=STATES)
    assert entries(tmp_path / "out", "alpha-py-keyed") == entries(by_api, "alpha-py-keyed")


def test_the_command_line_prints_json_and_may_write_nothing(tmp_path: Path) -> None:
    run = CliRunner().invoke(commands, ["migrate", str(PYFLINK), "--dry-run", "--json"])
    shown = json.loads(run.output)
    assert (run.exit_code, shown["complete"], shown["target"]) == (1, False, None)
    assert {"operator", "state", "kind", "type", "entries", "taken", "why", "hint"} == set(
        shown["states"][0]
    )
    whole = CliRunner().invoke(
        commands, ["migrate", str(FIXTURES / "unaligned-chk"), "--dry-run", "--json"]
    )
    assert {s["state"] for s in json.loads(whole.output)["states"]} >= {"in-flight data"}


def test_the_command_line_gives_operators_new_uids(tmp_path: Path) -> None:
    given = [str(PYFLINK), str(tmp_path / "out"), *FLAGS]
    CliRunner().invoke(commands, ["migrate", *given, "--map=alpha-py-keyed=orders"])
    assert len(entries(tmp_path / "out", "orders")["count"]) == 5
    refused = CliRunner().invoke(commands, ["migrate", *given, "--map=orders"])
    assert refused.exit_code == 2 and "OLD=NEW" in refused.output
    assert CliRunner().invoke(commands, ["migrate", str(PYFLINK)]).exit_code == 2


@pytest.mark.parametrize(
    "text",
    [
        "count=value:LONG",
        "a/b=values:LONG",
        "a/b=value:LONGS",
        "a/b=map:LONG",
        "a/b=value:LONG,LONG",
        "a/b=value:TUPLE",
        "a/b=value:TUPLE(LONG",
        "a/b=value:MAP(LONG)",
        "a/b=value:LONG)",
        "a/b=value:?",
    ],
)
def test_a_declaration_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="declares no state") as caught:
        declared_states([text])
    assert "UID/NAME=KIND:TYPE" in caught.value.remedy


def test_declarations_are_descriptors() -> None:
    found = declared_states(
        ["o/x/n=map:STRING,LIST(ROW(LONG,MAP(INT,BOOLEAN)))", "o/x/m=list:CHAR"]
    )
    [map_state, list_state] = found["o/x"]
    assert (map_state.name, list_state.name) == ("n", "m")
    assert map_state.value_type_info == Types.LIST(  # type: ignore[attr-defined]
        Types.ROW([Types.LONG(), Types.MAP(Types.INT(), Types.BOOLEAN())])
    )


def test_state_of_many_keys_goes_to_files_of_the_folder_alone(tmp_path: Path) -> None:
    """A PyFlink savepoint larger than what stays in `_metadata`, made from one that is not."""
    snapshot = FlinkSnapshot.open(PYFLINK)
    [operator] = [o for o in snapshot.operators if o.uid == "alpha-py-keyed"]
    [part] = snapshot.keyed_state(operator)
    [count] = [s for s in part.header.states if s.name == "python-state-count"]
    rows = [Row(f"customer-{n}") for n in range(5_000)]
    groups = KeyHasher(Types.ROW([Types.STRING()]), 8).key_groups(rows).tolist()
    made = [
        FlinkEntry(count, group, row, None, [number.to_bytes(8, "big")])
        for number, (row, group) in enumerate(zip(rows, groups, strict=True))
    ]
    data, offsets = write_canonical_keyed(part.header, 8, part.key_groups, made)
    new = NewSnapshot(str(tmp_path / "flink"))
    handle = KeyGroupsSavepointStateHandle(part.key_groups, offsets, new.write([data]))
    state = replace(operator, subtasks={0: SubtaskState(managed_keyed=handle)})
    new.complete(replace(snapshot.metadata, operators=(state,)))
    states = {"alpha-py-keyed": [ValueStateDescriptor("count", Types.LONG())]}
    no_key = tmp_path / "no key"
    with pytest.raises(ConfigError, match="no key"):
        migrate_savepoint(tmp_path / "flink", tmp_path / "out", states=states, key_file=no_key)
    assert not (tmp_path / "out").exists(), "a failure leaves nothing"
    migrate_savepoint(tmp_path / "flink", tmp_path / "out", states=states)
    assert len(list((tmp_path / "out").iterdir())) == 2
    assert fsck(tmp_path / "out").healthy
    (tmp_path / "out").rename(tmp_path / "moved")
    found = entries(tmp_path / "moved", "alpha-py-keyed")["count"]
    assert {key: value for _, key, value in found} == {f"customer-{n}": n for n in range(5_000)}


def test_a_key_that_lies_in_no_group_of_its_own_is_told(tmp_path: Path) -> None:
    snapshot = FlinkSnapshot.open(PYFLINK)
    [operator] = [o for o in snapshot.operators if o.uid == "alpha-py-keyed"]
    [part] = snapshot.keyed_state(operator)
    moved = [replace(e, key_group=(e.key_group + 1) % 8) for e in part.entries()]
    data, offsets = write_canonical_keyed(part.header, 8, part.key_groups, moved)
    new = NewSnapshot(str(tmp_path / "flink"))
    handle = KeyGroupsSavepointStateHandle(part.key_groups, offsets, new.write([data]))
    state = replace(operator, subtasks={0: SubtaskState(managed_keyed=handle)})
    new.complete(replace(snapshot.metadata, operators=(state,)))
    report = migrate_savepoint(
        tmp_path / "flink", None, states={"alpha-py-keyed": STATES["alpha-py-keyed"]}
    )
    assert not any(each.taken for each in report.states)
    assert "lies in key group" in str(report.states[0].why)
