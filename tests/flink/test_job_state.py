"""All state of the jobs of the fixtures is what Flink's own backends made of it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from golden import FIXTURES

from tests.flink.job_states import (
    JOBS,
    keyed_state,
    opened,
    operator_state,
)
from tidegate.errors import FormatError, RestoreRefused
from tidegate.snapshots.flink_snapshot import FlinkSnapshot

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", JOBS)
def test_state_is_what_flink_restored_from_it(name: str) -> None:
    snapshot = opened(name)
    found = {
        operator.operator_id.hex(): {
            "operatorId": operator.operator_id.hex(),
            "uid": operator.uid,
            "operatorState": operator_state(snapshot, operator),
            "keyedState": keyed_state(list(snapshot.keyed_state(operator))),
        }
        for operator in snapshot.operators
    }
    expected = json.loads((FIXTURES / name / "state.json").read_text())
    theirs = {operator["operatorId"]: operator for operator in expected["operators"]}
    assert found.keys() == theirs.keys()
    for operator, state in found.items():
        assert state == theirs[operator]


def test_changes_in_the_metadata_are_made_in_their_order() -> None:
    snapshot = opened("changelog-memory-chk")
    [operator] = [o for o in snapshot.operators if o.uid == "alpha-keyed"]
    [part] = snapshot.keyed_state(operator)
    found: dict[str, dict[Any, Any]] = {}
    timers: dict[Any, list[int]] = {}
    for entry in part.entries():
        if entry.state.is_timers:
            timers.setdefault(entry.key, []).append(entry.value)
        else:
            found.setdefault(entry.state.name, {})[entry.key] = entry.value
    assert part.backend == "changelog"
    assert found["count"] == {f"alpha-k{n}": 2 if n == 0 else 1 for n in (0, 2, 5, 7, 8)}
    # The job adds each number to all of these.
    assert {key: n for key, (_, n) in found["avg"].items()} == found["count"]
    assert {key: total for key, (total, _) in found["avg"].items()} == found["sum"]
    assert found["per-parity"]["alpha-k8"] == {"even": 902}
    assert found["alpha-items"] == {"alpha-k2": ["v813"], "alpha-k7": ["v654"]}
    assert sorted(timers["alpha-k0"]) == [1000000, 1000300]
    assert 9000000000196 in timers["alpha-k5"]


def test_a_snapshot_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RestoreRefused, match="Cannot find"):
        FlinkSnapshot.open(tmp_path / "nothing")


def test_a_shared_file_that_is_elsewhere_is_named() -> None:
    snapshot = FlinkSnapshot.open(FIXTURES / "keyed-rocks-chk1")
    [operator] = [o for o in snapshot.operators if o.uid == "alpha-keyed"]
    with pytest.raises(RestoreRefused, match=r"/data/ckpts/alpha/.*/shared/") as caught:
        for part in snapshot.keyed_state(operator):
            list(part.entries())
    assert "operator 'alpha-keyed', subtask 0" in caught.value.where


def test_a_manifest_that_rocksdb_would_wait_over_for_ever_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "snapshot"
    shutil.copytree(FIXTURES / "keyed-rocks-savepoint-native", folder)
    manifests = [f for f in folder.iterdir() if b"leveldb.BytewiseComp" in f.read_bytes()[:60]]
    assert manifests
    for file in manifests:
        data = file.read_bytes()
        # Its second half is that of another time: found by a fuzzer.
        file.write_bytes(data[:529] + data[600:] + bytes(71))
    snapshot = FlinkSnapshot.open(folder)
    with pytest.raises(FormatError, match="manifest of the database is damaged"):
        for operator in snapshot.operators:
            for part in snapshot.keyed_state(operator):
                list(part.entries())
