import pytest

from tests.e2e.printed import check_functions_are_heard
from tests.e2e.runtimes import Jobs


@pytest.mark.slow
def test_what_functions_print_and_log_is_printed_by_the_driver(
    jobs: Jobs, capsys: pytest.CaptureFixture[str]
) -> None:
    check_functions_are_heard(jobs, capsys)
