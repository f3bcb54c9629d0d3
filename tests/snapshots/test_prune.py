"""``tidegate prune``: what is removed of ended jobs, and what never is."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from click.testing import CliRunner

from tests.snapshots.snapshot_world import EPOCH, JobWorld, Kind
from tidegate.cli.main import commands
from tidegate.clock import SystemClock
from tidegate.errors import ConfigError, StorageFailed
from tidegate.ha.chain import JobRecord, Pointer, beat_path, claim_path, encode, place_path
from tidegate.ha.filesystem import open_chain
from tidegate.ha.leadership import HaWorld, lead
from tidegate.model.chance import SeededChance
from tidegate.model.control import JobStatus
from tidegate.model.ids import Attempt, CheckpointId, Epoch, JobId
from tidegate.snapshots.checking.fsck import check
from tidegate.snapshots.jobs import KeptCheckpoint, PruneRule, Standing, to_prune
from tidegate.snapshots.prune import Pruning
from tidegate.storage import paths
from tidegate.storage.local import LocalStore
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tidegate.snapshots.prune import PrunePlan
    from tidegate.storage.store import FileInfo, Store

T = TypeVar("T")

DAY_MS = 86_400_000
LATER = "f" * 32


def kept(
    number: int, standing: Standing, *, job: str = "counts", age_days: int | None = 0
) -> KeptCheckpoint:
    written_ms = None if age_days is None else (100 - age_days) * DAY_MS
    return KeptCheckpoint(
        f"/c/{standing.name}/chk-{number}", job, CheckpointId(number), standing, written_ms
    )


def pruned(rule: PruneRule, *checkpoints: KeptCheckpoint) -> list[int]:
    return [each.number for each in to_prune(checkpoints, rule, 100 * DAY_MS)]


ONE_OF_EACH = [kept(number, standing) for number, standing in enumerate(Standing)]


def test_without_a_rule_only_checkpoints_of_earlier_runs_are_removed() -> None:
    doomed = to_prune(ONE_OF_EACH, PruneRule(), 100 * DAY_MS)
    assert [each.standing for each in doomed] == [Standing.FORMER]


@pytest.mark.parametrize("rule", [PruneRule(0), PruneRule(keep=0), PruneRule(0, 0)])
def test_no_rule_removes_a_checkpoint_of_a_job_that_lives_or_may_live(rule: PruneRule) -> None:
    doomed = to_prune(ONE_OF_EACH, rule, 100 * DAY_MS)
    assert {each.standing for each in doomed} == {Standing.NEWEST, Standing.FORMER}


def test_age_alone_removes_what_is_old_enough_and_nothing_of_unknown_age() -> None:
    ages = [kept(age, Standing.NEWEST, age_days=age) for age in (6, 7, 8)]
    unknown = kept(9, Standing.NEWEST, age_days=None)
    assert pruned(PruneRule(7 * DAY_MS), *ages, unknown) == [7, 8]


def test_a_number_keeps_the_newest_of_each_job_and_the_newest_run_first() -> None:
    former = [kept(n, Standing.FORMER) for n in (8, 9)]
    newest = [kept(n, Standing.NEWEST, age_days=1) for n in (1, 2)]
    other = kept(5, Standing.NEWEST, job="other")
    assert pruned(PruneRule(keep=1), *former, *newest, other) == [8, 9, 1]
    assert pruned(PruneRule(keep=3), *former, *newest, other) == [8]


def test_age_and_number_both_have_to_be_met() -> None:
    ages = [kept(10 - age, Standing.NEWEST, age_days=age) for age in (1, 2, 8, 9)]
    assert pruned(PruneRule(7 * DAY_MS, 3), *ages) == [1]


@pytest.fixture
def world(tmp_path: Path) -> JobWorld:
    """Three incremental checkpoints and a savepoint of a job that was cancelled."""
    with JobWorld(Kind("incremental"), root=str(tmp_path)) as job:
        for _ in range(3):
            job.work()
            job.checkpoint()
        job.savepoint()
        job.recorded()
        return job


def started_anew(job: JobWorld, status: JobStatus = JobStatus.CANCELED) -> None:
    """Another run of the job of that name, which has no checkpoint."""
    chain = chain_of(job)
    record = JobRecord(JobId(LATER), Epoch(2), "u", (), CheckpointId(1), status, former=(job.job,))
    chain.create(claim_path(2), b"u")
    chain.create(place_path(2, 1), encode(record))


def chain_of(job: JobWorld) -> Store:
    return job.stores.open(paths.join(job.root, paths.chain_folder(job.name)))


def prune(job: JobWorld, rule: PruneRule) -> PrunePlan:
    pruning = Pruning(job.stores, job.root, rule, SystemClock(), lease_ms=20)
    pruning.remove()
    return pruning.plan


def checkpoints_in(job: JobWorld) -> list[str]:
    return sorted(path.parent.name for path in Path(job.root).rglob("chk-*/_metadata"))


def savepoints_in(job: JobWorld) -> int:
    return len(list(Path(job.root).glob("savepoints/*/_metadata")))


def test_what_an_ended_job_can_go_on_from_stays_unless_it_is_asked_for(world: JobWorld) -> None:
    plan = prune(world, PruneRule())
    assert plan.removals == () and checkpoints_in(world) == ["chk-1", "chk-2", "chk-3"]
    assert plan.notes == (
        "checkpoints that stay: 3, of ended jobs that can go on; --older-than or --keep remove "
        "them too",
    )


def test_what_an_earlier_run_has_kept_goes_with_its_folder(world: JobWorld) -> None:
    started_anew(world, JobStatus.SUSPENDED)
    before = sum(file.stat().st_size for file in Path(world.folder).rglob("*") if file.is_file())
    plan = prune(world, PruneRule())
    assert [each.what for each in plan.removals if each.what == "checkpoint"] == ["checkpoint"] * 3
    assert plan.size_bytes >= before > 0
    assert not Path(world.folder).exists() and savepoints_in(world) == 1
    assert check(world.stores, world.root, lease_ms=20).healthy


@pytest.mark.parametrize("reached", ["link", "copy", "moved"])
def test_a_folder_is_the_same_under_another_path(
    world: JobWorld, tmp_path_factory: pytest.TempPathFactory, reached: str
) -> None:
    here = tmp_path_factory.mktemp("elsewhere") / "checkpoints"
    match reached:
        case "link":
            here.symlink_to(world.root)
        case "copy":
            shutil.copytree(world.root, here)
        case _:
            Path(world.root).rename(here)
    before = sorted(here.rglob("*"))
    check(world.stores, str(here), lease_ms=20, delete_orphans=True)
    pruning = Pruning(world.stores, str(here), PruneRule(), SystemClock(), lease_ms=20)
    pruning.remove()
    assert pruning.plan.removals == () and sorted(here.rglob("*")) == before
    pruning = Pruning(world.stores, str(here), PruneRule(keep=1), SystemClock(), lease_ms=20)
    pruning.remove()
    assert [file.parent.name for file in here.rglob("chk-*/_metadata")] == ["chk-3"]
    if reached != "link":
        shutil.rmtree(world.root, ignore_errors=True)
        here.rename(world.root)
    assert check(world.stores, world.root, lease_ms=20).healthy


def test_a_job_of_the_same_name_that_keeps_its_records_elsewhere_is_left_alone(
    world: JobWorld,
) -> None:
    """As in ZooKeeper: only its sign says that a job lives beside the records of another."""
    chain = chain_of(world)
    other = JobRecord(JobId(LATER), Epoch(2), "u", (), CheckpointId(1), JobStatus.FINISHED)
    chain.create(claim_path(2), b"u")
    chain.create(place_path(2, 1), encode(other))
    door = json.dumps({"host": "h", "pid": 1, "socket": "/s", "job": world.job}).encode()
    chain.create("doors/0000000001", door)
    chain.create("doors/0000000002", door.replace(world.job.encode(), LATER.encode()))
    left = sorted(file for file in Path(world.folder).rglob("*") if file.is_file())
    for rule in (PruneRule(), PruneRule(keep=0)):
        plan = prune(world, rule)
        assert "checkpoints that stay: 3, of jobs without records here" in plan.notes
    check(world.stores, world.root, delete_orphans=True, lease_ms=20)
    assert sorted(file for file in Path(world.folder).rglob("*") if file.is_file()) == left
    assert [info.path for info in chain.list()] == ["doors/0000000001"]


def test_the_newest_are_kept_whole_and_the_records_name_no_other(world: JobWorld) -> None:
    plan = prune(world, PruneRule(keep=1))
    assert checkpoints_in(world) == ["chk-3"] and savepoints_in(world) == 1
    assert {each.job for each in plan.removals if each.what == "checkpoint"} == {world.name}
    report = check(world.stores, world.root, lease_ms=20)
    assert report.healthy and [each.checkpoint for each in report.snapshots][:1] == [3]
    assert asyncio.run(resumed(world)) == [3]


async def resumed(job: JobWorld) -> list[int]:
    async def at_once(call: Callable[[], T]) -> T:
        return call()

    chain = await open_chain(job.stores, job.root, job.name, at_once)
    ha = HaWorld(chain, SystemClock(), SeededChance(1), lambda ms: asyncio.sleep(ms / 1_000))
    leadership = await lead(ha, job.name, resume=True)
    await leadership.close()
    return [pointer.checkpoint for pointer in leadership.completed]


def test_a_job_of_which_all_is_removed_leaves_no_record_and_is_not_begun_anew(
    world: JobWorld,
) -> None:
    prune(world, PruneRule(keep=0))
    assert checkpoints_in(world) == [] and list(Path(world.root, ".jobs").iterdir()) == []
    with pytest.raises(ConfigError, match="no earlier run"):
        asyncio.run(resumed(world))


def test_a_job_with_a_very_long_name_is_pruned_like_others(tmp_path: Path) -> None:
    with JobWorld(Kind(), root=str(tmp_path)) as job:
        job.name = "Обработка заказов по регионам за день и сутки"
        for _ in range(2):
            job.work()
            job.checkpoint()
        job.recorded()
        [removal] = (each for each in prune(job, PruneRule(keep=1)).removals if each.written_ms)
        assert removal.path == job.completed[0].location and checkpoints_in(job) == ["chk-2"]
        assert asyncio.run(resumed(job)) == [2]


def test_age_is_that_of_the_metadata(world: JobWorld) -> None:
    old = Path(world.completed[0].location, "_metadata")
    week_ago = old.stat().st_mtime - 8 * 86_400
    os.utime(old, (week_ago, week_ago))
    prune(world, PruneRule(7 * DAY_MS))
    assert checkpoints_in(world) == ["chk-2", "chk-3"]
    assert check(world.stores, world.root, lease_ms=20).healthy


def test_nothing_is_removed_of_a_job_that_shows_life(world: JobWorld) -> None:
    chain = chain_of(world)
    chain.create(claim_path(2), b"u")
    pointer = Pointer(CheckpointId(3), world.completed[2].location)
    record = JobRecord(JobId(LATER), Epoch(2), "u", (pointer,), CheckpointId(4))
    chain.create(place_path(2, 1), encode(record))

    pruning = beating(world, PruneRule(keep=0))
    pruning.remove()
    assert checkpoints_in(world) == ["chk-1", "chk-2", "chk-3"]
    assert "of jobs that live" in pruning.plan.notes[0]


class Looks(Stores):
    """Stores that note whose signs of life are looked for."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[str] = []

    def open(self, location: str) -> Store:
        store = super().open(location)
        if "/.jobs/" not in location:
            return store
        noted = LocalStore(location)

        def listed(prefix: str = "") -> Iterator[FileInfo]:
            self.looks += [location] if prefix == "beats" else []
            return store.list(prefix)

        noted.list = listed
        return noted


