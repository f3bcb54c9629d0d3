"""Keys of every sort: what is equal is counted once, also from a checkpoint on other subtasks."""

from collections import Counter

import pytest
from click.testing import CliRunner

from tests.e2e import key_sorts, restores
from tests.e2e.ledger import ledger_rows
from tests.e2e.restores import SLOWLY, stopped_with_checkpoint
from tests.e2e.runtimes import RETAIN, Jobs, finished
from tidegate import read_state
from tidegate.cli.main import commands

pytestmark = pytest.mark.slow

TOTAL = 1_200


@pytest.mark.parametrize(("backend", "then"), [("hashmap", 1), ("rocksdb", 3)])
def test_equal_keys_are_one_key_whatever_they_are(jobs: Jobs, backend: str, then: int) -> None:
    on_disk = {
        "state.backend.type": backend,
        "state.backend.rocksdb.localdir": str(jobs.folder / "local"),
    }
    out = jobs.folder / "out"
    env = jobs.checkpointed(2, 100, **RETAIN, **on_disk)
    key_sorts.build(env, TOTAL, SLOWLY, out)
    before = stopped_with_checkpoint(jobs.start(env, "before"))
    restored = {restores.RESTORE_PATH: before.pointer}
    env = jobs.checkpointed(then, 100, **RETAIN, **on_disk, **restored)
    key_sorts.build(env, TOTAL, None, out)
    finished(jobs.start(env, "after"))
    for sort, forms in key_sorts.ALL.items():
        rows = ledger_rows(out / sort)
        assert [row["other"] for row in rows if "other" in row] == []
        counted = Counter((row["key"], row["count"]) for row in rows)
        # Each count of each key once: no form of it was counted apart.
        keys = len(forms)
        times = {key: len(range(key, TOTAL, keys)) for key in range(keys)}
        expected = [(key, count + 1) for key in range(keys) for count in range(times[key])]
        assert counted == Counter(expected), sort
    check_tools(before.pointer)


def check_tools(pointer: str) -> None:
    """Looks at a snapshot as a person would."""
    for sort, forms in key_sorts.ALL.items():
        rows = list(read_state(pointer, sort, "count").rows())
        assert len({row.key for row in rows}) == len(rows) == len(forms), sort
    tool = CliRunner()
    for command in (["inspect", pointer], ["diff", pointer, pointer], ["fsck", pointer]):
        said = tool.invoke(commands, command)
        assert said.exit_code == 0, said.output
