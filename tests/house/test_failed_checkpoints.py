"""The guide to failed checkpoints says of each reason what the program says."""

import re

from tests.house.source import ROOT
from tidegate.config.configuration import ALL
from tidegate.model.failure_reason import FailureReason

PAGE = ROOT / "docs" / "guides" / "failed-checkpoints.md"
KEY = re.compile(r"\b(?:[a-z-]+\.)+[a-z-]+\b")


def test_the_guide_has_a_row_for_each_reason_with_its_message_and_remedy() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    table = [line.strip("|").split("|") for line in lines if line.startswith("| `")]
    said = [[cell.strip() for cell in row] for row in table]
    assert [(row[0], row[1], row[3], row[4]) for row in said] == [
        (f"`{r.name}`", r.message, "yes" if r.counts else "no", r.remedy) for r in FailureReason
    ]
    assert all(len(row) == 5 and row[2].endswith(".") for row in said)


def test_the_options_that_remedies_name_exist() -> None:
    known = {key for option in ALL for key in (option.key, *option.old_keys)}
    named = {key for reason in FailureReason for key in KEY.findall(reason.remedy)}
    assert named and named <= known
