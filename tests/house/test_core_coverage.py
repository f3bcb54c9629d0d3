"""The share of branches that is demanded of the protocol cores is counted as it says."""

from scripts.core_coverage import CORES, shares_of
from tests.house.source import ROOT


def test_the_places_of_the_cores_exist() -> None:
    places = [place for core in CORES.values() for place in core]
    assert all((ROOT / place).exists() for place in places)


def test_branches_are_added_up_by_core_and_none_is_nothing() -> None:
    figures = {
        "src/tidegate/checkpoint/a.py": {"num_branches": 10, "covered_branches": 9},
        "src/tidegate/checkpoint/b.py": {"num_branches": 30, "covered_branches": 30},
        "src/tidegate/transport/credit.py": {"num_branches": 4, "covered_branches": 1},
        "src/tidegate/transport/tcp.py": {"num_branches": 90, "covered_branches": 90},
    }
    shares = shares_of(figures)
    assert shares == {
        "the whole": 100 * 130 / 134,
        "checkpoint": 97.5,
        "format": 0.0,
        "jobmaster": 0.0,
        "transport": 25.0,
        "slot": 0.0,
        "ha": 0.0,
    }
