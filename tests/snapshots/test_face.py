"""`tidegate.snapshots`: what is done with snapshots, behind six names that cost nothing."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from tidegate import SavepointWriter, Types, ValueStateDescriptor, snapshots
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

COUNT = ValueStateDescriptor("count", Types.LONG())


def test_the_names_do_together_what_one_does_with_snapshots(tmp_path: Path) -> None:
    first = snapshots.write().put_state("counts", COUNT, {"a": 1, "b": 2}).write(tmp_path / "first")
    second = snapshots.write(first).put_state("counts", COUNT, {"b": 3}).write(tmp_path / "second")
    rows = {row.key: row.value for row in snapshots.open(second).rows("counts", "count")}
    assert rows == {"a": 1, "b": 3}
    assert snapshots.check(second).healthy
    [operator] = snapshots.count(second).operators
    assert [(state.name, state.entries) for state in operator.states] == [("count", 2)]
    assert not snapshots.diff(first, second).same
    with pytest.raises(ConfigError, match="one of Tidegate's own"):
        snapshots.migrate(second, None)


def test_a_writer_keeps_what_it_is_told() -> None:
    with snapshots.write(parallelism=2, max_parallelism=4) as writer:
        assert isinstance(writer, SavepointWriter)
    with pytest.raises(ConfigError):
        snapshots.write(parallelism=8, max_parallelism=4)


def test_no_file_is_called_like_a_name_of_the_face() -> None:
    assert [n for n in snapshots.__all__ if find_spec(f"tidegate.snapshots.{n}") is not None] == []
    assert set(snapshots.__all__) <= set(dir(snapshots))
    with pytest.raises(AttributeError, match="no attribute 'opened'"):
        _ = snapshots.opened  # type: ignore[attr-defined]


def test_the_face_alone_loads_nothing() -> None:
    loaded = (
        "import sys, tidegate.snapshots; print([n for n in sys.modules if n.startswith('tidegate.')"
        " and n != 'tidegate.snapshots'])"
    )
    run = subprocess.run(
        [sys.executable, "-c", loaded], stdout=subprocess.PIPE, text=True, check=True, timeout=60
    )
    assert run.stdout.strip() == "[]"
