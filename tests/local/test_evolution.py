"""A job goes on from its checkpoint with state of another form, or is refused before any record."""

import pytest

from tests.e2e.evolving import remember
from tests.e2e.jobs import KEYS
from tests.e2e.ledger import ledger_rows
from tests.e2e.restores import RESTORE_PATH, SLOWLY, stopped_with_checkpoint
from tests.e2e.runtimes import RETAIN, Jobs, failure_of, finished
from tests.e2e.watch import view
from tidegate.errors import TidegateError

pytestmark = pytest.mark.slow

TOTAL = 4_000


@pytest.fixture
def left(jobs: Jobs) -> dict[str, object]:
    """The settings to go on from a checkpoint of the first form."""
    env = jobs.checkpointed(1, 100, **RETAIN)
    remember(env, jobs.folder / "out", TOTAL, SLOWLY, "seen", "int")
    return {RESTORE_PATH: stopped_with_checkpoint(jobs.start(env, "first form")).pointer}


@pytest.mark.feature("F261")
def test_fields_may_be_added_removed_moved_and_widened(jobs: Jobs, left: dict[str, object]) -> None:
    env = jobs.checkpointed(2, 100, **left)
    remember(env, jobs.folder / "out", TOTAL, None, "grown", "long")
    finished(jobs.start(env, "second form"))
    rows = ledger_rows(jobs.folder / "out")
    assert sorted(row["number"] for row in rows) == list(range(TOTAL))
    for key in range(KEYS):
        of_key = [row for row in rows if row["number"] % KEYS == key]
        for counted in ("count", "wide"):
            assert sorted(row[counted] for row in of_key) == list(range(1, len(of_key) + 1))
    migrated = {tuple(row["before"]) for row in rows if row["before"] and len(row["before"]) == 3}
    assert len(migrated) == KEYS, "one place a key, the newest of the first form"
    assert all(region == "eu" for _, _, region in migrated)
    assert all(number // KEYS + 1 == offset for offset, number, _ in migrated)


@pytest.mark.feature("F261")
@pytest.mark.parametrize(
    ("forms", "state", "fault"),
    [
        (("renamed", "int"), "seen", "total is new and has no default"),
        (("retyped", "int"), "seen", "count was Long and is String"),
        (("undeclared", "int"), "seen", "it was written by msgpack and is read by pickle"),
    ],
    ids=["renamed", "retyped", "undeclared"],
)
def test_what_does_not_fit_is_refused_before_any_record(
    jobs: Jobs, left: dict[str, object], forms: tuple[str, str], state: str, fault: str
) -> None:
    env = jobs.checkpointed(1, 100, **left, **{"restart-strategy.type": "disable"})
    remember(env, jobs.folder / "after", TOTAL, None, *forms)
    client = jobs.start(env, "refused")
    error = failure_of(client)
    assert isinstance(error, TidegateError)
    told = str(error)
    assert "operator 'remembering'" in told and f"state '{state}'" in told and fault in told
    assert "Seen(count: Long, checked: Boolean, place: Place(" in told
    assert view(client).restarts == 0
    assert not ledger_rows(jobs.folder / "after")
