"""Parts of a snapshot as zstd makes them smaller; releases the interpreter meanwhile.

zstd at its lowest level makes records of texts a seventh of their size at 300 MB a second, lz4 and
Flink's snappy a quarter at twice that (benchmarks/state_bench.py); pairs of numbers become three
quarters with it and stay as they are with the others.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from tidegate.errors import FormatError

_CODEC: Final = pa.Codec("zstd", compression_level=1)


def compressed(data: bytes) -> bytes:
    """Compresses data to one zstd frame, which may be longer."""
    return _CODEC.compress(data, asbytes=True)


def decompressed(data: memoryview, size: int, where: str) -> memoryview:
    """Decompresses to exactly this size. Raises FormatError for any other bytes."""
    try:
        return memoryview(_CODEC.decompress(data, decompressed_size=size, asbytes=True))
    except (pa.ArrowException, OSError, OverflowError, MemoryError, ValueError) as error:
        raise FormatError(
            f"A compressed part of state can't be read: {error}",
            where=where,
            remedy="Restore from another checkpoint; this one is damaged.",
            expected=f"a zstd frame of {size} bytes",
            found=f"{len(data)} bytes",
        ) from error