def test_signs_of_life_of_all_jobs_are_waited_for_at_once(world: JobWorld) -> None:
    for number in range(3):
        record = JobRecord(JobId(f"{number:032}"), Epoch(1), "t", (), CheckpointId(1))
        chain = world.stores.open(paths.join(world.root, paths.chain_folder(f"killed {number}")))
        chain.create(claim_path(1), b"t")
        chain.create(place_path(1, 1), encode(record))
    stores = Looks()
    Pruning(stores, world.root, PruneRule(), SystemClock(), lease_ms=20)
    assert len(set(stores.looks)) == 3
    assert stores.looks[:3] == stores.looks[3:], "each is looked at before one is looked at again"


def beating(job: JobWorld, rule: PruneRule) -> Pruning:
    """As `prune`, while a driver shows life."""
    over, chain = threading.Event(), chain_of(job)

    def beat() -> None:
        number = 0
        while not over.wait(0.02):
            number += 1
            chain.create(beat_path(2, number), b"")

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        return Pruning(job.stores, job.root, rule, SystemClock(), lease_ms=60_000)
    finally:
        over.set()
        thread.join()


def test_a_killed_driver_is_kept_from_going_on_with_what_is_removed(world: JobWorld) -> None:
    chain = chain_of(world)
    chain.create(claim_path(2), b"u")
    record = JobRecord(world.job, Epoch(2), "u", tuple(world.completed), CheckpointId(9))
    chain.create(place_path(2, 1), encode(record))
    prune(world, PruneRule(keep=0))
    assert checkpoints_in(world) == []
    with pytest.raises(ConfigError, match="kept no checkpoint"):
        asyncio.run(resumed(world))
    assert not chain.create(place_path(2, 2), b"of the driver that was frozen")


