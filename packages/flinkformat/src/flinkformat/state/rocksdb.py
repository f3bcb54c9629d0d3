"""Keyed state as files of Flink's RocksDB backend, opened as the database that they are.

Layout: docs/formats/flink-state.md, section 5.
"""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from array import array
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from flinkformat.errors import ConfigError, FormatError
from flinkformat.metadata.wire import Reader
from flinkformat.state import rocksdb_process
from flinkformat.state.entries import Pairs, merged
from flinkformat.state.manifest import check_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from flinkformat.files import StateBytes
    from flinkformat.handles import IncrementalRemoteKeyedStateHandle
    from flinkformat.key_groups import KeyGroupRange
    from flinkformat.state.entries import FlinkEntry, PairRead
    from flinkformat.state.headers import FlinkKeyedHeader, FlinkState


ANSWER_MAX_S: Final = 30
"""How long RocksDB may take to open a folder, and to read some pairs of it."""

_END_MAX_S: Final = 30
_CODE: Final = (
    "import json, sys\n"
    "sys.path[:] = json.loads(sys.argv[1])\n"
    "from flinkformat.state.rocksdb_process import serve\n"
    "serve(*json.loads(sys.argv[2]))\n"
)


def rocksdb_entries(
    header: FlinkKeyedHeader,
    max_parallelism: int,
    handle: IncrementalRemoteKeyedStateHandle,
    reader: StateBytes,
) -> Iterator[FlinkEntry]:
    """Entries of the handle's key groups, state by state. Raises FormatError.

    The files are copied to a temporary folder of this machine as long as they are read. Raises
    ConfigError where the library for RocksDB is missing, RestoreRefused where a file is.
    """
    _refuse_without_library()
    files = (*handle.shared_state, *handle.private_state)
    with TemporaryDirectory(prefix="flinkformat-") as folder:
        for file in files:
            if Path(file.local_path).name != file.local_path or "\0" in file.local_path:
                raise FormatError(
                    "A file of a database has a name that no file can have",
                    where=reader.where,
                    expected="the name of a file",
                    found=file.local_path[:100],
                )
            reader.copy(file.handle, Path(folder, file.local_path))
        places = {file.local_path: file.handle.physical_id for file in files}
        check_folder(Path(folder), reader.where)
        families = [state.name for state in header.states]
        with closing(_Database(folder, families, places, reader.where)) as database:
            pairs = Pairs(header.key, max_parallelism)
            for state in header.states:
                yield from merged(_pairs(database, pairs, state, handle.key_groups, reader.where))


def _pairs(
    database: _Database, pairs: Pairs, state: FlinkState, key_groups: KeyGroupRange, where: str
) -> Iterator[PairRead]:
    where = f"{where}, state '{state.name}'"
    for number, (key, value) in enumerate(database.pairs()):
        inside = f"{where}, pair {number}"
        part = pairs.read(state, Reader(key, f"{inside}, key"), Reader(value, f"{inside}, value"))
        # After a rescale files hold key groups of other subtasks too, until they are rewritten.
        if part.entry.key_group in key_groups:
            yield part


class _Database:
    """A RocksDB folder, read by a process of its own. places: of its files in the snapshot."""

    def __init__(
        self, folder: str, families: Sequence[str], places: Mapping[str, str], where: str
    ) -> None:
        self._folder = folder
        self._places = places
        self._where = where
        arguments = [folder, families, ANSWER_MAX_S]
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", "-c", _CODE),
                *(json.dumps(sys.path), json.dumps(arguments)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        while texts := self._frame():
            yield from zip(texts[::2], texts[1::2], strict=True)

    def _frame(self) -> list[bytes]:
        count, total = rocksdb_process.FRAME.unpack(self._read(rocksdb_process.FRAME.size))
        sizes = array(rocksdb_process.SIZES)
        sizes.frombytes(self._read(count * sizes.itemsize))
        data = self._read(total)
        ends = [0, *itertools.accumulate(sizes)]
        texts = [data[begin:end] for begin, end in itertools.pairwise(ends)]
        if count == rocksdb_process.ERROR:
            raise self._failed(texts[0].decode(errors="replace"))
        return texts

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None, "it is a pipe"
        data = self._process.stdout.read(size)
        if len(data) < size:
            raise self._failed(self._how())
        return data

    def _how(self) -> str:
        signalled = -self._process.wait(_END_MAX_S)
        if signalled == signal.SIGALRM:
            return f"RocksDB has given no answer for {ANSWER_MAX_S} s"
        if signalled > 0:
            return f"RocksDB has ended its process by {signal.Signals(signalled).name}"
        return f"the process that reads them has ended with {-signalled}"

    def close(self) -> None:
        with self._process:
            self._process.kill()

    def _failed(self, cause: str) -> FormatError:
        named = [place for name, place in self._places.items() if f"/{name}" in cause]
        cause = cause.replace(f"{self._folder}/", "")
        return FormatError(
            f"The files of a RocksDB state backend can't be read: {cause}",
            where=", ".join([self._where, *named]),
            remedy="Take a savepoint in canonical form, or another checkpoint.",
            expected="a folder of RocksDB with a column family for each state",
            found=cause[:300],
        )


def _refuse_without_library() -> None:
    if find_spec("rocksdict") is None:
        raise ConfigError(
            "State of Flink's RocksDB backend needs the package 'rocksdict', which is not "
            "installed",
            where="reading a snapshot of Flink",
            remedy="pip install 'flinkformat[rocksdb]', or take a savepoint in canonical form.",
        )
