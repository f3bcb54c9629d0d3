"""Changes that break a program's state, each told before anything starts; and those that do not."""

from collections.abc import Callable

import pytest

from tests.upgrade.catalogue import BREAKING, HARMLESS, LEFT, Told
from tests.upgrade.conftest import Check
from tests.upgrade.programs import Plan


@pytest.mark.parametrize(("edit", "told"), BREAKING.values(), ids=BREAKING)
def test_a_change_that_breaks_is_named(
    check: Check, edit: Callable[[Plan], None], told: set[Told]
) -> None:
    report = check(edit)
    assert {(each.kind, each.operator, each.state) for each in report.findings} == told, str(report)
    assert all(each.what and each.remedy for each in report.findings)
    left_only = {kind for kind, _, _ in told} == {LEFT}
    assert report.fits == left_only


@pytest.mark.parametrize("edit", HARMLESS.values(), ids=HARMLESS)
def test_a_change_that_breaks_nothing_is_not_flagged(
    check: Check, edit: Callable[[Plan], None]
) -> None:
    report = check(edit)
    assert report.fits and report.findings == (), str(report)


def test_there_are_enough_of_both() -> None:
    assert len(BREAKING) >= 30 and len(HARMLESS) >= 10
