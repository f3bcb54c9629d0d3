"""The RocksDB state backend: its options, and the settings made of them."""

from __future__ import annotations

from typing import Final

from tidegate.config.option import ConfigOption, ReadableConfig
from tidegate.config.values import (
    BooleanType,
    ChoiceType,
    IntegerType,
    ListType,
    MemoryType,
    NumberType,
)
from tidegate.errors import ConfigError
from tidegate.model.settings import RocksDBSettings

_MIB: Final = 1 << 20
_BYTES: Final = MemoryType()
COMPRESSIONS: Final = ("NO_COMPRESSION", "SNAPPY_COMPRESSION", "LZ4_COMPRESSION", "ZSTD")

MEMORY: Final = ConfigOption(
    "state.backend.rocksdb.memory.fixed-per-slot",
    _BYTES,
    256 * _MIB,
    "Memory of a slot for cached blocks and write buffers, over all its states.",
    differs="there is no managed memory to take a share of",
)
WRITE_BUFFER_RATIO: Final = ConfigOption(
    "state.backend.rocksdb.memory.write-buffer-ratio",
    NumberType(at_least=0.05, at_most=0.95),
    0.5,
    "Share of that memory for write buffers.",
)
CACHE_ENTRIES: Final = ConfigOption(
    "tidegate.state.rocksdb.cache-entries",
    IntegerType(at_least=1_000),
    200_000,
    "Number of recently used entries of a slot that are kept as Python values in front of "
    "RocksDB; each entry of a map and element of a list counts. While a checkpoint is written, "
    "entries just written may be up to four times as many.",
)
BLOCK_SIZE: Final = ConfigOption(
    "state.backend.rocksdb.block.blocksize", _BYTES, 4096, "Size of the blocks of a file."
)
WRITE_BUFFER_SIZE: Final = ConfigOption(
    "state.backend.rocksdb.writebuffer.size",
    _BYTES,
    64 * _MIB,
    "Bytes that are collected in memory before they become a file.",
)
WRITE_BUFFER_COUNT: Final = ConfigOption(
    "state.backend.rocksdb.writebuffer.count",
    IntegerType(at_least=1),
    2,
    "Number of write buffers; all but one may be waiting to become a file.",
)
COMPACTION_STYLE: Final = ConfigOption(
    "state.backend.rocksdb.compaction.style",
    ChoiceType(("LEVEL", "UNIVERSAL", "NONE")),
    "LEVEL",
    "How files are merged in the background.",
)
LEVEL_BASE: Final = ConfigOption(
    "state.backend.rocksdb.compaction.level.max-size-level-base",
    _BYTES,
    256 * _MIB,
    "Size of the first level of files.",
)
TARGET_FILE_SIZE: Final = ConfigOption(
    "state.backend.rocksdb.compaction.level.target-file-size-base",
    _BYTES,
    64 * _MIB,
    "Size of the files of the first level.",
)
DYNAMIC_LEVEL_SIZE: Final = ConfigOption(
    "state.backend.rocksdb.compaction.level.use-dynamic-size",
    BooleanType(),
    False,
    "Size the levels from the last one up, so that fewer bytes are stored twice.",
)
COMPRESSION: Final = ConfigOption(
    "state.backend.rocksdb.compression.per.level",
    ListType(),
    ("SNAPPY_COMPRESSION",),
    "Compression of files for each level; the last one holds for all deeper levels. One of "
    f"{', '.join(COMPRESSIONS)}.",
)
USE_BLOOM_FILTER: Final = ConfigOption(
    "state.backend.rocksdb.use-bloom-filter",
    BooleanType(),
    True,
    "Keep a filter for each file, so that missing keys are rarely searched on disk.",
    differs="the first record of every key looks for a missing entry",
)
BLOOM_BITS: Final = ConfigOption(
    "state.backend.rocksdb.bloom-filter.bits-per-key",
    NumberType(at_least=1, at_most=64),
    10.0,
    "Bits of the filter for each key.",
)
THREADS: Final = ConfigOption(
    "state.backend.rocksdb.thread.num",
    IntegerType(at_least=1),
    2,
    "Number of threads of a key space that flush and merge files.",
)
FILES_OPEN: Final = ConfigOption(
    "state.backend.rocksdb.files.open",
    IntegerType(at_least=-1),
    -1,
    "Number of files that one key space keeps open; -1 for all.",
)
OPTIONS: Final[tuple[ConfigOption[object], ...]] = (
    MEMORY,
    WRITE_BUFFER_RATIO,
    CACHE_ENTRIES,
    BLOCK_SIZE,
    WRITE_BUFFER_SIZE,
    WRITE_BUFFER_COUNT,
    COMPACTION_STYLE,
    LEVEL_BASE,
    TARGET_FILE_SIZE,
    DYNAMIC_LEVEL_SIZE,
    COMPRESSION,
    USE_BLOOM_FILTER,
    BLOOM_BITS,
    THREADS,
    FILES_OPEN,
)


def rocksdb_settings(configuration: ReadableConfig) -> RocksDBSettings:
    compression = configuration.get(COMPRESSION)
    unknown = [name for name in compression if name not in COMPRESSIONS]
    if unknown or not compression:
        raise ConfigError(
            f"There is no compression '{unknown[0]}'" if unknown else "No compression is named",
            where=configuration.where_set(COMPRESSION),
            remedy=f"Set {COMPRESSION.key} to some of {', '.join(COMPRESSIONS)}.",
        )
    bits = configuration.get(BLOOM_BITS) if configuration.get(USE_BLOOM_FILTER) else 0.0
    return RocksDBSettings(
        memory_bytes=configuration.get(MEMORY),
        write_buffer_ratio=configuration.get(WRITE_BUFFER_RATIO),
        cache_entries=configuration.get(CACHE_ENTRIES),
        block_bytes=configuration.get(BLOCK_SIZE),
        write_buffer_bytes=configuration.get(WRITE_BUFFER_SIZE),
        write_buffer_count=configuration.get(WRITE_BUFFER_COUNT),
        compaction_style=configuration.get(COMPACTION_STYLE),
        level_base_bytes=configuration.get(LEVEL_BASE),
        target_file_bytes=configuration.get(TARGET_FILE_SIZE),
        dynamic_level_size=configuration.get(DYNAMIC_LEVEL_SIZE),
        compression=compression,
        bloom_bits=round(bits),
        threads=configuration.get(THREADS),
        files_open=configuration.get(FILES_OPEN),
    )