def test_a_driver_that_stood_still_finds_what_it_has_under_way(world: JobWorld) -> None:
    chain = chain_of(world)
    chain.create(claim_path(2), b"u")
    record = JobRecord(world.job, Epoch(2), "u", tuple(world.completed[:2]), CheckpointId(9))
    chain.create(place_path(2, 1), encode(record))
    shared = Path(world.folder, "shared")
    own, left = (shared / paths.state_file(Epoch(epoch), Attempt(0), 1) for epoch in (2, 1))
    for file in (own, left):
        file.write_bytes(b"state")
    plan = prune(world, PruneRule())
    assert [each.files for each in plan.removals] == [(str(left),)]
    assert own.exists() and checkpoints_in(world) == ["chk-1", "chk-2", "chk-3"]
    assert any(note.startswith("checkpoints that stay: 1, that a driver") for note in plan.notes)
    check(world.stores, world.root, lease_ms=20, delete_orphans=True)
    assert checkpoints_in(world) == ["chk-1", "chk-2", "chk-3"]
    assert chain.create(place_path(2, 2), b"of the driver that goes on")


def test_records_of_a_finished_job_go_and_its_empty_folders(tmp_path: Path) -> None:
    with JobWorld(Kind(), root=str(tmp_path)) as job:
        job.storage.initialize_base_locations()
        job.recorded(JobStatus.FINISHED)
        plan = prune(job, PruneRule())
        assert [each.what for each in plan.removals] == ["records", "empty folder"]
        assert not Path(job.folder).exists() and list((tmp_path / ".jobs").iterdir()) == []


