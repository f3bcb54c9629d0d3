"""Finding files, cutting them into parts, handing the parts out."""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, cast

from tidegate.api import ship
from tidegate.connectors.files.splits import FileFormat, FileSplit
from tidegate.errors import ConfigError, RestoreRefused
from tidegate.storage import paths
from tidegate.storage.store import FileInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidegate.api.source import EnumeratorContext
    from tidegate.model.ids import CheckpointId
    from tidegate.storage.stores import Stores

PART_BYTES_MIN: Final = 1 << 20
PART_BYTES_MAX: Final = 128 << 20
_PARTS_PER_READER: Final = 4
_GIVEN_MAX: Final = 16
_HIDDEN: Final = (".", "_")
_WILD: Final = "*?["
_DIGEST_BYTES: Final = 12


@dataclass(slots=True)
class EnumeratorState:
    """State of the enumerator in a checkpoint.

    left: parts that nobody was given. seen: digests of the paths of files that were cut; only
    where a folder is looked at again. cut: how many parts there were. schema: found in the first
    file. done: the search is over.
    """

    left: deque[FileSplit] = field(default_factory=lambda: deque[FileSplit]())
    seen: set[bytes] = field(default_factory=lambda: set[bytes]())
    cut: int = 0
    schema: bytes | None = None
    done: bool = False


