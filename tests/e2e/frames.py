"""Something to be staged for a source, without Spark; it tells who wrote it, and when."""

import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.errors import JobCanceled


class Numbers:
    """Writes a column of numbers as Parquet files, ``files`` of them: a ``Staged``.

    before: called at the beginning of each write. ``cancelled``: set by the first cancel.
    """

    def __init__(
        self,
        rows: int,
        *,
        files: int = 4,
        root: Path | None = None,
        before: Callable[[], object] = lambda: None,
    ) -> None:
        self._rows = rows
        self._files = files
        self._root = root
        self._before = before
        self.written: list[Path] = []
        self.cancelled = threading.Event()

    def root(self, checkpoints: str | None) -> str:
        return str(self._root) if self._root is not None else checkpoints or ""

    def write(self, folder: str) -> None:
        self._before()
        place = Path(folder)
        place.mkdir(parents=True)
        self.written.append(place)
        for file in range(self._files):
            numbers = pa.array(range(file, self._rows, self._files), pa.int64())
            pq.write_table(pa.table({"n": numbers}), place / f"part-{file}.parquet")

    def cancel(self) -> None:
        self.cancelled.set()


class Endless(Numbers):
    """Writes until it is cancelled. ``began``: set once it does."""

    def __init__(self, root: Path) -> None:
        super().__init__(0, root=root, before=self._wait)
        self.began = threading.Event()

    def _wait(self) -> None:
        self.began.set()
        assert self.cancelled.wait(timeout=30)
        raise JobCanceled("the write was cancelled")
