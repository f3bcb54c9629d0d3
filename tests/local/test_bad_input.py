"""Bad input is one clear error, soon, with nothing hung and nothing lost."""

import pytest
import structlog

from tests.e2e import bad_input
from tests.e2e.runtimes import Jobs

pytestmark = pytest.mark.slow


def test_a_missing_path_is_refused(jobs: Jobs) -> None:
    bad_input.check_missing_path(jobs)


def test_an_unreadable_file_is_refused(jobs: Jobs) -> None:
    bad_input.check_unreadable_file(jobs)


def test_an_unreadable_file_that_comes_later_fails_the_job(jobs: Jobs) -> None:
    bad_input.check_unreadable_later_file(jobs)


def test_a_malformed_row_fails_the_job_with_file_and_row(jobs: Jobs) -> None:
    bad_input.check_malformed_row_fails(jobs)


def test_a_malformed_row_is_skipped_and_counted_where_that_was_asked_for(jobs: Jobs) -> None:
    with structlog.testing.capture_logs() as logs:
        bad_input.check_malformed_row_is_skipped_and_counted(jobs)
    told = [log["rows"] for log in logs if log["event"].endswith("were skipped")]
    assert told == [1]


def test_a_function_that_cannot_be_pickled_is_refused(jobs: Jobs) -> None:
    bad_input.check_unpicklable_function(jobs)


def test_a_key_without_a_stable_hash_fails_the_job_for_good(jobs: Jobs) -> None:
    bad_input.check_unstable_key(jobs)


def test_keys_of_two_types_fail_the_job_for_good(jobs: Jobs) -> None:
    bad_input.check_mixed_keys(jobs)


@pytest.mark.feature("F031")
def test_a_checkpoint_folder_that_cannot_be_written_is_refused(jobs: Jobs) -> None:
    bad_input.check_folder_that_cannot_be_written(jobs)


def test_a_second_execute_over_the_same_folder_is_refused(jobs: Jobs) -> None:
    bad_input.check_second_execute(jobs)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_an_exception_of_a_function_arrives_with_its_traceback(
    jobs: Jobs, parallelism: int
) -> None:
    bad_input.check_user_exception(jobs, parallelism)


def test_a_function_that_fails_once_is_restarted_from_a_checkpoint(jobs: Jobs) -> None:
    bad_input.check_user_exception_restarts(jobs)
