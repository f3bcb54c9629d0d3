"""Tests look at what can be seen from outside: no new one reaches for a private attribute."""

import ast
from collections import Counter

from tests.house.source import ROOT, TESTS, nodes, python_files

REACHING = {
    "tests/connectors/test_collect.py": 1,
    "tests/connectors/test_kafka_source.py": 4,
    "tests/datastream/test_batch_mode.py": 2,
    "tests/e2e/fatal.py": 2,
    "tests/e2e/kafka.py": 1,
    "tests/ha/test_zookeeper.py": 3,
    "tests/ha/test_zookeeper_security.py": 1,
    "tests/operators/test_window_batches.py": 1,
    "tests/operators/window_run.py": 2,
    "tests/simulation/checks.py": 21,
    "tests/simulation/loop.py": 1,
    "tests/simulation/network.py": 2,
    "tests/slot/cluster.py": 6,
    "tests/slot/test_alignment.py": 3,
    "tests/slot/test_links.py": 1,
    "tests/slot/test_slot_checkpoints.py": 1,
    "tests/slot/test_state_files.py": 1,
    "tests/worlds/subtask.py": 4,
    "tests/spark/test_bad_input.py": 1,
    "tests/state/test_changelog.py": 4,
    "tests/state/test_columnar.py": 2,
    "tests/state/test_lists_on_disk.py": 2,
    "tests/transport/test_accepting.py": 1,
}
"""Times that a file reaches for another object's private attribute; numbers may only shrink."""

OF_ITSELF = {"self", "cls", "super()"}
OF_PYTHON = {"asyncio", "os", "sys"}
OF_NAMED_TUPLES = {"_asdict", "_field_defaults", "_fields", "_make", "_replace"}


def test_no_more_tests_reach_for_private_attributes() -> None:
    found = Counter(
        path.relative_to(ROOT).as_posix()
        for path in python_files(*TESTS)
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and is_private(node)
    )
    assert found == REACHING, "ask what can be seen, or shrink the number"


def is_private(node: ast.Attribute) -> bool:
    """True for a private name of another object of ours; a method may look at its own kind."""
    name = node.attr
    return (
        name.startswith("_")
        and not name.endswith("_")
        and name not in OF_NAMED_TUPLES
        and ast.unparse(node.value) not in OF_ITSELF | OF_PYTHON
    )
