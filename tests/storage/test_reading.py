"""What a subtask starts from is checked whole, and mapped where it lies on this machine."""

from mmap import mmap
from pathlib import Path

import pytest

from flinkformat.handles import StreamStateHandle
from tests.state.files_world import SETTINGS, Driver, merging
from tidegate.errors import FormatError, RestoreRefused
from tidegate.model.settings import CheckpointSettings
from tidegate.storage.places import CheckpointScope

DATA = bytes(range(256)) * 33_000


def written(driver: Driver, data: bytes = DATA) -> StreamStateHandle:
    place = driver.place(1)
    handle = place.write([data], CheckpointScope.EXCLUSIVE)
    driver.checksums.update(place.checksums)
    return handle


def on(folder: Path) -> Driver:
    return Driver(CheckpointSettings(storage="filesystem", directory=str(folder / "checkpoints")))


@pytest.mark.parametrize("spill", [False, True])
def test_a_file_of_this_machine_is_looked_at_where_it_is(tmp_path: Path, spill: bool) -> None:
    driver = on(tmp_path)
    handle = written(driver)
    view = driver.reader().view(handle, (lambda: tmp_path / "new") if spill else None)
    assert isinstance(view.obj, mmap)
    Path(handle.physical_id).unlink()
    assert view == DATA
    assert not (tmp_path / "new").exists()


def test_each_state_of_a_merged_file_is_checked_by_itself() -> None:
    driver = Driver(merging())
    place = driver.place(1)
    first, second = (
        place.write([data], CheckpointScope.EXCLUSIVE) for data in (b"1" * 99, b"2" * 99)
    )
    place.close()
    driver.checksums.update(place.checksums)
    [file] = driver.world.files
    driver.world.files[file] = b"1" * 99 + b"2" * 98 + b"3"
    assert driver.reader().read(first) == b"1" * 99
    with pytest.raises(FormatError, match="is not as it was written"):
        driver.reader().read(second)
    # Older checkpoints say the checksum of the file alone.
    driver.checksums = {file: driver.checksums[file]}
    assert driver.reader().read(second) == b"2" * 98 + b"3"


@pytest.mark.parametrize("data", [b"in the handle", DATA])
def test_what_is_no_file_of_this_machine_is_looked_at_in_memory(data: bytes) -> None:
    driver = Driver(SETTINGS)
    assert driver.reader().view(written(driver, data)) == data


def test_what_is_no_file_of_this_machine_can_be_looked_at_in_a_file_without_a_name(
    tmp_path: Path,
) -> None:
    driver = Driver(SETTINGS)
    view = driver.reader().view(written(driver), lambda: tmp_path / "new")
    assert isinstance(view.obj, mmap) and view == DATA
    assert not list(tmp_path.iterdir())


def test_a_small_file_is_not_kept_open(tmp_path: Path) -> None:
    driver = on(tmp_path)
    view = driver.reader().view(written(driver, DATA[: 1 << 20]))
    assert isinstance(view.obj, bytes) and view == DATA[: 1 << 20]


def test_nothing_is_looked_at_before_all_of_it_was_checked(tmp_path: Path) -> None:
    driver, target = on(tmp_path), tmp_path / "target"
    handle = written(driver)
    file, reader = Path(handle.physical_id), driver.reader()
    file.write_bytes(DATA[:-1] + b"x")
    with pytest.raises(FormatError, match="is not as it was written"):
        reader.view(handle)
    file.write_bytes(DATA[:-1])
    with pytest.raises(RestoreRefused, match="were written"):
        reader.view(handle)
    file.unlink()
    for new_file in (None, lambda: target):
        with pytest.raises(RestoreRefused, match="is missing"):
            reader.view(handle, new_file)
    assert not target.exists()


def test_a_copy_has_all_bytes(tmp_path: Path) -> None:
    driver, target = on(tmp_path), tmp_path / "target"
    driver.reader().copy(written(driver), target)
    assert target.read_bytes() == DATA and not target.is_symlink()
