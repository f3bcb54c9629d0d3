"""Each option is documented, and the pages made from the source are those of today's source."""

from scripts import reference, stubs
from tests.house.source import ROOT
from tidegate.config.configuration import ALL

REMEDY = "run `make docs` and commit what it wrote"


def test_the_page_of_options_is_todays() -> None:
    assert reference.OPTIONS.read_text(encoding="utf-8") == reference.options_page(), REMEDY


def test_the_page_of_commands_is_todays() -> None:
    assert reference.COMMANDS.read_text(encoding="utf-8") == reference.commands_page(), REMEDY


def test_the_page_of_deviations_is_todays() -> None:
    assert reference.DEVIATIONS.read_text(encoding="utf-8") == reference.deviations_page(), REMEDY


def test_the_page_of_metrics_is_todays() -> None:
    assert reference.METRICS.read_text(encoding="utf-8") == reference.metrics_page(), REMEDY


def test_the_stubs_are_todays() -> None:
    stale = [path.name for path, text in stubs.stubs() if path.read_text(encoding="utf-8") != text]
    assert not stale, "run `.venv/bin/python scripts/stubs.py` and commit what it wrote"


def test_the_ten_options_that_matter_are_options() -> None:
    assert len(reference.MATTER) == 10
    assert set(reference.MATTER) <= {option.key for option in ALL}


def test_each_option_says_in_a_sentence_what_it_does() -> None:
    silent = [option.key for option in ALL if not option.description.endswith(".")]
    assert not silent


def test_no_key_is_given_twice() -> None:
    keys = [key for option in ALL for key in (option.key, *option.old_keys)]
    assert len(keys) == len(set(keys))


def test_the_features_table_counts_its_rows() -> None:
    lines = (ROOT / "docs" / "features.tsv").read_text(encoding="utf-8").splitlines()[1:]
    assert [line.split("\t")[0] for line in lines] == [f"F{n:03}" for n in range(1, 312)]
    assert all(line.count("\t") == 4 for line in lines)
