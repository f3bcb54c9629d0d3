"""What `make soak` makes of its samples."""

from scripts.soak import SAMPLES, by_sixths, growth, report


def test_what_stays_or_varies_has_not_grown() -> None:
    samples = [{"files": 100.0 + n % 20, "threads": 10.0} for n in range(SAMPLES)]
    lines, grown = report("job", samples)
    assert grown == 0 and len(lines) == 3


def test_what_rises_slowly_has_grown_and_is_marked() -> None:
    samples = [{"memory": 100 + n / 20, "threads": 10.0} for n in range(SAMPLES)]
    lines, grown = report("job", samples)
    assert grown == 1
    assert [line for line in lines if "GROWN" in line] == [lines[1]] and "memory" in lines[1]


def test_a_thread_more_is_no_growth() -> None:
    assert growth([10, 10, 10, 11, 11, 11]) == (0.1, False)
    assert growth([10, 10, 10, 11, 13, 13]) == (0.3, True)


def test_what_is_not_there_all_the_time_counts_where_it_is() -> None:
    samples = [{"slot": 5.0} if n % 2 else {} for n in range(SAMPLES)]
    assert by_sixths([each["slot"] for each in samples if each]) == [5.0] * 6
    assert report("job", samples)[1] == 0
