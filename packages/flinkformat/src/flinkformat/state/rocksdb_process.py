"""The other side of `rocksdb_entries`: opens Flink's RocksDB folder, and sends its pairs.

RocksDB ends its process over some damaged files, and waits for ever over others, where no signal
reaches Python. So it reads them in a process of its own, which the kernel ends in time. That begins
anew for each folder, and imports little.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
from array import array
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FRAME: Final = struct.Struct("<IQ")
"""Number of texts, bytes of all of them; their sizes (``SIZES``) and they themselves follow."""
SIZES: Final = "I"
ERROR: Final = 1
"""So many texts is what went wrong; pairs are even in number."""

_PAIRS_A_FRAME: Final = 1024
_BYTES_A_FRAME: Final = 1 << 20

_FAMILY: Final = "default"
_OPTIONS: Final = f"""[Version]
  rocksdb_version=8.10.0
  options_file_version=1.1
[DBOptions]
[CFOptions "{_FAMILY}"]
  merge_operator={{id=StringAppendTESTOperator;delimiter=,;}}
"""
"""Of Flink's options the one without which its files cannot be read: how lists are merged.

A folder's own options have no checksum, and RocksDB takes whatever stands there.
"""


def serve(folder: str, families: Sequence[str], answer_max_s: int) -> None:
    """Writes frames to standard output: for each column family its pairs, then an empty frame.

    SIGALRM ends the process where RocksDB takes longer to open the folder, or to read for a frame.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the other side
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(answer_max_s)
    try:
        for texts in _frames(folder, families):
            signal.alarm(0)  # the other side may take its time
            _tell(texts)
            signal.alarm(answer_max_s)
    except BrokenPipeError:
        os._exit(0)  # nobody reads on
    except Exception as error:
        _tell([str(error).encode()])


def _tell(texts: list[bytes]) -> None:
    sizes = array(SIZES, map(len, texts))
    out = sys.stdout.buffer
    out.write(FRAME.pack(len(texts), sum(sizes)))
    out.write(sizes.tobytes())
    out.writelines(texts)
    out.flush()


def _frames(folder: str, families: Sequence[str]) -> Iterator[list[bytes]]:
    database = _opened(folder, families)
    for family in families:
        texts: list[bytes] = []
        held = 0
        for pair in _pairs(database.get_column_family(family).iter()):
            texts += pair
            held += sum(map(len, pair))
            if len(texts) >= 2 * _PAIRS_A_FRAME or held >= _BYTES_A_FRAME:
                yield texts
                texts, held = [], 0
        if texts:
            yield texts
        yield []


def _opened(folder: str, families: Sequence[str]) -> Any:
    import rocksdict

    library: Any = rocksdict
    ours = f"{folder}/options"
    os.mkdir(ours)  # noqa: PTH102 - pathlib takes as long to import as the rest
    with open(f"{ours}/OPTIONS-000001", "w") as file:  # noqa: PTH123
        file.write(_OPTIONS)
    options, of_families = library.Options.load_latest(ours)
    return library.Rdict(
        folder,
        options,
        column_families=dict.fromkeys((_FAMILY, *families), of_families[_FAMILY]),
        access_type=library.AccessType.read_only(),
    )


def _pairs(cursor: Any) -> Iterator[tuple[bytes, bytes]]:
    cursor.seek_to_first()
    while cursor.valid():
        yield cursor.key(), cursor.value()
        cursor.next()
    cursor.status()  # it ends at an error as it does at the end
