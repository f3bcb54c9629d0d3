"""One ordered key space on the local disk, the only place that knows RocksDB.

Keys begin with the key group, two bytes, so that a range of key groups is a range of keys: it is
cut off by one range deletion and read by one scan. All states of an operator share the key space;
a column family each makes eight files where this makes one, and flushes two to three times as
long (docs/design/state-on-disk.md). There is no write-ahead log: a crash goes back to a checkpoint.
"""

from __future__ import annotations

import shutil
from collections import deque
from contextlib import contextmanager, suppress
from itertools import islice, repeat
from operator import setitem
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from flinkformat.frozen import frozen
from flinkformat.state.manifest import CURRENT, check_folder
from tidegate.errors import ConfigError, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence
    from pathlib import Path

    from tidegate.model.settings import RocksDBSettings

Slice = tuple[list[bytes], list[bytes]]
"""Keys of some entries, and their values."""

_PREFIX: Final = Struct(">HH")
PREFIX_BYTES: Final = _PREFIX.size

_END: Final = b"\xff" * 8
"""Behind every key: key groups are below 2^15."""

_WRITING: Final = ("written", "flushed")
_NAMED_MAX: Final = 64
_SKIPPED_MAX: Final = 16
"""Deleted keys that are passed over in the search for some that may not be there."""


class RocksDBMemory:
    """The memory that all key spaces of a slot share: one block cache, write buffers included."""

    def __init__(self, settings: RocksDBSettings) -> None:
        rocksdict = _library()
        self.settings = settings
        self.cache = rocksdict.Cache(settings.memory_bytes)
        self._opened = 0
        buffers = int(settings.memory_bytes * settings.write_buffer_ratio)
        self.write_buffers = rocksdict.WriteBufferManager.new_write_buffer_manager_with_cache(
            buffers, False, self.cache
        )

    def entries_max(self) -> int:
        """Entries that one key space may keep as Python values, by how many are open now."""
        return self.settings.cache_entries // max(1, self._opened)

    def count(self, opened: int) -> None:
        self._opened += opened


@frozen
class Rows:
    """Rows to be written together. cleared: prefixes of keys that are deleted before all else."""

    puts: Sequence[tuple[bytes, bytes]]
    deletes: Sequence[bytes]
    cleared: Sequence[bytes] = ()


@frozen
class Batch:
    """Entries that are written together. raw: of the library. cleared: as in `Rows`."""

    raw: Any
    rows: int
    cleared: Sequence[bytes]