def test_shared_files_stay_where_a_damaged_snapshot_may_name_them(world: JobWorld) -> None:
    Path(world.completed[2].location, "_metadata").write_bytes(b"damaged")
    shared = sorted(Path(world.folder, "shared").iterdir())
    plan = prune(world, PruneRule(keep=1))
    assert checkpoints_in(world) == ["chk-3"]
    assert sorted(Path(world.folder, "shared").iterdir()) == shared
    assert any("damaged" in note for note in plan.notes)


def test_shared_files_stay_where_another_job_may_have_claimed_a_checkpoint(
    world: JobWorld,
) -> None:
    """Which keeps its records elsewhere, and has deleted the checkpoint meanwhile."""
    shared = sorted(Path(world.folder, "shared").iterdir())
    shutil.rmtree(world.completed[2].location)
    plan = prune(world, PruneRule())
    assert plan.removals == () and any("may have claimed it" in note for note in plan.notes)
    prune(world, PruneRule(keep=0))
    assert checkpoints_in(world) == [] and sorted(Path(world.folder, "shared").iterdir()) == shared


class Full(Stores):
    """Stores on a disk that is full until enough files are deleted."""

    def __init__(self, needed: int) -> None:
        super().__init__()
        self.needed = needed

    def open(self, location: str) -> Store:
        store, full = super().open(location), LocalStore(location)

        def create(path: str, data: bytes) -> bool:
            if self.needed > 0:
                raise StorageFailed("The disk is full", where=location)
            return store.create(path, data)

        def delete(paths: Iterable[str]) -> None:
            gone = list(paths)
            self.needed -= len(gone)
            store.delete(gone)

        full.create, full.delete = create, delete
        return full


