"""Checkpoints of state in memory that write what changed, and name again what earlier ones have.

A checkpoint writes one file. Of a key group in which few keys were written to since the newest
checkpoint that is known to be complete, it has the entries of these keys, to be laid over the
sections that are named again; of one in which many were, or which has many sections already, all
entries. Each file is a whole stream of keyed state with a header of its own, so nothing in it
depends on what came later. Files of which less than half is still named are given up: what is left
in them is written again, some key groups at a time.

Which sections may be named again is told by `shared_files`. The first checkpoint after a restore
is a full one, so that state that was migrated is in its new form.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from flinkformat.handles import (
    HandleAndLocalPath,
    IncrementalRemoteKeyedStateHandle,
)
from tidegate.model.elements import SnapshotKind
from tidegate.model.ids import CheckpointId
from tidegate.state.format.blocks import SectionsHeader, header_bytes
from tidegate.state.scope import Target, total_by_state
from tidegate.state.shared_files import SharedFiles, in_own_files, placeholder
from tidegate.storage.places import CheckpointScope

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from flinkformat.handles import StreamStateHandle
    from tidegate.model.elements import CheckpointOptions
    from tidegate.state.scope import BesideRows, StateScope, Uploaded, Write
    from tidegate.storage.places import Place
    from tidegate.storage.streams import CheckpointStateOutputStream

    # A key group, and the checkpoint in which it was first as it is now.
    Edition = tuple[int, CheckpointId]

    # By state, keys that may have been written to.
    Changed = Mapping[str, Collection[object]]

_RESTORED: Final = CheckpointId(0)

_HISTORY_MAX: Final = 8
"""Snapshots since the newest section that can be named, of which it is kept what each changed."""

_LATER_MIN: Final = 16
"""Sections over the first that a key group may have; some groups have up to twice as many."""

_GIVEN_UP_SHARE: Final = 8
"""One in this many key groups, at most, is written again in a checkpoint to be rid of a file."""


@frozen
class Section:
    """Where a key group's section is: bytes of a file, and the name that checkpoints give that.

    checkpoint: which wrote it. beside: bytes of all sections in that file. held: bytes in it by
    state.
    """

    file: str
    handle: StreamStateHandle
    offset: int
    size: int
    beside: int
    checkpoint: CheckpointId
    held: Mapping[str, int]


@frozen
class _Kept:
    """State of a key group: sections in layers, and keys written since."""

    sections: Mapping[Edition, Section]
    changed: Changed


class SharedSections:
    """The sections of one operator's subtask, which checkpoints share. On the loop only.

    backend_id: UUID of the backend, as text.
    """

    named: SharedFiles[Edition, Section]
    tracked = True

    def __init__(self, scope: StateScope, backend_id: str) -> None:
        self.scope = scope
        self.backend_id = backend_id
        key_groups = scope.key_groups
        self.named = SharedFiles()
        self._editions = dict.fromkeys(key_groups, _RESTORED)
        # Since the newest of its sections that were named; None for any key of any state.
        self._changed: dict[int, dict[CheckpointId, Changed | None]] = {
            group: {} for group in key_groups
        }

    def begin(
        self,
        written: Callable[[], Mapping[int, Changed | None]],
        checkpoint: CheckpointId,
        options: CheckpointOptions,
        columns: BesideRows | None,
    ) -> tuple[Target, Mapping[int, Changed]]:
        """The stream of a snapshot, and keys that were written to, by key group.

        Of key groups that are not named there, all is written. With columns in the stream, none of
        it is shared. written: tells what was written to since the last snapshot.
        """
        whole = self.scope.whole_stream(checkpoint)
        if columns is not None:
            return whole, {}
        self._note(written(), checkpoint)
        if options.kind not in (SnapshotKind.CHECKPOINT, SnapshotKind.FULL_CHECKPOINT):
            return whole, {}
        kept: dict[int, _Kept] = {}

        def wanted(known: dict[Edition, Section]) -> dict[Edition, Section]:
            if options.kind is SnapshotKind.CHECKPOINT:
                kept.update(self._worthwhile(self._kept(known)))
            return {key: place for each in kept.values() for key, place in each.sections.items()}

        again = self.named.begin(checkpoint, wanted)
        upload = partial(self._upload, checkpoint, again, dict(self._editions))
        changed = {group: each.changed for group, each in kept.items()}
        return Target(checkpoint, _open_shared, upload), changed

    def on_complete(self, checkpoint: CheckpointId) -> None:
        """A checkpoint is complete: the next ones may name its sections."""
        self.named.on_complete(checkpoint)

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        """A checkpoint was given up."""
        self.named.on_aborted(checkpoint)

    def _note(self, written: Mapping[int, Changed | None], checkpoint: CheckpointId) -> None:
        """Note keys that are new in a snapshot, by key group; None for any key of any state."""
        for group, keys in written.items():
            history = self._changed[group]
            if len(history) == _HISTORY_MAX:
                history.clear()
                keys = None
            history[checkpoint] = keys
            self._editions[group] = checkpoint

    def _kept(self, known: dict[Edition, Section]) -> dict[int, _Kept]:
        """Key groups for which all keys written since their newest section are known."""
        by_group: dict[int, dict[Edition, Section]] = {}
        for key in sorted(known):
            by_group.setdefault(key[0], {})[key] = known[key]
        kept: dict[int, _Kept] = {}
        for group, sections in by_group.items():
            _, newest = next(reversed(sections))
            history = {n: keys for n, keys in self._changed[group].items() if n > newest}
            self._changed[group] = history
            changed = _merged(history.values())
            if changed is not None and not (changed and _is_long(group, sections)):
                kept[group] = _Kept(sections, changed)
        return kept

    def _worthwhile(self, kept: dict[int, _Kept]) -> dict[int, _Kept]:
        """Drops key groups in files of which less than half would be named."""
        named: Counter[str] = Counter()
        for each in kept.values():
            for section in each.sections.values():
                named[section.file] += section.size
        poor = (
            group
            for group, each in kept.items()
            if any(named[s.file] * 2 < s.beside for s in each.sections.values())
        )
        given_up = set(islice(poor, max(1, len(self._editions) // _GIVEN_UP_SHARE)))
        return {group: each for group, each in kept.items() if group not in given_up}

    def _upload(
        self,
        checkpoint: CheckpointId,
        again: Mapping[Edition, Section],
        editions: Mapping[int, CheckpointId],
        place: Place,
        stream: CheckpointStateOutputStream | None,
        write: Write,
        is_empty: bool,
    ) -> Uploaded:
        """Write what changed, and name the rest. Blocking, off the loop. Raises StorageFailed."""
        scope, sections, size = self.scope, dict(again), 0
        named: dict[str, StreamStateHandle] = {
            section.file: placeholder(section.handle) for section in again.values()
        }
        try:
            if stream is not None or not is_empty:
                name = place.new_name()
                with stream or _open_shared(place) as stream:
                    writer = write(stream.write)
                    end = stream.position
                    handle = stream.close_and_get_handle()
                offsets = dict(zip(scope.key_groups, writer.offsets, strict=True))
                written = _sections(name, handle, offsets, end, editions, checkpoint, writer.held)
                named[name], size = handle, handle.state_size
                sections |= written
                if in_own_files({name: handle}):
                    self.named.uploaded(checkpoint, written)
            files: dict[str, list[tuple[int, int]]] = {}
            for (group, _), section in sorted(sections.items(), key=_as_written):
                files.setdefault(section.file, []).append((group, section.offset))
            header = SectionsHeader(scope.operator, checkpoint, scope.max_parallelism, files)
            meta = place.write([header_bytes(header)])
        except BaseException:
            self.named.on_aborted(checkpoint)
            raise
        keyed = IncrementalRemoteKeyedStateHandle(
            checkpoint,
            self.backend_id,
            scope.key_groups,
            size + meta.state_size,
            meta,
            tuple(HandleAndLocalPath(name, named[name]) for name in files),
            (),
            place.new_name(),
        )
        return keyed, total_by_state(section.held for section in sections.values())


def _open_shared(place: Place) -> CheckpointStateOutputStream:
    return place.stream(CheckpointScope.SHARED, merged=False)


def _sections(
    name: str,
    handle: StreamStateHandle,
    offsets: Mapping[int, int],
    end: int,
    editions: Mapping[int, CheckpointId],
    checkpoint: CheckpointId,
    held: Mapping[int, Mapping[str, int]],
) -> dict[Edition, Section]:
    """The sections of a file. offsets: by key group; 0 for one without a section. end: of all."""
    starts = sorted(offset for offset in offsets.values() if offset)
    marks = [*starts, end]
    end_of, beside = dict(pairwise(marks)), end - marks[0]
    return {
        (group, editions[group]): Section(
            name, handle, offset, end_of[offset] - offset, beside, checkpoint, held[group]
        )
        for group, offset in offsets.items()
        if offset
    }


def _merged(history: Iterable[Changed | None]) -> Changed | None:
    """All keys of several snapshots, by state; None for unknown."""
    merged: dict[str, Collection[object]] = {}
    for changed in history:
        if changed is None:
            return None
        for state, keys in changed.items():
            merged[state] = dict.fromkeys([*merged[state], *keys]) if state in merged else keys
    return merged


def _is_long(group: int, sections: Mapping[Edition, Section]) -> bool:
    """True if a key group must be rewritten; staggered, so not all are in one checkpoint."""
    first, *later = (section.size for section in sections.values())
    return len(later) >= _LATER_MIN + group * 7 % _LATER_MIN or sum(later) * 2 > first


def _as_written(place: tuple[Edition, Section]) -> tuple[CheckpointId, int]:
    (group, _), section = place
    return section.checkpoint, group
