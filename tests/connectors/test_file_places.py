"""The files that a source finds: in folders, by patterns, empty ones, and those that come later."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.file_jobs import (
    SMALL,
    WRITERS,
    operator,
    read_all,
    rows,
    write_json,
    write_parquet,
)
from tests.operators.source_job import SourceJob
from tests.operators.world import World
from tidegate.connectors.files.enumerator import files_at
from tidegate.connectors.files.file_sink import FileSink
from tidegate.connectors.files.file_source import FileSource
from tidegate.errors import BadRecord, ConfigError, FileMissing, RestoreRefused
from tidegate.model.duration import Duration
from tidegate.operators.sources.source import SourceReaderOperator
from tidegate.storage.store import Store
from tidegate.storage.stores import Stores


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_folder_is_read_whole_in_every_format(
    world: World, tmp_path: Path, kind: str, parallelism: int
) -> None:
    write, source = WRITERS[kind]
    for index in range(5):
        write(tmp_path / "in" / f"{index}.{kind}", rows(100 * index, 30))
    found = read_all(world, source(str(tmp_path / "in")), parallelism)
    expected = [row for index in range(5) for row in rows(100 * index, 30)]
    assert sorted(found, key=lambda row: row["n"]) == expected


@pytest.mark.feature("F289")
def test_a_file_that_appears_later_is_read_and_after_a_restore_not_again(
    world: World, tmp_path: Path
) -> None:
    write_json(tmp_path / "a.json", [{"file": "a"}])
    source = FileSource.json(str(tmp_path)).monitor_continuously(Duration.of_seconds(1))
    job = SourceJob(world, operator(source), 2, settings=SMALL)

    def run_for(job: SourceJob, ms: int) -> None:
        for _ in range(ms // 50):
            job.step(0)
            job.step(1)
            world.pass_time(50)

    run_for(job, 2_000)
    assert job.emitted == [{"file": "a"}]
    write_json(tmp_path / "b.json", [{"file": "b"}])
    run_for(job, 2_000)
    assert job.emitted == [{"file": "a"}, {"file": "b"}]
    job.checkpoint(1)
    restored = job.killed()
    write_json(tmp_path / "c.json", [{"file": "c"}])
    run_for(restored, 3_000)
    assert restored.emitted == [{"file": "a"}, {"file": "b"}, {"file": "c"}]


def test_a_source_that_kept_no_list_of_its_files_is_not_watched_from_its_savepoint_on(
    world: World, tmp_path: Path
) -> None:
    write_json(tmp_path / "a.json", rows(0, 20))
    source = FileSource.json(str(tmp_path))
    job = SourceJob(world, operator(source), 1, settings=SMALL)
    while not job.emitted:
        job.step(0)
    savepoint = job.checkpoint(1)
    with pytest.raises(RestoreRefused, match="all would be read again") as refused:
        SourceJob(world, operator(source.monitor_continuously(1_000)), 1, savepoint)
    assert "another uid" in refused.value.remedy and str(tmp_path) in refused.value.where
    job = job.killed()
    job.run_to_end()
    assert job.emitted == rows(0, 20)


def test_hidden_files_are_left_out(world: World, tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", [{"n": 1}])
    for hidden in (".b.json", "_c.json", "_temporary/d.json", ".git/e.json"):
        write_json(tmp_path / hidden, [{"n": 2}])
    assert read_all(world, FileSource.json(str(tmp_path))) == [{"n": 1}]


def test_a_pattern_chooses_files(world: World, tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", [{"n": 1}])
    (tmp_path / "b.csv").write_text("n\n2\n")
    assert read_all(world, FileSource.json(f"{tmp_path}/*.json")) == [{"n": 1}]


def test_a_pattern_looks_into_no_folder_below(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", [{"n": 1}])
    write_json(tmp_path / "archive" / "b.json", [{"n": 2}])
    stores = OnlyThisFolder()
    found = [file.path for file in files_at(stores, f"{tmp_path}/*.json")]
    assert found == [str(tmp_path / "a.json")]


class OnlyThisFolder(Stores):
    """Stores in which nobody may list the folders below a folder."""

    def locate(self, location: str) -> tuple[Any, str]:
        store, name = super().locate(location)
        return Shallow(store), name


class Shallow:
    def __init__(self, store: Store) -> None:
        self.info, self.list_folder, self.root = store.info, store.list_folder, store.root


@pytest.mark.parametrize("name", ["report [1].json", "what?.json", "5*.json"])
def test_a_file_may_be_named_like_a_pattern(world: World, tmp_path: Path, name: str) -> None:
    write_json(tmp_path / name, [{"n": 1}])
    write_json(tmp_path / "report 1.json", [{"n": 2}])
    source = FileSource.json(str(tmp_path / name))
    source.check()
    assert read_all(world, source) == [{"n": 1}]


def test_a_link_to_a_file_is_read_and_one_to_a_folder_is_not_followed(
    world: World, tmp_path: Path
) -> None:
    write_json(tmp_path / "elsewhere" / "a.json", [{"n": 1}])
    write_json(tmp_path / "in" / "b.json", [{"n": 2}])
    (tmp_path / "in" / "folder").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in" / "c.json").symlink_to(tmp_path / "elsewhere" / "a.json")
    assert read_all(world, FileSource.json(f"{tmp_path}/in")) == [{"n": 2}, {"n": 1}]
    assert read_all(world, FileSource.json(f"{tmp_path}/in/folder")) == [{"n": 1}]


def test_a_file_that_two_locations_name_is_read_once(world: World, tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", [{"n": 1}])
    write_json(tmp_path / "b.json", [{"n": 2}])
    named = str(tmp_path / "b.json")
    source = FileSource.json(str(tmp_path), f"{tmp_path}/a*.json", named, f"file://{named}")
    assert read_all(world, source) == [{"n": 1}, {"n": 2}]


def test_a_pattern_that_matches_nothing_is_refused_unless_it_is_watched(tmp_path: Path) -> None:
    source = FileSource.json(f"{tmp_path}/*.json")
    with pytest.raises(ConfigError, match="No file matches the pattern") as refused:
        source.check()
    assert refused.value.where == f"{tmp_path}/*.json"
    source.monitor_continuously(1_000).check()
    write_json(tmp_path / "a.json", [{"n": 1}])
    source.check()


def test_a_path_that_is_not_there_is_refused_before_anything_starts(tmp_path: Path) -> None:
    missing = tmp_path / "nothing"
    with pytest.raises(ConfigError, match="no such file or folder") as caught:
        SourceReaderOperator(FileSource.parquet(str(missing)), None, "x").check()
    assert caught.value.where == str(missing)


def test_a_file_that_goes_away_is_named(world: World, tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", rows(0, 1))
    job = SourceJob(world, operator(FileSource.json(str(tmp_path))), 1)
    world.settle()
    (tmp_path / "a.json").unlink()
    with pytest.raises(FileMissing, match=r"a\.json"):
        job.run_to_end()


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("place", ["", "/*", "/a.*"])
def test_an_empty_file_has_no_rows_however_it_is_named(
    world: World, tmp_path: Path, kind: str, place: str
) -> None:
    write, source = WRITERS[kind]
    (tmp_path / f"a.{kind}").write_bytes(b"")
    for made in (source(f"{tmp_path}/a.{kind}"), source(f"{tmp_path}{place}").arrow()):
        assert made.unmatched == [] and read_all(world, made) == []
    write(tmp_path / f"b.{kind}", rows(0, 3))
    (tmp_path / f"a.b.{kind}").write_bytes((tmp_path / f"b.{kind}").read_bytes())
    (tmp_path / f"b.{kind}").unlink()
    assert read_all(world, source(f"{tmp_path}{place}")) == rows(0, 3)


def test_an_empty_file_that_is_filled_later_is_read_then(world: World, tmp_path: Path) -> None:
    (tmp_path / "a.json").touch()
    source = FileSource.json(f"{tmp_path}/*.json").monitor_continuously(1_000)
    job = SourceJob(world, operator(source), 1, settings=SMALL)
    for ms in range(0, 4_000, 50):
        if ms == 2_000:
            write_json(tmp_path / "a.json", [{"n": 1}])
        job.step(0)
        world.pass_time(50)
    assert job.emitted == [{"n": 1}]


def test_a_later_file_that_lacks_a_chosen_column_is_named(world: World, tmp_path: Path) -> None:
    write_parquet(tmp_path / "1.parquet", [{"a": 1, "b": 2}])
    write_parquet(tmp_path / "2.parquet", [{"a": 1}])
    source = FileSource.parquet(str(tmp_path), columns=["a", "b"])
    source.check()
    with pytest.raises(BadRecord, match="There are no columns b") as refused:
        read_all(world, source)
    assert refused.value.where == str(tmp_path / "2.parquet")


@pytest.mark.parametrize(
    ("make", "where", "found"),
    [
        (lambda: FileSink.parquet("out", compression="zsdt"), "FileSink.parquet", "'zsdt'"),
        (lambda: FileSink.csv("out", delimiter=";;"), "FileSink.csv", "';;'"),
        (lambda: FileSource.csv("in", delimiter="||"), "FileSource.csv", "'||'"),
        (lambda: FileSource.csv("in", delimiter=""), "FileSource.csv", "''"),
    ],
)
def test_a_setting_that_is_none_is_refused_where_it_is_written(
    make: Callable[[], object], where: str, found: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(found)) as refused:
        make()
    assert refused.value.where == where
    for compression in ("ZSTD", "none", "snappy"):
        assert FileSink.parquet("out", compression=compression).part_bytes