class RocksDBStore:
    """A key space in a folder of its own; what is there already is kept.

    read_only: nothing is written, nor tidied up. Reads may run while another thread writes. Every
    method raises StorageFailed with what the library says. lost: what it said as it first could not
    write; it never writes again after that, though the disk may have room again. Raises FormatError
    for a folder whose files do not belong together.
    """

    lost: StorageFailed | None = None

    def __init__(self, folder: Path, memory: RocksDBMemory, *, read_only: bool = False) -> None:
        self._library = library = _library()
        self._memory = memory
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / CURRENT).exists():
            # RocksDB may wait for ever over damaged files, where no signal reaches it.
            check_folder(folder, str(folder))
        with self._failing("opened"):
            access = library.AccessType
            access = access.read_only() if read_only else access.read_write()
            self._db = library.Rdict(str(folder), self._options(), access_type=access)
            unlogged = self._library.WriteOptions()
            unlogged.disable_wal = True
            self._db.set_write_options(unlogged)
            self._unlogged = unlogged
        memory.count(1)

    def figure(self, name: str) -> int | None:
        """A property of RocksDB's by its name; None if there is no such number."""
        # Who asks is on another thread, and may come when the key space is closed.
        with suppress(Exception):
            return self._db.property_int_value(name)

    def get(self, key: bytes) -> bytes | None:
        with self._failing("read"):
            return self._db.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Value of each key; fastest if the keys are in order."""
        with self._failing("read"):
            return self._db.get(list(keys))

    def batch(self, rows: Rows) -> Batch:
        raw = self._library.WriteBatch(raw_mode=True)
        put, delete = raw.put, raw.delete
        for key, value in rows.puts:
            put(key, value)
        for key in rows.deletes:
            delete(key)
        count = len(rows.puts) + len(rows.deletes) + len(rows.cleared)
        return Batch(raw, count, rows.cleared)

    def write(self, batch: Batch) -> None:
        if batch.cleared:
            self._clear(sorted(batch.cleared))
        with self._failing("written"):
            self._db.write(batch.raw, self._unlogged)

    def _clear(self, prefixes: Sequence[bytes]) -> None:
        """Delete all keys with these prefixes; few by name, since each read looks at all ranges."""
        names: list[bytes] = []
        found = self.first_of(prefixes, _NAMED_MAX + 1)
        for prefix, entries in zip(prefixes, found, strict=True):
            if len(entries) > _NAMED_MAX:
                self.delete_range(prefix, after(prefix))
            else:
                names += [name for name, _ in entries]
        if names:
            self.write(self.batch(Rows((), names)))

    def delete_range(self, first: bytes, end: bytes | None) -> None:
        """Deletes the keys from ``first`` up to ``end`` (exclusive); None deletes all after it."""
        with self._failing("written"):
            self._db.delete_range(first, end or _END, self._unlogged)

    def scan(self, first: bytes, end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Entries from ``first`` up to ``end``, in order, as of the call."""
        options = self._library.ReadOptions()
        options.set_iterate_upper_bound(end or _END)
        with self._failing("read"):
            yield from self._db.items(from_key=first, read_opt=options)

    def first_of(self, prefixes: Sequence[bytes], rows: int) -> Iterator[list[tuple[bytes, bytes]]]:
        """The first entries of each prefix, at most so many; quickest where they are in order."""
        options = self._library.ReadOptions()
        options.set_max_skippable_internal_keys(_SKIPPED_MAX)
        with self._failing("read"):
            entries = self._db.iter(options)
            for prefix in prefixes:
                entries.seek(prefix)
                found: list[tuple[bytes, bytes]] = []
                while len(found) < rows and entries.valid():
                    key = entries.key()
                    if not key.startswith(prefix):
                        break
                    found.append((key, entries.value()))
                    entries.next()
                if len(found) < rows and not entries.valid():
                    # It is at the end, or has given up: here it must not look any further.
                    found = list(islice(self.scan(prefix, after(prefix)), rows))
                yield found

    def slices(
        self, first: bytes, end: bytes, rows: int, *, cached: bool = False
    ) -> Iterator[Slice]:
        """Keys and values from ``first`` up to ``end``, so many at a time.

        cached: whether blocks that are read stay in memory.
        """
        options = self._library.ReadOptions()
        options.set_iterate_upper_bound(end)
        options.fill_cache(cached)
        with self._failing("read"):
            entries = self._db.items(from_key=first, read_opt=options)
            while some := list(islice(entries, rows)):
                yield [key for key, _ in some], [value for _, value in some]

    def ingest(self, slices: Iterable[Slice], scratch: Path) -> None:
        """Take in many entries, in order and where no others are.

        scratch: a new folder for files that become part of the key space; on the same disk.
        """
        rest, files = (each for each in slices if each[0]), list[str]()
        scratch.mkdir()
        try:
            for first in rest:
                files.append(str(scratch / f"{len(files)}.sst"))
                self._write_file(files[-1], first, rest)
            if files:
                options = self._library.IngestExternalFileOptions()
                options.set_move_files(True)
                with self._failing("written"):
                    self._db.ingest_external_file(files, options)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _write_file(self, file: str, first: Slice, more: Iterator[Slice]) -> None:
        """A file of these and more entries, as large as the key space's own files."""
        with self._failing("written"):
            writer = self._library.SstFileWriter(self._options())
            writer.open(file)
        some: Slice | None = first
        while some is not None:
            with self._failing("written"):
                deque(map(setitem, repeat(writer), *some), maxlen=0)
                full = writer.file_size() >= self._memory.settings.target_file_bytes
            some = None if full else next(more, None)
        with self._failing("written"):
            writer.finish()

    def flush(self) -> None:
        with self._failing("flushed"):
            self._db.flush()

    def link(self, folder: Path) -> None:
        """Makes hard links to all files in a new folder; quick after `flush`."""
        with self._failing("linked"):
            self._library.Checkpoint(self._db).create_checkpoint(str(folder))
        # The log is empty, and the options are those that the key space is opened with.
        for needless in (*folder.glob("*.log"), *folder.glob("OPTIONS-*")):
            needless.unlink()

    def close(self) -> None:
        self._memory.count(-1)
        with self._failing("closed"):
            self._db.close()

    def destroy(self) -> None:
        """Closes the key space and deletes the folder."""
        with suppress(StorageFailed):  # what it could not write is not needed
            self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _options(self) -> Any:
        library, settings = self._library, self._memory.settings
        table = library.BlockBasedOptions()
        table.set_block_cache(self._memory.cache)
        table.set_block_size(settings.block_bytes)
        table.set_cache_index_and_filter_blocks(True)
        table.set_pin_l0_filter_and_index_blocks_in_cache(True)
        if settings.bloom_bits:
            table.set_bloom_filter(settings.bloom_bits, False)
        options = library.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(table)
        options.set_write_buffer_manager(self._memory.write_buffers)
        options.set_write_buffer_size(settings.write_buffer_bytes)
        options.set_max_write_buffer_number(settings.write_buffer_count)
        options.set_max_background_jobs(settings.threads)
        options.set_max_open_files(settings.files_open)
        options.set_max_bytes_for_level_base(settings.level_base_bytes)
        options.set_target_file_size_base(settings.target_file_bytes)
        options.set_level_compaction_dynamic_level_bytes(settings.dynamic_level_size)
        options.set_compaction_style(_COMPACTIONS[settings.compaction_style](library))
        options.set_disable_auto_compactions(settings.compaction_style == "NONE")
        levels = [_COMPRESSIONS[name](library) for name in settings.compression]
        options.set_compression_per_level(levels)
        options.set_compression_type(levels[-1])
        options.set_keep_log_file_num(1)
        options.set_max_log_file_size(1 << 20)
        options.set_stats_dump_period_sec(0)
        options.set_use_fsync(False)
        return options

    @contextmanager
    def _failing(self, done: str) -> Generator[None, None, None]:
        try:
            yield
        except StorageFailed:
            raise
        except Exception as error:
            failure = StorageFailed(
                f"State on the local disk can't be {done}: {error}",
                where=str(self.folder),
                remedy="Check that the disk is mounted and has room "
                "(state.backend.rocksdb.localdir says which); the job resumes from its last "
                "checkpoint.",
            )
            if done in _WRITING:
                self.lost = self.lost or failure
            raise failure from error


