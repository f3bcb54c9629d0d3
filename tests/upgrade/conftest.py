"""One savepoint of the whole program, and the means to lay edits of it over that."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import pytest

from tests.e2e.runtimes import RETAIN
from tests.e2e.watch import completed, until, view, wait_for
from tests.upgrade.programs import Plan, build
from tidegate import (
    Configuration,
    SavepointFormatType,
    StreamExecutionEnvironment,
    UpgradeReport,
    check_upgrade,
)
from tidegate.errors import CheckpointAborted
from tidegate.jobmaster.view import JobView

END_S = 100.0

T = TypeVar("T")

Edit = Callable[[Plan], None]
Check = Callable[..., UpgradeReport]


def environment(
    folder: Path, *, parallelism: int = 1, **settings: object
) -> StreamExecutionEnvironment:
    """With checkpoints that are only taken when asked for."""
    configuration = Configuration()
    given = {
        "execution.checkpointing.dir": str(folder / "checkpoints"),
        "execution.checkpointing.interval": "1 h",
        "execution.checkpointing.data-inline-threshold": "0 b",
    }
    for key, value in {**given, **settings}.items():
        configuration.set(key, value)
    return StreamExecutionEnvironment.local(parallelism, configuration=configuration)


def all_have_rows(seen: JobView) -> bool:
    """Whether rows have come everywhere but behind the filters."""
    rows = {
        vertex.name: sum(s.figures.rows_in for s in vertex.subtasks) for vertex in seen.vertices
    }
    return all(count > 0 for name, count in rows.items() if not name.startswith("Source"))


def snapshot(request: Callable[[], Future[T]]) -> T:
    """What the request gives; it is made again where it met a source that was just ending."""
    taken: list[T] = []

    def is_taken() -> bool:
        answer = request()
        if not isinstance(answer.exception(timeout=END_S), CheckpointAborted):
            taken.append(answer.result())
        return bool(taken)

    until(is_taken, "a snapshot is taken")
    return taken[0]


def taken(
    folder: Path,
    form: SavepointFormatType = SavepointFormatType.CANONICAL,
    *,
    extra: object = None,
    parallelism: int = 1,
    **settings: object,
) -> str:
    """A savepoint of the program, which runs on while it is taken. extra: as of `Plan`."""
    env = environment(folder, parallelism=parallelism, **settings)
    build(env, Plan(folder=str(folder), extra=extra))
    client = env.execute_async("before")
    try:
        wait_for(client, all_have_rows, "rows have come everywhere")
        return snapshot(lambda: client.trigger_savepoint(folder / "savepoints", format=form))
    finally:
        client.cancel().result(timeout=END_S)


def checkpointed(folder: Path, **settings: object) -> str:
    """A checkpoint of it instead, the second one."""
    env = environment(folder, **{**settings, **RETAIN})
    build(env, Plan(folder=str(folder)))
    client = env.execute_async("before")
    try:
        for _ in range(2):
            wait_for(client, all_have_rows, "rows have come everywhere")
            snapshot(client.trigger_checkpoint)
        return str(completed(view(client))[-1].pointer)
    finally:
        client.cancel().result(timeout=END_S)


@pytest.fixture(scope="package")
def savepoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return taken(tmp_path_factory.mktemp("before"))


@pytest.fixture
def check(savepoint: str, tmp_path: Path) -> Check:
    """Lays the program, changed by an edit, over the savepoint. settings: of its environment."""

    def check(
        edit: Edit, snapshot: str = savepoint, allow: bool | None = None, **settings: object
    ) -> UpgradeReport:
        plan = Plan(folder=str(tmp_path))
        edit(plan)
        env = environment(tmp_path, **settings)
        build(env, plan)
        return check_upgrade(env, snapshot, allow_non_restored_state=allow)

    return check
