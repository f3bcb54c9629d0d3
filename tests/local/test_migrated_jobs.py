"""A job of PyFlink goes on here, from its own savepoint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from golden import FIXTURES

from tests.e2e import pyflink_twin
from tidegate import (
    RestoreRefused,
    StreamExecutionEnvironment,
    check_upgrade,
    migrate_savepoint,
)

if TYPE_CHECKING:
    from pathlib import Path

AT = [
    ("pyflink-savepoint-canonical", 1),
    ("pyflink-savepoint-native", 1),
    pytest.param("pyflink-chk", 2, marks=pytest.mark.slow),
]


def number(shown: dict[str, str]) -> int:
    return int.from_bytes(bytes.fromhex(shown["bytes"]), "big")


def text(shown: dict[str, str]) -> str:
    [data] = shown.values()
    return bytes.fromhex(data)[4:].decode()


def told(name: str, uid: str) -> dict[str, Any]:
    """The states of an operator, as Flink restored them."""
    found = json.loads((FIXTURES / name / "state.json").read_text())
    [operator] = [each for each in found["operators"] if each["uid"] == uid]
    states = {state["name"]: state["entries"] for state in operator["keyedState"]["states"]}
    return states | {
        name: state["entries"]
        for subtask in operator["operatorState"].values()
        for name, state in subtask.items()
    }


@pytest.mark.parametrize(("name", "parallelism"), AT)
def test_a_twin_goes_on_where_the_job_of_pyflink_was(
    name: str, parallelism: int, tmp_path: Path
) -> None:
    target = tmp_path / "migrated"
    report = migrate_savepoint(FIXTURES / name, target, states=pyflink_twin.STATES)
    left = {state.state for state in report.states if not state.taken}
    assert left <= {"coordinator", "SourceReaderState"}
    results = pyflink_twin.run(
        parallelism,
        list(range(10)),
        {"execution.state-recovery.path": str(target)},
    )

    keyed = told(name, "alpha-py-keyed")
    first: dict[str, Any] = {}
    for kind, key, state in results:
        if kind == "keyed":
            first.setdefault(key, state)
    assert {key: state["count"] for key, state in first.items()} == {
        entry["key"]["row"][0]: number(entry["value"][0]) for entry in keyed["python-state-count"]
    }
    for entry in keyed["python-state-words"]:
        assert first[entry["key"]["row"][0]]["words"] == list(map(text, entry["value"]))
    for entry in keyed["python-state-seen"]:
        seen = {text(key): number(value) for key, value in entry["value"]}
        assert first[entry["key"]["row"][0]]["seen"] == seen
    for entry in keyed["python-state-total"]:
        key = entry["key"]["row"][0]
        assert first[key]["total"] == number(entry["value"][0])
        # The job adds each number to both of them.
        assert first[key]["avg"] == (first[key]["total"], first[key]["count"])
    numbers = range(len(keyed["_timer_state/event_user-timers"]))
    last = {f"alpha-k{n % 5}": {"last": n, "tag": "alpha"} for n in numbers}
    assert {key: state["any"] for key, state in first.items()} == last

    timers = [(key, at) for kind, key, at in results if kind == "timer"]
    assert sorted(timers) == sorted(
        (entry["key"]["row"][0], entry["timestamp"])
        for entry in keyed["_timer_state/event_user-timers"]
    )
    pickled = sorted(state for kind, _, state in results if kind == "pickled")
    values = [e["value"][0] for e in told(name, "alpha-py-pickled")["python-state-c"]]
    assert pickled == sorted(map(number, values))
    rules = {text(k): number(v) for k, v in told(name, "alpha-py-bc")["python-state-rules"]}
    for kind, _, found in results:
        if kind == "rules":
            assert {k: v for k, v in found.items() if k != "new"} == rules


@pytest.mark.parametrize("form", ["canonical", "native"])
def test_a_job_goes_on_where_a_job_in_java_was(form: str, tmp_path: Path) -> None:
    """Compressed state, and a value that expires."""
    name = f"keyed-heapfile-savepoint-{form}"
    migrate_savepoint(FIXTURES / name, tmp_path / "out")
    states = told(name, "alpha-keyed")
    keys = sorted({entry["key"] for entry in states["count"]})
    settings = {
        "execution.state-recovery.path": str(tmp_path / "out"),
        "execution.state-recovery.ignore-unclaimed-state": "true",  # the old source's lists
    }
    found = pyflink_twin.run_of_java(keys, settings)
    shown = {
        "count": lambda value: value,
        "sum": lambda value: value,
        "alpha-items": lambda value: value,
        "ttl-value": lambda value: value["ttlValue"],
        "per-parity": dict,
        "avg": lambda value: tuple(value["tuple"]),
    }
    for state, of in shown.items():
        expected = {entry["key"]: of(entry["value"]) for entry in states[state]}
        assert {key: found[key][state] for key in expected} == expected


def test_a_job_is_not_started_from_flinks_own_savepoint() -> None:
    settings = {"execution.state-recovery.path": str(FIXTURES / "pyflink-savepoint-canonical")}
    with pytest.raises(RestoreRefused, match="written by Flink") as caught:
        pyflink_twin.run(1, [1], settings)
    assert "tidegate migrate" in caught.value.remedy
    env = StreamExecutionEnvironment.local()
    env.from_collection([1]).print()
    with pytest.raises(RestoreRefused, match="written by Flink"):
        check_upgrade(env, FIXTURES / "pyflink-savepoint-canonical")