def test_a_full_disk_is_made_room_on_before_a_record_is_written(world: JobWorld) -> None:
    chain = chain_of(world)
    for number in (2, 3):
        record = JobRecord(
            world.job, EPOCH, "t", tuple(world.completed), CheckpointId(9), JobStatus.CANCELED
        )
        chain.create(place_path(EPOCH, number), encode(record))
    with pytest.raises(StorageFailed, match="full"):
        Pruning(Full(3), world.root, PruneRule(keep=1), SystemClock(), lease_ms=20).remove()
    assert checkpoints_in(world) == ["chk-1", "chk-2", "chk-3"], "the records name them yet"
    chain.create(place_path(EPOCH, 4), encode(record))
    Pruning(Full(1), world.root, PruneRule(keep=1), SystemClock(), lease_ms=20).remove()
    assert checkpoints_in(world) == ["chk-3"]
    assert check(world.stores, world.root, lease_ms=20).healthy
    assert asyncio.run(resumed(world)) == [3]


def test_a_job_that_has_run_since_the_plan_was_made_is_left_as_it_is(world: JobWorld) -> None:
    pruning = Pruning(world.stores, world.root, PruneRule(keep=0), SystemClock(), lease_ms=20)
    record = JobRecord(
        world.job, Epoch(2), "u", tuple(world.completed[1:]), CheckpointId(9), JobStatus.SUSPENDED
    )
    chain = chain_of(world)
    chain.create(claim_path(2), b"u")
    chain.create(place_path(2, 1), encode(record))
    with pytest.raises(ConfigError, match="has run meanwhile"):
        pruning.remove()
    assert checkpoints_in(world) == ["chk-1", "chk-2", "chk-3"]
    assert asyncio.run(resumed(world)) == [2, 3]


def test_files_of_others_stay(world: JobWorld) -> None:
    started_anew(world)
    note = Path(world.completed[0].location, "read me.txt")
    note.write_text("mine")
    prune(world, PruneRule())
    assert [file for file in Path(world.folder).rglob("*") if file.is_file()] == [note]


def test_the_command_says_what_it_would_remove_and_then_removes_it(world: JobWorld) -> None:
    def run(*args: str) -> str:
        result = CliRunner().invoke(commands, ["prune", world.root, *args])
        assert result.exit_code == 0, result.output
        return result.output

    assert "there is nothing to remove" in run()
    assert "to remove: 2 checkpoints" in run("--keep", "1", "--dry-run")
    assert len(checkpoints_in(world)) == 3
    plan = json.loads(run("--keep", "1", "--dry-run", "--json"))
    assert plan["removed"] is False and plan["bytes"] > 0
    assert [each["what"] for each in plan["removals"]].count("checkpoint") == 2
    shown = run("--keep", "1")
    assert "removed: 2 checkpoints" in shown and world.completed[0].location in shown
    assert checkpoints_in(world) == ["chk-3"]
    assert "checkpoints that stay: 1" in run("--older-than", "7d")


@pytest.mark.parametrize(
    "args", [("nowhere",), (".", "--older-than", "long")], ids=["no folder", "no span"]
)
def test_the_command_refuses_what_it_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(commands, ["prune", *args])
    assert result.exit_code == 2 and "error: " in result.output.lower()


@pytest.mark.parametrize("age", ["7", " 7", "--7", "-7d"])
def test_an_age_without_a_unit_or_below_nothing_removes_nothing(world: JobWorld, age: str) -> None:
    result = CliRunner().invoke(commands, ["prune", world.root, "--older-than", age])
    assert result.exit_code == 2 and "is no duration such as 30s, 10m, 2h or 1d" in result.output
    assert len(checkpoints_in(world)) == 3