_COMPACTIONS: Final[dict[str, Any]] = {
    "LEVEL": lambda library: library.DBCompactionStyle.level(),
    "UNIVERSAL": lambda library: library.DBCompactionStyle.universal(),
    "NONE": lambda library: library.DBCompactionStyle.level(),
}
_COMPRESSIONS: Final[dict[str, Any]] = {
    "NO_COMPRESSION": lambda library: library.DBCompressionType.none(),
    "SNAPPY_COMPRESSION": lambda library: library.DBCompressionType.snappy(),
    "LZ4_COMPRESSION": lambda library: library.DBCompressionType.lz4(),
    "ZSTD": lambda library: library.DBCompressionType.zstd(),
}


def _library() -> Any:
    try:
        import rocksdict
    except ImportError as error:
        raise ConfigError(
            "The RocksDB state backend needs the package 'rocksdict', which is not installed",
            where="option state.backend.type",
            remedy="Install it on the driver and on every worker: pip install 'tidegate[rocksdb]'.",
        ) from error
    return rocksdict


def after(prefix: bytes) -> bytes:
    """The first key after all keys with a prefix."""
    return (int.from_bytes(prefix) + 1).to_bytes(len(prefix))


def prefix_of(group: int, number: int = 0) -> bytes:
    """Prefix of a state's keys in a key group; for the first state, that of the group."""
    return _PREFIX.pack(group, number)
