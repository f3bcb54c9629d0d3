"""A transactional sink of the tests' own: a JSON file for each committable, made visible at once.

It is the independent witness beside ``FileSink``: files appear only by its committer, under names
that say who prepared them, and never twice.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from tidegate import Prepared, WriterContext
from tidegate.api.rows.batches import as_rows
from tidegate.errors import StorageFailed
from tidegate.model.elements import Batch
from tidegate.model.ids import CheckpointId

Rows = list[dict[str, int]]


class LedgerWriter:
    """Keeps rows until they are prepared."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._prepared = 0
        self._rows: list[object] = []

    def write(self, batch: Batch) -> None:
        self._rows.extend(as_rows(batch).values)

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        if not self._rows:
            return Prepared()
        self._prepared += 1
        name = f"{self._name}-{self._prepared}.json"
        committable = json.dumps({"name": name, "rows": self._rows}).encode()
        self._rows = []
        return Prepared((committable,))

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[bytes]:
        return ()

    def close(self) -> None:
        self._rows = []


class LedgerCommitter:
    """Makes files of committables; one that is there already is left as it is."""

    def __init__(self, folder: Path, broken_while: Path | None) -> None:
        self._folder = folder
        self._broken_while = broken_while

    def commit(self, committables: Sequence[bytes]) -> None:
        if self._broken_while is not None and self._broken_while.exists():
            raise StorageFailed("the ledger is locked", where=str(self._folder))
        self._folder.mkdir(parents=True, exist_ok=True)
        for committable in committables:
            name = json.loads(committable)["name"]
            partial = self._folder / f".{name}-{os.getpid()}-{os.urandom(4).hex()}"
            partial.write_bytes(committable)
            try:
                (self._folder / name).hardlink_to(partial)
            except FileExistsError:
                assert (self._folder / name).read_bytes() == committable, "one name, two contents"
            finally:
                partial.unlink()

    def close(self) -> None:
        pass


class LedgerSink:
    """Rows, dicts of numbers, as files in a folder; broken_while: commits fail while it exists."""

    def __init__(self, folder: Path, broken_while: Path | None = None) -> None:
        self._folder = folder
        self._broken_while = broken_while

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> LedgerWriter:
        return LedgerWriter(f"{context.job}-{context.attempt_name}")

    def committer(self) -> LedgerCommitter:
        return LedgerCommitter(self._folder, self._broken_while)


def ledger_files(folder: Path) -> list[Path]:
    """The committed files; none is ever half made."""
    return sorted(folder.glob("[!.]*.json")) if folder.exists() else []


def ledger_rows(*folders: Path) -> Rows:
    """All committed rows; a file that is in several of the folders counts once."""
    files = {file.name: file for folder in folders for file in ledger_files(folder)}
    return [row for file in files.values() for row in rows_of(file)]


def rows_of(file: Path) -> Rows:
    """The rows of one file."""
    return cast("Rows", json.loads(file.read_bytes())["rows"])
