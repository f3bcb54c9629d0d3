"""The check of the demonstration has to see what it is there to see."""

import pandas as pd
import pytest

from examples.demo.outcome import Outcome, recovery_s
from examples.demo.verify import Verdict, ranking, verify, worst_days
from tests.demo.flights import (
    FIRST_DAY,
    SECOND_DAY,
    committed,
    committed_rows,
    day_rows,
    late_rows,
    small_dataset,
)


def verdict(rows: pd.DataFrame) -> Verdict:
    return verify(small_dataset(), committed(rows))


def changed(row: int, column: str, value: object) -> pd.DataFrame:
    rows = committed_rows()
    rows[column] = rows[column].astype(object)
    rows.loc[row, column] = value
    return rows


def test_the_right_rows_match() -> None:
    assert verdict(committed_rows()) == Verdict(
        read=7, counted=7, lost=0, doubled=0, windows=2, late=1, wrong=0
    )
    assert verdict(committed_rows()).matches


def test_the_order_of_files_and_rows_does_not_matter() -> None:
    assert verdict(committed_rows().iloc[::-1]).matches


def test_flights_of_a_route_may_be_counted_in_another_order() -> None:
    rows = committed_rows()
    rows.loc[[2, 4], ["count", "departed", "delay_mean", "bad_weather_share"]] = [
        [3, 3, 14.0, 2 / 3],
        [2, 2, 6.0, 0.5],
    ]
    rows.loc[4, "delay_max"] = 10.0
    assert verdict(rows).matches


def test_a_lost_row_is_seen() -> None:
    found = verdict(committed_rows().drop(index=1))
    assert found.lost == 1
    assert not found.matches


def test_all_rows_lost_is_seen() -> None:
    found = verdict(committed_rows().head(0))
    assert (found.lost, found.counted, found.matches) == (7, 0, False)


def test_a_doubled_row_is_seen() -> None:
    rows = committed_rows()
    found = verdict(pd.concat([rows, rows.head(2)]))
    assert found.doubled == 2
    assert not found.matches


def test_a_flight_that_was_counted_twice_in_state_alone_is_seen() -> None:
    rows = committed_rows()
    rows.loc[4, ["count", "departed"]] = [4, 4]
    found = verdict(rows)
    assert (found.lost, found.doubled) == (0, 0)
    assert found.counted == 8
    assert not found.matches


def test_state_that_forgot_a_flight_is_seen_although_every_row_is_there() -> None:
    rows = committed_rows()
    rows.loc[4, ["count", "departed"]] = [2, 2]
    found = verdict(rows)
    assert (found.lost, found.doubled) == (0, 0)
    assert not found.matches


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("departed", 9),
        ("delay_mean", 14.1),
        ("delay_mean", None),
        ("delay_max", 31.0),
        ("bad_weather_share", 0.5),
        ("carrier", "AA"),
    ],
)
def test_a_wrong_figure_is_seen(column: str, value: object) -> None:
    found = verdict(changed(4, column, value))
    assert found.wrong > 0
    assert not found.matches


def test_a_row_of_no_flight_is_seen() -> None:
    rows = committed_rows()
    stray = rows.tail(1).assign(id=77, count=3)
    found = verdict(pd.concat([rows, stray]))
    assert found.wrong == 1
    assert not found.matches


def found_in(days: pd.DataFrame | None = None, late: pd.DataFrame | None = None) -> Verdict:
    return verify(small_dataset(), committed(days=days, late=late))


WITH_THE_STRAGGLER = (1, 6, 5, 58, 11.6, 4)
ONLY_THE_STRAGGLER = (1, 1, 1, 20, 20.0, 1)


def test_a_straggler_may_be_in_its_day_or_fire_it_again() -> None:
    nobody = late_rows().head(0)
    in_its_day = found_in(day_rows(WITH_THE_STRAGGLER, SECOND_DAY), nobody)
    again = found_in(day_rows(FIRST_DAY, SECOND_DAY, ONLY_THE_STRAGGLER), nobody)
    assert in_its_day.matches
    assert again.matches
    assert (again.windows, again.late) == (2, 0)


def test_a_straggler_that_is_in_its_day_and_late_is_seen() -> None:
    assert found_in(day_rows(WITH_THE_STRAGGLER, SECOND_DAY)).wrong == 1


def test_a_straggler_that_is_nowhere_is_seen() -> None:
    assert found_in(late=late_rows().head(0)).wrong == 1


def test_a_day_that_fired_twice_for_the_same_flights_is_seen() -> None:
    assert not found_in(day_rows(FIRST_DAY, FIRST_DAY, SECOND_DAY)).matches


def test_a_day_in_two_parts_without_a_straggler_is_seen() -> None:
    halves = (1, 4, 4, 38, 9.5, 3), (1, 1, 0, 0, None, 0)
    assert found_in(day_rows(*halves, SECOND_DAY)).wrong == 1


