"""The check of the demonstration has to see what it is there to see."""

import pandas as pd
import pytest

from tests.cli.flights import committed_rows, small_dataset
from tidegate.cli.demo.outcome import Outcome, recovery_s
from tidegate.cli.demo.verify import Verdict, ranking, verify


def verdict(rows: pd.DataFrame) -> Verdict:
    return verify(small_dataset(), rows)


def changed(row: int, column: str, value: object) -> pd.DataFrame:
    rows = committed_rows()
    rows[column] = rows[column].astype(object)
    rows.loc[row, column] = value
    return rows


def test_the_right_rows_match() -> None:
    assert verdict(committed_rows()) == Verdict(read=5, counted=5, lost=0, doubled=0, wrong=0)
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
    assert (found.lost, found.counted, found.matches) == (5, 0, False)


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
    assert found.counted == 6
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
    stray = rows.tail(1).assign(id=77, count=4)
    found = verdict(pd.concat([rows, stray]))
    assert found.wrong == 1
    assert not found.matches


def test_the_ranking_weighs_airports_by_flights_that_left() -> None:
    rows = committed_rows()
    more = pd.DataFrame([{**rows.loc[4].to_dict(), "origin": "JFK", "count": 1, "departed": 1}])
    assert ranking(pd.concat([rows, more.assign(delay_mean=54.0)]), small_dataset().airlines) == [
        ("United", 4, 24.0),
        ("American", 1, -4.0),
    ]


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
        "read": 5,
        "counted": 5,
        "lost": 0,
        "doubled": 0,
        "killed": 1,
        "recovery_s": 0.6,
        "checkpoints": 3,
        "seconds": 9.9,
        "matches": True,
    }


def test_the_line_says_the_same() -> None:
    assert outcome(verdict(committed_rows())).as_line() == (
        "read 5, counted 5, lost 0, doubled 0, killed 1, recovered in 0.60 s, 3 checkpoints, "
        "9.9 s: all numbers agree"
    )


def test_it_has_not_held_where_numbers_differ_or_a_kill_did_not_come_about() -> None:
    assert outcome(verdict(committed_rows())).held
    assert not outcome(verdict(committed_rows().head(4))).held
    assert not outcome(verdict(committed_rows()), killed=0).held
