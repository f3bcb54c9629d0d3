"""The programs in examples/ find what plain Python finds, also where a slot is killed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples import latest_row, live_rules, word_count
from tests.e2e.examples import (
    EXAMPLES,
    KILLED,
    check,
    check_backfill,
    check_crash_loop,
    check_file_etl,
    check_live_rules,
    check_upgrade,
)
from tests.e2e.runtimes import Jobs
from tests.e2e.staged import KILL, Pause

ON_THE_PAGE = {
    "word_count": [
        ("to", 1),
        ("be", 1),
        ("or", 1),
        ("not", 1),
        ("to", 2),
        ("be", 2),
        ("to", 3),
        ("do", 1),
    ],
    "web_sessions": [("u1", 0, 45, 3), ("u2", 12, 32, 1), ("u1", 100, 120, 1)],
    "web_sessions, merged": [("u1", 0, 80, 5), ("u2", 12, 32, 1), ("u1", 100, 120, 1)],
    "page_views": [("a", 0, 2), ("b", 0, 1), ("a", 60_000, 1), ("b", 60_000, 1)],
    "sensor_average": [
        ("s", -5_000, 5_000, 10.0),
        ("s", 0, 10_000, 15.0),
        ("s", 5_000, 15_000, 40.0),
        ("s", 10_000, 20_000, 60.0),
    ],
    "late_data": [
        ("count", "k", 0, 10, 1),
        ("count", "k", 0, 10, 2),
        ("late", "k", 3),
        ("count", "k", 10, 20, 2),
        ("count", "k", 30, 40, 1),
    ],
    "two_level_windows": [(0, 8, 5), (8, 16, 2), (16, 24, 1)],
    "deduplicate": ["x", "y", "x"],
    "latest_row": latest_row.CHANGES,
    "top_products": [(10, [("p1", 12), ("p3", 9), ("p4", 9)]), (20, [("p2", 8)])],
    "abandoned_carts": [("u2", 35), ("u3", 80)],
    "fraud_rules": [("card1", 80), ("card1", 60)],
    "orders_and_payments": [
        ("joined", "o1"),
        ("joined", "o2"),
        ("unpaid", "o3"),
        ("payment without order", "o4"),
    ],
    "priced_trades": [("t1", 15.0), ("t2", 8.75), ("t3", None), ("t4", None)],
    "heartbeats": [("offline", "d2"), ("online", "d2")],
    "cache": [
        ("kept by reads", "hit"),
        ("kept by reads", "hit"),
        ("kept by reads", "miss"),
        ("kept by writes", "hit"),
        ("kept by writes", "miss"),
        ("kept by writes", "miss"),
    ],
}
"""What the programs are said to find."""


@pytest.mark.parametrize("name", ON_THE_PAGE)
def test_plain_python_finds_what_the_page_says(name: str) -> None:
    example = EXAMPLES[name]
    assert sorted(example.plain(*example.scripts), key=repr) == sorted(ON_THE_PAGE[name], key=repr)


def test_the_changes_make_the_table_of_the_page() -> None:
    assert latest_row.table(latest_row.CHANGES) == {1: "c", 3: "d"}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_finds_what_plain_python_finds(jobs: Jobs, name: str) -> None:
    check(jobs, EXAMPLES[name], 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["-p", "1"], "(to,1) (be,1) (or,1) (not,1) (to,2) (be,2) (to,3) (do,1)"),
        (["-p", "4"], "(to,1) (be,1) (or,1) (not,1) (to,2) (be,2) (to,3) (do,1)"),
        (["-D", "execution.runtime-mode=BATCH"], "(to,3) (be,2) (or,1) (not,1) (do,1)"),
    ],
)
def test_word_count_prints_typed_pairs(options: list[str], expected: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidegate.cli.main", "run", "--runtime", "local", *options]
    run = subprocess.run(
        [*command, word_count.__file__],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert run.returncode == 0, run.stderr
    # With several subtasks each line begins with the number of the one that prints it.
    found = [line.rpartition("> ")[2] for line in run.stdout.splitlines()]
    assert sorted(found) == sorted(expected.split())


@pytest.mark.slow
@pytest.mark.parametrize("name", KILLED)
def test_the_example_finds_the_same_where_a_slot_is_killed(jobs: Jobs, name: str) -> None:
    check(jobs, KILLED[name], 2)


RULES = {
    "before all payments": [*live_rules.RULES, Pause(1_500)],
    "among payments": [Pause(300), live_rules.RULES[0], Pause(400), live_rules.RULES[1]],
    "behind all payments": [Pause(2_500), *live_rules.RULES],
}


@pytest.mark.slow
@pytest.mark.parametrize("rules", RULES)
def test_no_payment_is_lost_however_it_meets_the_rules(jobs: Jobs, rules: str) -> None:
    check_live_rules(jobs, RULES[rules], 1)


@pytest.mark.slow
@pytest.mark.parametrize("rules", RULES)
def test_no_payment_is_lost_or_doubled_by_a_kill(jobs: Jobs, rules: str) -> None:
    check_live_rules(jobs, RULES[rules], 2, KILL)


@pytest.mark.slow
def test_files_are_cleaned_the_same_where_a_slot_is_killed(jobs: Jobs) -> None:
    check_file_etl(jobs)


@pytest.mark.slow
@pytest.mark.parametrize("attempts", [3, 2])
def test_three_failures_double_nothing(jobs: Jobs, attempts: int) -> None:
    check_crash_loop(jobs, attempts)


@pytest.mark.slow
@pytest.mark.parametrize("history_rate", [None, 1_000])
def test_history_and_a_live_stream_give_what_one_run_does(
    jobs: Jobs, history_rate: float | None
) -> None:
    check_backfill(jobs, history_rate)


@pytest.mark.slow
def test_a_changed_program_goes_on_where_the_first_was(jobs: Jobs) -> None:
    check_upgrade(jobs)