def test_a_day_that_is_missing_and_one_of_no_flight_are_seen() -> None:
    assert found_in(day_rows(FIRST_DAY)).wrong == 1
    assert found_in(day_rows(FIRST_DAY, SECOND_DAY, (3, 1, 1, 8, 8.0, 0))).wrong == 1


@pytest.mark.parametrize(
    "day",
    [
        (2, 2, 1, 8, 8.0, 0),
        (2, 1, 0, 8, None, 0),
        (2, 1, 1, 9, 9.0, 0),
        (2, 1, 1, 8, 8.5, 0),
        (2, 1, 1, 8, None, 0),
        (2, 1, 1, 8, 8.0, 1),
    ],
)
def test_a_wrong_figure_of_a_day_is_seen(day: tuple[int, int, int, int, float, int]) -> None:
    assert found_in(day_rows(FIRST_DAY, day)).wrong > 0


def test_a_late_flight_that_did_not_straggle_is_seen() -> None:
    row = small_dataset().flights.loc[5]
    late = pd.concat(
        [late_rows(), late_rows().assign(id=5, time=row["time"], dep_delay=8.0, bad_weather=False)]
    )
    assert found_in(day_rows(FIRST_DAY), late).wrong == 1


@pytest.mark.parametrize(
    ("column", "value"),
    [("carrier", "AA"), ("time", 1), ("dep_delay", None), ("bad_weather", False), ("id", 77)],
)
def test_a_wrong_figure_of_a_late_flight_is_seen(column: str, value: object) -> None:
    assert not found_in(late=late_rows().assign(**{column: value})).matches


def test_a_late_flight_that_is_there_twice_is_seen() -> None:
    assert found_in(late=pd.concat([late_rows(), late_rows()])).wrong == 1


def test_the_ranking_weighs_airports_by_flights_that_left() -> None:
    rows = committed_rows()
    more = pd.DataFrame([{**rows.loc[4].to_dict(), "origin": "JFK", "count": 1, "departed": 1}])
    assert ranking(pd.concat([rows, more.assign(delay_mean=54.0)]), small_dataset().airlines) == [
        ("United", 4, 24.0),
        ("JetBlue", 2, 14.0),
        ("American", 1, -4.0),
    ]


def test_the_worst_days_are_those_with_the_greatest_mean_of_all_their_rows() -> None:
    days = day_rows(SECOND_DAY, FIRST_DAY, ONLY_THE_STRAGGLER, (3, 2, 0, 0, None, 2))
    assert worst_days(days) == [("EWR", "2013-01-01", 6, 4, 11.6), ("EWR", "2013-01-02", 1, 0, 8.0)]


def test_recovery_is_from_the_kill_to_the_first_row_of_the_next_run() -> None:
    assert recovery_s([1_900], committed_rows()) == 0.6


def test_rows_that_the_run_before_still_emitted_are_no_recovery() -> None:
    rows = committed_rows()
    rows.loc[2, "emitted_ms"] = 1_950
    assert recovery_s([1_900], rows) == 0.6


def test_of_several_kills_the_longest_recovery_counts() -> None:
    rows = committed_rows()
    rows.loc[4, ["driver", "attempt", "emitted_ms"]] = [1, 0, 6_000]
    assert recovery_s([1_900, 4_000], rows) == 2.0


def test_without_a_kill_there_is_no_recovery() -> None:
    assert recovery_s([], committed_rows()) is None


def outcome(verdict: Verdict, killed: int = 1) -> Outcome:
    return Outcome(
        verdict=verdict, killed=killed, kills_wanted=1, recovery_s=0.6, checkpoints=3, seconds=9.87
    )


def test_the_json_has_the_promised_fields_and_no_others() -> None:
    assert outcome(verdict(committed_rows())).as_json() == {
        "read": 7,
        "counted": 7,
        "lost": 0,
        "doubled": 0,
        "killed": 1,
        "recovery_s": 0.6,
        "checkpoints": 3,
        "windows": 2,
        "late": 1,
        "seconds": 9.9,
        "matches": True,
    }


def test_the_line_says_the_same() -> None:
    assert outcome(verdict(committed_rows())).as_line() == (
        "read 7, counted 7, lost 0, doubled 0, killed 1, recovered in 0.60 s, 3 checkpoints, "
        "2 windows, 1 late, 9.9 s: all numbers agree"
    )


def test_it_has_not_held_where_numbers_differ_or_a_kill_did_not_come_about() -> None:
    assert outcome(verdict(committed_rows())).held
    assert not outcome(verdict(committed_rows().head(4))).held
    assert not outcome(verdict(committed_rows()), killed=0).held
