"""Programs in examples/ on Spark, with a killed worker, find what plain Python finds."""

import pytest

from tests.e2e.examples import KILLED, check, check_crash_loop, check_file_etl, check_upgrade
from tests.e2e.runtimes import Jobs

ON_SPARK = [
    "word_count",
    "page_views",
    "web_sessions",
    "late_data",
    "two_level_windows",
    "deduplicate",
    "latest_row",
    "top_products",
    "transaction_features, by batch",
    "enrich, ordered",
    "abandoned_carts",
    "fraud_rules",
    "orders_and_payments",
]


@pytest.mark.parametrize("name", ON_SPARK)
def test_the_example_finds_the_same_where_a_worker_is_killed(jobs: Jobs, name: str) -> None:
    check(jobs, KILLED[name], 2)


def test_files_are_cleaned_the_same_where_a_worker_is_killed(jobs: Jobs) -> None:
    check_file_etl(jobs)


def test_three_failures_double_nothing(jobs: Jobs) -> None:
    check_crash_loop(jobs, 3)


def test_a_changed_program_goes_on_where_the_first_was(jobs: Jobs) -> None:
    check_upgrade(jobs)
