"""``tidegate diff``: what has become other between two snapshots, and nothing else."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from golden import FIXTURES
from hypothesis import given
from hypothesis import strategies as st

from flinkformat import metadata
from tests.properties import examples
from tests.snapshots.snapshot_world import JobWorld, Kind
from tidegate import SavepointFormatType, diff_snapshots
from tidegate.checkpoint.provenance import provenance_of, to_master_state
from tidegate.cli.main import commands
from tidegate.errors import ConfigError, RestoreRefused
from tidegate.model.ids import OperatorId
from tidegate.snapshots.differences import SnapshotDiff, StateDiff, plain, same

if TYPE_CHECKING:
    from collections.abc import Callable

    from flinkformat.snapshots import OperatorState

BACKENDS = ["hashmap", "incremental", pytest.param("rocksdb", marks=pytest.mark.slow)]


def states_of(found: SnapshotDiff, operator: int = 0) -> dict[str, StateDiff]:
    return {state.name: state for state in found.operators[operator].states}


def counts_of(state: StateDiff) -> tuple[int, int, int, int]:
    return state.added, state.removed, state.changed, state.same


def test_state_that_flink_wrote_is_not_called_the_same() -> None:
    places = [str(FIXTURES / f"keyed-heap-chk{number}") for number in (1, 2)]
    result = CliRunner().invoke(commands, ["diff", *places])
    assert result.exit_code == 2 and "the same" not in result.output
    with pytest.raises(ConfigError, match="written by Flink") as refused:
        diff_snapshots(*places)
    assert refused.value.where == places[0] and "tidegate migrate" in refused.value.remedy


@pytest.mark.parametrize("backend", BACKENDS)
def test_keys_that_came_went_and_changed_are_counted(tmp_path: Path, backend: str) -> None:
    with JobWorld(Kind(backend, parallelism=3), root=str(tmp_path)) as world:
        world.put({f"key {n}": n for n in range(100)})
        before, old = world.checkpoint(), dict(world.expected)
        world.put({f"key {n}": -n for n in range(90, 120)})
        for n in range(5):
            world.drop(f"key {n}")
        after, new = world.checkpoint(), dict(world.expected)
    found = diff_snapshots(before, after, keys_max=1_000)
    assert not found.same
    state = states_of(found)["count"]
    assert counts_of(state) == (20, 5, 10, 85) and state.change == "changed"
    shown = {entry.key: entry for entry in state.entries}
    assert {eval_text(key) for key in shown} == {k for k in old | new if old.get(k) != new.get(k)}
    assert Counter(entry.change for entry in state.entries) == {
        "added": 20,
        "removed": 5,
        "changed": 10,
    }
    assert (shown["'key 95'"].before, shown["'key 95'"].after) == ("95", "-95")
    assert (shown["'key 0'"].before, shown["'key 0'"].after) == ("0", None)
    back = states_of(diff_snapshots(after, before))["count"]
    assert counts_of(back) == (5, 20, 10, 85) and back.entries == ()


def eval_text(text: str) -> str:
    return text.strip("'")


@pytest.mark.parametrize("backend", BACKENDS)
def test_snapshots_of_one_moment_hold_the_same_whatever_their_form(
    tmp_path: Path, backend: str
) -> None:
    with JobWorld(Kind(backend), root=str(tmp_path)) as world:
        world.work()
        places = [world.checkpoint(), *(world.savepoint(form) for form in SavepointFormatType)]
    for place in places[1:]:
        found = diff_snapshots(places[0], place)
        states = [state for operator in found.operators for state in operator.states]
        assert all(state.change == "same" and not state.note for state in states), states
        assert sum(state.same for state in states) > 100
        assert found.files.both == 0, "a savepoint stands alone"


def test_another_parallelism_is_told_and_states_are_the_same(tmp_path: Path) -> None:
    places: list[str] = []
    for parallelism in (1, 3):
        kind = Kind(parallelism=parallelism)
        with JobWorld(kind, root=str(tmp_path / str(parallelism))) as world:
            world.put({f"key {n}": n for n in range(50)})
            places.append(world.checkpoint())
    counts, _ = diff_snapshots(*places).operators
    assert (counts.parallelism, counts.max_parallelism) == ((1, 3), (16, 16))
    assert counts.change == "changed"
    assert {state.change for state in counts.states} == {"same"}


def test_elements_of_lists_are_counted_as_often_as_they_are_there(tmp_path: Path) -> None:
    with JobWorld(Kind(parallelism=1), root=str(tmp_path)) as world:
        world.splits(["a", "b", "b"])
        before = world.checkpoint()
        world.splits(["b", "c", "c"])
        after = world.checkpoint()
    _, source = diff_snapshots(before, after).operators
    [splits] = source.states
    assert (splits.name, *counts_of(splits)) == ("splits", 2, 2, 0, 1)


def changed(path: str, change: Callable[[OperatorState], OperatorState | None]) -> None:
    """Change operators in a ``_metadata``, or leave them out."""
    file = Path(path) / "_metadata"
    read = metadata.decode(file.read_bytes(), str)
    operators = tuple(filter(None, map(change, read.operators)))
    told = provenance_of(read)
    assert told is not None
    states = (to_master_state(told),)
    file.write_bytes(metadata.encode(replace(read, operators=operators, master_states=states)))


def test_operators_that_came_and_went_are_told_with_their_states(tmp_path: Path) -> None:
    with JobWorld(Kind(parallelism=2), root=str(tmp_path)) as world:
        world.work()
        before = world.checkpoint()
        after = world.checkpoint()
    changed(after, lambda o: replace(o, operator_id=OperatorId(b"n" * 16), uid="new"))
    found = diff_snapshots(before, after)
    told = {(each.name, each.change) for each in found.operators}
    assert told == {("counts", "removed"), ("source", "removed"), ("new", "added")}
    gone = next(each for each in found.operators if each.name == "counts")
    assert gone.parallelism == (2, None)
    assert {state.change for state in gone.states} == {"removed"}
    assert all(state.removed > 0 == state.added for state in gone.states)


def test_key_groups_that_are_others_are_not_compared(tmp_path: Path) -> None:
    with JobWorld(Kind(parallelism=1), root=str(tmp_path)) as world:
        world.work()
        before = world.checkpoint()
        after = world.checkpoint()
    changed(after, lambda o: replace(o, max_parallelism=32))
    [counts, source] = diff_snapshots(before, after).operators
    assert counts.max_parallelism == (16, 32)
    assert all("max parallelism differs" in state.note for state in counts.states)
    assert all(state.change == "changed" for state in counts.states)
    assert all(state.change == "same" for state in source.states)


def test_a_change_of_the_coordinators_state_is_told(tmp_path: Path) -> None:
    with JobWorld(Kind(parallelism=1), root=str(tmp_path)) as world:
        world.work()
        before = world.checkpoint()
        after = world.checkpoint()
    changed(
        after,
        lambda o: (
            o
            if o.coordinator_state is None
            else replace(o, coordinator_state=replace(o.coordinator_state, data=b"splits left: 2"))
        ),
    )
    told = {each.name: each.coordinator for each in diff_snapshots(before, after).operators}
    assert told == {"counts": False, "source": True}


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_files_that_two_checkpoints_share_are_counted(tmp_path: Path, backend: str) -> None:
    with JobWorld(Kind(backend, parallelism=1), root=str(tmp_path)) as world:
        world.put({f"key {n}": n for n in range(300)})
        before = world.checkpoint()
        world.put({"key 1": 0})
        after = world.checkpoint()
    files = diff_snapshots(before, after).files
    shared = list((Path(before).parent / "shared").iterdir())
    assert files.both == len(shared) - files.only_after + len(own(after)) > 0
    assert files.both_bytes > files.only_after_bytes > 0
    assert files.only_before == len(own(before))


def own(place: str) -> list[Path]:
    return [file for file in Path(place).iterdir() if file.name != "_metadata"]


class Gone:
    """A class that the reader of a snapshot does not have."""

    def __init__(self) -> None:
        self.value = 1


def test_values_whose_class_is_gone_are_told_as_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with JobWorld(Kind(parallelism=1), root=str(tmp_path)) as world:
        world.put({"key": 1})
        world.put_anything("key", Gone())
        before = world.checkpoint()
        world.put({"key": 2})
        world.put_anything("key", Gone())
        after = world.checkpoint()
    monkeypatch.delattr("tests.snapshots.test_diff.Gone")
    states = states_of(diff_snapshots(before, after))
    assert "not compared" in states["anything"].note and "Gone" in states["anything"].note
    assert counts_of(states["count"]) == (0, 0, 1, 0)


@dataclass
class One:
    number: int
    parts: list[float]


@dataclass
class Other:
    number: int
    parts: list[float]


@pytest.mark.parametrize(
    ("before", "after", "equal"),
    [
        (One(1, [2.0]), Other(1, [2.0]), True),
        (One(1, [2.0]), Other(1, [2.5]), False),
        (float("nan"), float("nan"), True),
        ([1, (2, {"a": {3}})], [1, (2, {"a": {3}})], True),
        ({"a": One(1, [])}, {"a": Other(1, [])}, True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        (None, 0, False),
        ("1", 1, False),
    ],
)
def test_values_are_compared_by_what_they_hold(before: Any, after: Any, equal: bool) -> None:
    assert same(before, after) is same(after, before) is equal
    assert (plain(before) == plain(after)) is equal


entries = st.dictionaries(st.sampled_from([f"key {n}" for n in range(9)]), st.integers(0, 3))


@given(old=entries, new=entries)
@examples(25)
def test_the_counts_are_those_of_two_dicts(
    tmp_path_factory: pytest.TempPathFactory, old: dict[str, int], new: dict[str, int]
) -> None:
    with JobWorld(Kind(parallelism=2), root=str(tmp_path_factory.mktemp("diff"))) as world:
        world.put(old)
        before = world.checkpoint()
        world.put(new)
        for key in old.keys() - new.keys():
            world.drop(key)
        after = world.checkpoint()
    states = states_of(diff_snapshots(before, after)) if old or new else {}
    common = old.keys() & new.keys()
    changes = sum(old[key] != new[key] for key in common)
    expected = (len(new) - len(common), len(old) - len(common), changes, len(common) - changes)
    if "count" in states:
        assert counts_of(states["count"]) == expected
    else:
        assert not old and not new


# --- the command ---


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    with JobWorld(Kind("hashmap"), root=str(tmp_path)) as world:
        world.put({f"key {n}": n for n in range(30)})
        before = world.checkpoint()
        world.put({"key 1": 7, "key 30": 1})
        return before, world.checkpoint()


def run(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(commands, ["diff", *args])
    return result.exit_code, result.output


def test_the_command_tells_what_differs_and_exits_with_1(pair: tuple[str, str]) -> None:
    code, output = run(*pair)
    assert code == 1 and "1 operator differing" in output
    [line] = [line for line in output.splitlines() if line.startswith("counts  count ")]
    assert line.split()[2:] == [
        "changed",
        "value",
        "of",
        "String,",
        "Long",
        *["1", "0", "1", "29", "-"],
    ]
    assert "'key 30'" not in output
    code, output = run(*pair, "--keys")
    assert code == 1
    rows = [line.split() for line in output.splitlines() if line.startswith("counts  count ")]
    assert ["counts", "count", "added", "'key", "30'", "-", "1"] in rows
    assert ["counts", "count", "changed", "'key", "1'", "-", "1", "->", "7"] in rows
    code, output = run(*pair, "--json", "--keys", "--keys-max", "1")
    told = json.loads(output)
    assert told == json.loads(json.dumps(diff_snapshots(*pair, keys_max=1).to_json()))
    assert not told["same"] and len(told["operators"][0]["states"][0]["entries"]) == 1


def test_states_that_differ_come_first(tmp_path: Path) -> None:
    with JobWorld(Kind("hashmap"), root=str(tmp_path)) as world:
        world.put({"key": 1})
        world.splits(["one"])
        before = world.checkpoint()
        world.splits(["one", "two"])
        output = run(before, world.checkpoint())[1]
    assert output.index("source  splits    changed") < output.index("counts  count     same")


def test_the_command_exits_with_0_where_nothing_differs(pair: tuple[str, str]) -> None:
    code, output = run(pair[0], pair[0])
    assert code == 0 and "both hold the same" in output
    assert json.loads(run(pair[0], pair[0], "--json")[1])["same"] is True


def test_what_is_no_snapshot_is_named(pair: tuple[str, str], tmp_path: Path) -> None:
    code, output = run(pair[0], str(tmp_path / "nowhere"))
    assert code == 2 and str(tmp_path / "nowhere") in output
    with pytest.raises(RestoreRefused):
        diff_snapshots(tmp_path, pair[1])
