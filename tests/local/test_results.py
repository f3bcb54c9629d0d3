"""The same job gives the same results at any parallelism, with checkpoints and without."""

import sys

import pytest

from tests.e2e.jobs import running_counts
from tests.e2e.programs import all_expected, all_found, build_all
from tests.e2e.runtimes import Jobs, failure_of, finished
from tidegate import JobCanceled, JobFailed

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("parallelism", "interval_ms"),
    [
        (1, None),
        (1, 50),
        pytest.param(2, 50, marks=pytest.mark.slow),
        pytest.param(3, None, marks=pytest.mark.slow),
    ],
)
def test_programs_give_what_plain_python_gives(
    jobs: Jobs, parallelism: int, interval_ms: int | None
) -> None:
    plain = interval_ms is None
    env = jobs.env(parallelism) if plain else jobs.checkpointed(parallelism, interval_ms)
    build_all(env, jobs.folder / "out")
    finished(jobs.start(env, "programs"))
    found = all_found(jobs.folder / "out")
    for name, bag in all_expected().items():
        assert found[name] == bag, name


@pytest.mark.parametrize("parallelism", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_collected_rows_come_once_while_the_job_runs(jobs: Jobs, parallelism: int) -> None:
    stream = running_counts(jobs.checkpointed(parallelism, 100), 3_000, 3_000)
    with stream.execute_and_collect("collected") as rows:
        collected = sorted(row["number"] for row in rows)
    assert collected == list(range(3_000))


@pytest.mark.slow
def test_what_waits_for_the_program_to_take_results_does_not_hold_up_a_checkpoint(
    jobs: Jobs,
) -> None:
    """Each writer has more rows on their way than may be, at most of the checkpoints."""
    stream = jobs.checkpointed(2, 30).from_sequence(0, 299_999)
    with stream.execute_and_collect("much") as rows:
        assert sum(rows) == 300_000 * 299_999 // 2


@pytest.mark.slow
def test_a_loop_over_an_endless_stream_is_left_and_its_job_ends(jobs: Jobs) -> None:
    rows = jobs.checkpointed(1, 50).from_sequence(0, 10**15).map(str).collect("endless")
    client = rows.get_job_client()
    found = []
    for row in rows:
        found.append(row)
        if len(found) == 5:
            break
    assert found == ["0", "1", "2", "3", "4"]
    del rows
    assert isinstance(failure_of(client), JobCanceled)


@pytest.mark.slow
def test_what_ends_the_job_is_raised_in_the_loop(jobs: Jobs) -> None:
    numbers = jobs.env(1).from_collection(["1", "2", "x"]).map(int)
    found = []
    with pytest.raises(JobFailed, match="invalid literal"), numbers.collect() as rows:
        for row in rows:
            found.append(row)
    assert found == [1, 2]


def test_a_client_and_its_records_say_of_which_job(jobs: Jobs) -> None:
    with jobs.env().from_sequence(0, 9).execute_and_collect("few") as rows:
        client = rows.get_job_client()
        assert repr(rows) == f"<CloseableIterator over the records of {client!r}>"
        assert sorted(rows) == list(range(10))
    assert repr(client) == "<JobClient of job 'few', which has ended>"
    assert repr(client.view()).startswith("<JobView of job 'few', FINISHED: ")
    assert "job 'few' is FINISHED" in repr(client.get_job_execution_result().result())


def test_functions_see_the_arguments_of_their_program(jobs: Jobs) -> None:
    env = jobs.env(2)
    seen = env.from_collection([1]).map(lambda _: sys.argv)
    with seen.execute_and_collect("arguments") as results:
        assert list(results) == [sys.argv]
