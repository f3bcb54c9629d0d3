"""Keyed state as files of Flink's RocksDB backend, opened as the database that they are.

Layout: docs/formats/flink-state.md, section 5.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tidegate.checkpoint.metadata.wire import Reader
from tidegate.errors import ConfigError, FormatError
from tidegate.savepoints.flink.entries import Pairs, merged
from tidegate.state.rocksdb.manifest import check_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.model.handles import IncrementalRemoteKeyedStateHandle
    from tidegate.model.key_groups import KeyGroupRange
    from tidegate.savepoints.flink.entries import FlinkEntry, PairRead
    from tidegate.savepoints.flink.headers import FlinkKeyedHeader, FlinkState
    from tidegate.storage.reading import StateReader


def rocksdb_entries(
    header: FlinkKeyedHeader,
    max_parallelism: int,
    handle: IncrementalRemoteKeyedStateHandle,
    reader: StateReader,
) -> Iterator[FlinkEntry]:
    """The entries of the handle's key groups, state by state; raises FormatError.

    The files are copied to a temporary folder of this machine as long as they are read. Raises
    ConfigError where the library for RocksDB is missing, RestoreRefused where a file is.
    """
    library = _library()
    with TemporaryDirectory(prefix="tidegate-flink-") as folder:
        for file in (*handle.shared_state, *handle.private_state):
            if Path(file.local_path).name != file.local_path:
                raise FormatError(
                    "A file of a database has a name that is a path",
                    where=reader.where,
                    expected="the name of a file",
                    found=file.local_path[:100],
                )
            reader.copy(file.handle, Path(folder, file.local_path))
        # RocksDB may wait for ever over a damaged manifest, where no signal reaches it.
        check_folder(Path(folder), reader.where)
        database = _Database(library, folder, reader.where)
        try:
            pairs = Pairs(header.key, max_parallelism)
            for state in header.states:
                yield from merged(_pairs(database, pairs, state, handle.key_groups, reader.where))
        finally:
            database.close()


def _pairs(
    database: _Database, pairs: Pairs, state: FlinkState, key_groups: KeyGroupRange, where: str
) -> Iterator[PairRead]:
    where = f"{where}, state '{state.name}'"
    for number, (key, value) in enumerate(database.pairs(state.name)):
        inside = f"{where}, pair {number}"
        part = pairs.read(state, _reader(key, f"{inside}, key"), _reader(value, f"{inside}, value"))
        # After a rescale files hold key groups of other subtasks too, until they are rewritten.
        if part.entry.key_group in key_groups:
            yield part


def _reader(data: bytes, where: str) -> Reader:
    reader = Reader(data)
    reader.where = where
    return reader


class _Database:
    """A folder of RocksDB, to be read. Lists are merged as its own options say."""

    def __init__(self, library: Any, folder: str, where: str) -> None:
        self._where = where
        self._library = library
        try:
            options, self._families = library.Options.load_latest(folder)
            # Where Flink's database wrote its log is of no concern here.
            options.set_db_log_dir(folder)
            options.set_wal_dir(folder)
            mode = library.AccessType.read_only()
            self._database = library.Rdict(
                folder, options, column_families=self._families, access_type=mode
            )
        except Exception as error:
            raise self._failed(error) from error

    def pairs(self, family: str) -> Iterator[tuple[bytes, bytes]]:
        """All pairs of a column family in the order of their keys."""
        if family not in self._families:
            raise self._failed(f"there is no column family {family!r}")
        try:
            cursor = self._database.get_column_family(family).iter()
            cursor.seek_to_first()
            while cursor.valid():
                yield cursor.key(), cursor.value()
                cursor.next()
            # An iterator ends at an error as it does at the end.
            cursor.status()
        except FormatError:
            raise
        except Exception as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Let go of the folder."""
        self._database.close()

    def _failed(self, cause: object) -> FormatError:
        return FormatError(
            f"The files of a RocksDB state backend can't be read: {cause}",
            where=self._where,
            remedy="Take a savepoint in canonical form, or another checkpoint.",
            expected="a folder of RocksDB with a column family for each state",
            found=str(cause)[:300],
        )


def _library() -> Any:
    try:
        import rocksdict
    except ImportError as error:
        raise ConfigError(
            "State of Flink's RocksDB backend needs the package 'rocksdict', which is not there",
            where="reading a snapshot of Flink",
            remedy="pip install 'tidegate[rocksdb]', or take a savepoint in canonical form.",
        ) from error
    return rocksdict