class FileEnumerator:
    """Looks for files once or repeatedly, and gives their parts to readers that ask.

    interval_ms: time between two looks; None looks once. A file is known by its path: it has to
    appear whole, and what is appended later is not read.
    """

    def __init__(
        self,
        context: EnumeratorContext[FileSplit],
        stores: Stores,
        locations: Sequence[str],
        file_format: FileFormat,
        interval_ms: int | None,
        restored: bytes | None,
    ) -> None:
        self._context = context
        self._stores = stores
        self._locations = locations
        self._format = file_format
        self._interval_ms = interval_ms
        self._waiting: list[int] = []
        self._state = EnumeratorState()
        if restored is not None:
            self._state = ship.restored(EnumeratorState, restored, name="a file source")
            if interval_ms is not None and self._state.cut and not self._state.seen:
                raise RestoreRefused(
                    "The files that were read are not known: the source had an end, and kept no "
                    "list of them. Watched now, all would be read again",
                    where=f"FileSource, {', '.join(locations)}",
                    remedy="Leave out monitor_continuously to read what is left. To read all again "
                    "give the source another uid and allow state that is not restored; to watch "
                    "from some day on, give it a folder for the files that come.",
                )
            # Where the files that were read are known, there may be more of them by now.
            self._state.done = self._state.done and interval_ms is None and not self._state.seen

    def start(self) -> None:
        if not self._state.done:
            self._look()

    def split_requested(self, subtask: int) -> None:
        if subtask not in self._waiting:
            self._waiting.append(subtask)
        self._serve()

    def add_back(self, subtask: int, splits: Sequence[FileSplit]) -> None:
        if subtask in self._waiting:
            self._waiting.remove(subtask)
        self._state.left.extendleft(reversed(splits))
        self._serve()

    def reader_ready(self, subtask: int) -> None: ...

    def snapshot(self, checkpoint: CheckpointId) -> bytes:
        return ship.dumps(self._state, name="file enumerator")

    def on_complete(self, checkpoint: CheckpointId) -> None: ...

    def close(self) -> None: ...

    def _look(self) -> None:
        self._context.run_blocking(self._find, self._found)

    def _find(self) -> object:
        # Locations may overlap, and each file is read once.
        found = {file.path: file for file in files_with_rows(self._stores, self._locations)}
        return list(found.values())

    def _found(self, files: object) -> None:
        found = cast("list[FileInfo]", files)
        new = [file for file in found if digest_of(file.path) not in self._state.seen]
        if new:
            self._context.run_blocking(lambda: self._cut(new), self._add)
        else:
            self._looked()

    def _cut(self, files: list[FileInfo]) -> object:
        schema = self._state.schema
        if schema is None:
            found = self._format.schema_of(self._stores, files[0].path)
            schema = None if found is None else found.serialize().to_pybytes()
        target = part_bytes(sum(file.size for file in files), self._context.parallelism)
        return [
            FileSplit(file.path, start, end, schema=schema)
            for file in files
            for start, end in self._format.cut(self._stores, file.path, file.size, target)
        ]

    def _add(self, splits: object) -> None:
        parts = cast("list[FileSplit]", splits)
        state = self._state
        state.left.extend(parts)
        state.cut += len(parts)
        state.schema = next((part.schema for part in parts), state.schema)
        # Only a folder that is looked at again: else the digests would fill checkpoints.
        if self._interval_ms is not None or self._context.goes_on or state.seen:
            state.seen.update(digest_of(part.path) for part in parts)
        self._looked()

    def _looked(self) -> None:
        if self._interval_ms is None:
            self._state.done = True
        else:
            self._context.call_later(self._interval_ms, self._look)
        self._serve()

    def _serve(self) -> None:
        left, waiting = self._state.left, self._waiting
        while left and waiting:
            count = max(1, min(_GIVEN_MAX, len(left) // (_PARTS_PER_READER * self._readers)))
            given = [left.popleft() for _ in range(count)]
            sharers = self._readers
            if self._interval_ms is None:
                sharers = min(sharers, self._state.cut)
            self._context.assign(
                waiting.pop(0), [replace(split, readers=sharers) for split in given]
            )
        if self._state.done and not left:
            for subtask in waiting:
                self._context.no_more_splits(subtask)
            waiting.clear()

    @property
    def _readers(self) -> int:
        return self._context.parallelism


def files_at(stores: Stores, location: str) -> Iterator[FileInfo]:
    """Files of a location: itself, those below a folder, or those that match a pattern.

    A file of exactly that name comes before those that it matches as a pattern. Files and folders
    whose names begin with a dot or an underscore are left out.
    """
    store, name = stores.locate(location)
    if (info := store.info(name)) is not None:
        yield FileInfo(location, info.size)
        return
    if is_pattern(location):
        for info in store.list_folder(""):
            if fnmatchcase(info.path, name) and is_visible(info.path):
                yield FileInfo(paths.join(store.root, info.path), info.size)
        return
    folder = stores.open(location)
    for info in folder.list():
        if is_visible(info.path) and info.size:
            yield FileInfo(paths.join(folder.root, info.path), info.size)


def files_with_rows(stores: Stores, locations: Sequence[str]) -> Iterator[FileInfo]:
    """Files of some locations that are not empty: those have no rows, and no columns to find."""
    return (file for place in locations for file in files_at(stores, place) if file.size)


def check_location(stores: Stores, location: str, *, watched: bool) -> None:
    """Raises ConfigError for a location that names nothing, and never will unless it is watched."""
    if is_pattern(location):
        if not watched and next(files_at(stores, location), None) is None:
            raise ConfigError(
                "No file matches the pattern",
                where=location,
                remedy="Check the pattern; only the last part of a path may have wildcards. To "
                "wait for files that come later, watch the folder: monitor_continuously.",
            )
        return
    store, name = stores.locate(location)
    if store.info(name) is not None or stores.open(location).is_folder(""):
        return
    raise ConfigError(
        "There is no such file or folder",
        where=location,
        remedy="Check the path; the driver and all slots have to reach it.",
    )


def is_pattern(location: str) -> bool:
    """True if the last part of a path has wildcards."""
    return any(sign in paths.name(location) for sign in _WILD)


def is_visible(path: str) -> bool:
    return not any(part.startswith(_HIDDEN) for part in path.split("/"))


def digest_of(path: str) -> bytes:
    """Short digest of a path; two of a million paths collide with a chance of 1 in 10^17."""
    return hashlib.blake2b(path.encode(), digest_size=_DIGEST_BYTES).digest()


def part_bytes(total: int, readers: int) -> int:
    """Size of parts that gives each reader some."""
    even = total // (readers * _PARTS_PER_READER)
    return max(PART_BYTES_MIN, min(PART_BYTES_MAX, even))
