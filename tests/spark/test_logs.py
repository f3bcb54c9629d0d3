import pytest

from tests.e2e.logged import check_functions_are_heard, check_records_name_their_step
from tests.e2e.runtimes import Jobs

pytestmark = [pytest.mark.slow, pytest.mark.feature("F299")]


def test_what_functions_print_and_log_is_printed_by_the_driver(
    jobs: Jobs, capsys: pytest.CaptureFixture[str]
) -> None:
    check_functions_are_heard(jobs, capsys)


def test_records_name_the_step_that_made_them(jobs: Jobs) -> None:
    check_records_name_their_step(jobs)
