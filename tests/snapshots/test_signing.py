"""Savepoints that are signed: who reads them with a key takes no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from google_crc32c import value as crc32c

from tests.migration.pyflink_states import FLAGS, PYFLINK
from tests.snapshots.keys import key_in
from tidegate import fsck, migrate_savepoint, read_state
from tidegate.api.state import ValueStateDescriptor
from tidegate.cli.main import commands
from tidegate.errors import ConfigError, FormatError, RestoreRefused
from tidegate.snapshots.differences import diff_snapshots
from tidegate.snapshots.snapshot import Snapshot
from tidegate.snapshots.writing.writer import SavepointWriter
from tidegate.typeinfo.types import Types

if TYPE_CHECKING:
    from pathlib import Path

LONGS = ValueStateDescriptor("count", Types.LONG())


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return key_in(tmp_path / "key")


def written(folder: Path, key: Path | None, rows: int = 3_000) -> Path:
    """A savepoint whose state is in a file."""
    writer = SavepointWriter.new_savepoint()
    counts = {f"key {n}": n for n in range(rows)}
    writer.put_state("counts", LONGS, counts, key_type=Types.STRING()).write(folder, key_file=key)
    return folder


def state_file(folder: Path) -> Path:
    [file] = [file for file in folder.iterdir() if file.name != "_metadata"]
    return file


def forge(folder: Path) -> None:
    """Change state, and every checksum that needs no key."""
    file, metadata = state_file(folder), folder / "_metadata"
    before = file.read_bytes()
    old = str(crc32c(before)).encode()
    changes = (before[:-3] + bytes([byte]) + before[-2:] for byte in range(256))
    after, new = next(
        (each, new)
        for each in changes
        for new in [str(crc32c(each)).encode()]
        if each != before and len(new) == len(old)
    )
    data = metadata.read_bytes().replace(old, new)
    at = data.index(b'"crc32c":"') + 10
    data = data[:at] + b"0" * 8 + data[at + 8 :]
    file.write_bytes(after)
    metadata.write_bytes(data[:at] + f"{crc32c(data):08x}".encode() + data[at + 8 :])


def test_a_signed_savepoint_is_read_with_its_key_and_without(tmp_path: Path, key: Path) -> None:
    made = written(tmp_path / "made", key)
    for given in (key, None):
        table = read_state(made, "counts", "count", key="key 7", key_file=given)
        assert [row.value for row in table.rows()] == [7]
    assert fsck(made, key_file=key).healthy and fsck(made).healthy
    assert diff_snapshots(made, made, key_file=key).same


def test_an_unsigned_one_is_refused_until_somebody_signs_it(tmp_path: Path, key: Path) -> None:
    made = written(tmp_path / "made", None)
    with pytest.raises(RestoreRefused, match="is not signed") as told:
        Snapshot.open(made, key_file=key)
    assert str(made) in told.value.where
    with pytest.raises(RestoreRefused, match="is not signed"):
        SavepointWriter.from_existing(made, key_file=key)
    report = fsck(made, key_file=key)
    assert [each.fault.value for each in report.findings] == ["not signed"]
    signed = SavepointWriter.from_existing(made).write(tmp_path / "signed", key_file=key)
    assert [row.value for row in Snapshot.open(signed, key_file=key).rows("counts", "count")]
    with pytest.raises(RestoreRefused, match="with this key"):
        Snapshot.open(signed, key_file=key_in(tmp_path / "other", "another key, another key"))


def test_forged_state_is_refused_although_its_checksums_fit(tmp_path: Path, key: Path) -> None:
    made = written(tmp_path / "made", key)
    forge(made)
    Snapshot.open(made)
    with pytest.raises(RestoreRefused, match="was changed since"):
        Snapshot.open(made, key_file=key)
    assert "not signed" in {each.fault.value for each in fsck(made, key_file=key).findings}


def test_a_file_in_the_place_of_a_signed_one_is_refused(tmp_path: Path, key: Path) -> None:
    made, other = written(tmp_path / "made", key), written(tmp_path / "other", key)
    _, cut = state_file(made), state_file(other).read_bytes()
    state_file(made).write_bytes(cut[:-3] + bytes([cut[-3] ^ 1]) + cut[-2:])
    with pytest.raises(FormatError, match="not as it was written") as told:
        Snapshot.open(made, key_file=key)
    assert "SHA-256" in told.value.expected
    assert not fsck(made, key_file=key).healthy


def test_a_migrated_savepoint_is_signed(tmp_path: Path, key: Path) -> None:
    migrate_savepoint(PYFLINK, tmp_path / "made", key_file=key)
    assert Snapshot.open(tmp_path / "made", key_file=key).operators
    args = ["migrate", str(PYFLINK), str(tmp_path / "by-command"), *FLAGS, "--key-file", str(key)]
    CliRunner().invoke(commands, args)
    for command in ("fsck", "diff"):
        places = [str(tmp_path / "by-command")] * (2 if command == "diff" else 1)
        shown = CliRunner().invoke(commands, [command, *places, "--key-file", str(key)])
        assert shown.exit_code == 0, shown.output


def test_a_key_that_others_may_read_or_guess_is_none(tmp_path: Path) -> None:
    made = written(tmp_path / "made", None, rows=1)
    key = key_in(tmp_path / "key")
    key.chmod(0o644)
    with pytest.raises(ConfigError, match="Other users may read the key"):
        Snapshot.open(made, key_file=key)
    with pytest.raises(ConfigError, match="can be guessed"):
        Snapshot.open(made, key_file=key_in(tmp_path / "short", "short"))
    with pytest.raises(ConfigError, match="cannot be read"):
        Snapshot.open(made, key_file=tmp_path / "none")
