"""What the configuration page of checkpoints says of the changelog."""

from __future__ import annotations

import pytest

from tidegate.model.settings import ChangelogSettings, JobSettings, SlotSettings
from tidegate.rest.shapes.checkpoint_shapes import config


@pytest.mark.parametrize(
    ("changelog", "expected"),
    [
        (None, (False, 0, None)),
        (ChangelogSettings(materialize_ms=5_000), (True, 5_000, "filesystem")),
        (ChangelogSettings(materialize_ms=None, in_memory=True), (True, 0, "memory")),
    ],
)
def test_a_changelog_is_shown_with_its_interval_and_storage(
    changelog: ChangelogSettings | None, expected: tuple[object, ...]
) -> None:
    shown = config(JobSettings(slot=SlotSettings(changelog=changelog)))
    assert expected == (
        shown["state_changelog_enabled"],
        shown["changelog_periodic_materialization_interval"],
        shown["changelog_storage"],
    )
