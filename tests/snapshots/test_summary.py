"""``tidegate inspect``: what is counted is what is there."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from golden import FIXTURES

from tests.snapshots.snapshot_world import JobWorld, Kind
from tidegate import SavepointFormatType, inspect_snapshot
from tidegate.cli.main import commands
from tidegate.errors import FormatError, RestoreRefused
from tidegate.snapshots.flink_snapshot import FlinkSnapshot
from tidegate.snapshots.snapshot import Snapshot

if TYPE_CHECKING:
    from tidegate.snapshots.summary import OperatorSummary, StateSummary

BACKENDS = ["hashmap", "incremental", pytest.param("rocksdb", marks=pytest.mark.slow)]


def states_of(operator: OperatorSummary) -> dict[str, StateSummary]:
    assert operator.states is not None
    return {state.name: state for state in operator.states}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", ["checkpoint", *SavepointFormatType])
def test_entries_are_counted_as_they_are_read(tmp_path: Path, backend: str, form: Any) -> None:
    """Overwritten, removed and shared with older checkpoints, each counts once."""
    kind = Kind(backend, parallelism=3)
    with JobWorld(kind, root=str(tmp_path)) as world:
        for _ in range(2):
            world.work(30)
            world.drop(f"key {world.random.randrange(60)}")
            world.checkpoint()
        world.work(5)
        path = world.checkpoint() if form == "checkpoint" else world.savepoint(form)
        expected = world.expected
    summary = inspect_snapshot(path)
    assert [each.uid for each in summary.operators] == ["counts", "source"]
    counts, source = map(states_of, summary.operators)
    assert counts["count"].entries == len(expected)
    snapshot = Snapshot.open(path)
    for state in counts.values():
        rows = list(snapshot.rows("counts", state.name))
        groups = Counter(row.key_group for row in rows)
        assert {each.key_group: each.entries for each in state.key_groups} == groups
        assert state.entries == len(rows) > 0
        assert state.skew == pytest.approx(max(groups.values()) * 16 / len(rows), abs=0.001)
        assert groups[state.largest_key_group] == max(groups.values())
        assert state.size_bytes == sum(each.size_bytes or 0 for each in state.key_groups) > 0
    for state in source.values():
        assert state.entries == len(list(snapshot.rows("source", state.name))) > 0
        assert (state.key_groups, state.skew) == ((), None)


def test_what_a_checkpoint_has_written_over_an_older_one_counts_alone(tmp_path: Path) -> None:
    """A checkpoint that wrote some keys of a key group lies over those that wrote the others."""
    with JobWorld(Kind("incremental", parallelism=1), root=str(tmp_path)) as world:
        world.put({f"key {n}": n for n in range(500)})
        first = world.checkpoint()
        for step in (1, 2):
            world.put({f"key {n}": -n for n in range(10 * step, 10 * step + 15)})
            world.drop(f"key {100 * step}")
            world.checkpoint()
        expected = world.expected
        path = world.completed[-1].location
    assert len(list((Path(first).parent / "shared").iterdir())) == 3
    rows = list(Snapshot.open(path).rows("counts", "count"))
    assert {row.key: row.value for row in rows} == expected
    count = states_of(inspect_snapshot(path).operators[0])["count"]
    assert count.entries == len(expected) == 498


def test_a_skewed_key_group_is_named(tmp_path: Path) -> None:
    with JobWorld(Kind(parallelism=2), root=str(tmp_path)) as world:
        hot = world.group_of("hot")
        keys = [f"key {n}" for n in range(5_000) if world.group_of(f"key {n}") == hot][:60]
        others = [f"key {n}" for n in range(5_000) if world.group_of(f"key {n}") != hot][:60]
        world.put(dict.fromkeys([*keys, *others], 1))
        path = world.checkpoint()
    count = states_of(inspect_snapshot(path).operators[0])["count"]
    assert (count.entries, count.largest_key_group, count.skew) == (120, hot, 60 * 16 / 120)


def test_data_in_flight_and_the_coordinators_state_are_counted(tmp_path: Path) -> None:
    with JobWorld(Kind("rocksdb", in_flight=True), root=str(tmp_path)) as world:
        world.work()
        path = world.checkpoint()
    summary = inspect_snapshot(path)
    counts, source = summary.operators
    assert (counts.backend, source.backend) == ("rocksdb", None)
    arrived, leaving = (states_of(counts)[f"_{side}_channels"] for side in ("input", "output"))
    assert (arrived.entries, leaving.entries) == (4, 2)
    assert counts.in_flight_bytes == (arrived.size_bytes or 0) + (leaving.size_bytes or 0) > 0
    assert (counts.coordinator_bytes, source.coordinator_bytes) == (0, len("splits left: 3"))
    assert summary.hooks == ("hook",) and summary.versions == {"tidegate": "0.1.0"}
    files = [file for file in Path(path).parent.rglob("*") if file.is_file()]
    assert summary.files == len(files) - 1, "all but _metadata"
    assert summary.size_bytes == Snapshot.open(path).metadata.state_size


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["keyed-heapfile-savepoint-canonical", "keyed-rocks-savepoint-native", "pyflink-chk"]
)
def test_a_snapshot_of_flink_is_counted_as_it_is_read(name: str) -> None:
    summary = inspect_snapshot(FIXTURES / name)
    assert (summary.job, summary.versions) == (None, {})
    flink = FlinkSnapshot.open(FIXTURES / name)
    found = 0
    for operator, shown in zip(flink.operators, summary.operators, strict=True):
        entries = Counter(
            (entry.state.name, entry.key_group)
            for keyed in flink.keyed_state(operator)
            for entry in keyed.entries()
        )
        told = {
            (state.name, each.key_group): each.entries
            for state in shown.states or ()
            for each in state.key_groups
        }
        assert told == entries and shown.note == ""
        found += len(told)
    assert found
    shown = CliRunner().invoke(commands, ["inspect", str(FIXTURES / name), "--key-groups"])
    assert shown.exit_code == 0 and "written by Flink" in shown.output


def test_states_of_flink_whose_files_are_elsewhere_are_told_as_not_read() -> None:
    summary = inspect_snapshot(FIXTURES / "keyed-rocks-chk1")
    notes = [each.note for each in summary.operators if each.states is None]
    assert notes and all("missing" in note for note in notes)
    shown = CliRunner().invoke(commands, ["inspect", str(FIXTURES / "keyed-rocks-chk1")])
    assert shown.exit_code == 0 and "can't be read: " in shown.output


@pytest.fixture
def path(tmp_path: Path) -> str:
    with JobWorld(Kind("hashmap"), root=str(tmp_path)) as world:
        world.work()
        return world.checkpoint()


def test_the_command_shows_operators_states_and_key_groups(path: str) -> None:
    shown = CliRunner().invoke(commands, ["inspect", path])
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    assert lines[0] == f"{path}: Checkpoint 1"
    assert lines[1].startswith("written by job 'job 0', tidegate 0.1.0; 4 files, ")
    [operator] = [line for line in lines if line.startswith("the counts")]
    assert operator.split()[2:6] == ["counts", "2", "16", "hashmap"]
    [state] = [line for line in lines if line.startswith("counts  count ")]
    assert state.split()[2:6] == ["value", "String", "-", "Long"]
    assert not [line for line in lines if line.startswith("of") and "key group " in line]
    more = CliRunner().invoke(commands, ["inspect", path, "--key-groups"]).output
    count = states_of(inspect_snapshot(path).operators[0])["count"]
    rows = [line.split() for line in more.splitlines() if line.startswith("counts  count ")]
    assert rows[1:] == [
        ["counts", "count", str(each.key_group), str(each.entries), str(each.size_bytes)]
        for each in count.key_groups
    ]


def test_states_that_hold_nothing_come_last() -> None:
    shown = CliRunner().invoke(commands, ["inspect", str(FIXTURES / "pyflink-chk")]).output
    assert shown.index("python-state-words") < shown.index("SourceReaderState")


def test_the_command_prints_all_as_json(path: str) -> None:
    shown = CliRunner().invoke(commands, ["inspect", path, "--json"])
    assert json.loads(shown.output) == json.loads(json.dumps(inspect_snapshot(path).to_json()))


def test_where_there_is_no_snapshot_the_command_says_so(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        shown = CliRunner().invoke(commands, ["inspect", str(place)])
        assert shown.exit_code == 2 and str(place) in shown.output
    with pytest.raises(RestoreRefused):
        inspect_snapshot(tmp_path)


def test_a_changed_bit_in_the_metadata_is_told_before_anything_is_counted(path: str) -> None:
    file = Path(path) / "_metadata"
    file.write_bytes(file.read_bytes().replace(b"the counts", b"the countz"))
    with pytest.raises(FormatError, match="not as it was written") as told:
        inspect_snapshot(path)
    assert str(file) in told.value.where and told.value.remedy
