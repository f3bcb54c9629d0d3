"""Part files: their names, writing them hidden, making them visible, sweeping what is left.

While it is written, and until its checkpoint is complete, a part is the hidden file
``.<name>.inprogress`` beside its final place. A commit renames it. Names hold job, sink, epoch,
attempt and subtask, so no two attempts ever write the same file, and a zombie's can't count. Names
and committables are described in docs/formats/file-sink.md.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from tidegate.errors import CommitFailed, FileMissing, FormatError
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tidegate.model.ids import JobId
    from tidegate.storage.store import Store

_VERSION: Final = 1
_HIDDEN_END: Final = ".inprogress"
_JOB_DIGITS: Final = 8


@frozen
class PartNames:
    """Names of one attempt's parts. attempt: as in ``WriterContext.attempt_name``."""

    prefix: str
    job: JobId
    attempt: str
    suffix: str

    def part(self, number: int, bucket: str = "") -> str:
        """Final name of the attempt's n-th part. bucket: its folder, if any."""
        name = f"{self.prefix}-{self.job[:_JOB_DIGITS]}-{self.attempt}-{number}{self.suffix}"
        return f"{bucket}/{name}" if bucket else name

    def left_behind(self, names: Iterable[str], parallelism: int) -> Iterator[str]:
        """Hidden parts that this subtask must delete, among these names.

        They are of earlier attempts of this subtask, and of subtasks that there are no more, which
        the first subtask sweeps. Only right once all that was restored is committed.
        """
        sink, *mine = self.attempt.split("-")
        epoch, attempt, subtask = (int(number) for number in mine)
        job = self.job[:_JOB_DIGITS]
        shape = re.compile(
            rf"(?:.*/)?\.{re.escape(self.prefix)}-{job}-{sink}-(\d+)-(\d+)-(\d+)-\d+"
            rf"{re.escape(self.suffix)}{re.escape(_HIDDEN_END)}"
        )
        for name in names:
            if found := shape.fullmatch(name):
                of_epoch, of_attempt, of_subtask = (int(number) for number in found.groups())
                earlier = (of_epoch, of_attempt) < (epoch, attempt)
                orphan = subtask == 0 and of_subtask >= parallelism and of_epoch <= epoch
                if (of_subtask == subtask and earlier) or orphan:
                    yield name


def hidden_parts(names: Iterable[str], prefix: str, jobs: Iterable[JobId]) -> Iterator[str]:
    """The hidden parts among these names that sinks of these jobs have begun."""
    begin = tuple(f".{prefix}-{job[:_JOB_DIGITS]}-" for job in jobs)
    for name in names:
        base = name.rpartition("/")[2]
        if base.startswith(begin) and base.endswith(_HIDDEN_END):
            yield name


def hidden(name: str) -> str:
    folder, slash, base = name.rpartition("/")
    return f"{folder}{slash}.{base}{_HIDDEN_END}"


@frozen
class PartCommittable:
    """A part to commit. folder: absolute, or a URL. name: final. rows: number of rows."""

    folder: str
    name: str
    rows: int

    def to_bytes(self) -> bytes:
        fields = {"v": _VERSION, "folder": self.folder, "name": self.name, "rows": self.rows}
        return json.dumps(fields).encode()

    @staticmethod
    def from_bytes(data: bytes) -> PartCommittable:
        try:
            fields = json.loads(data)
            if fields["v"] != _VERSION:
                raise ValueError(f"version {fields['v']}")
            return PartCommittable(fields["folder"], fields["name"], fields["rows"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise FormatError(
                f"This is not a committable of a file sink: {error}",
                remedy="Give this sink another uid: the snapshot holds the state of another one.",
                found=repr(data[:80]),
            ) from error


class PartCommitter:
    """Renames parts to their final names; skips those that have them."""

    def __init__(self) -> None:
        self._stores = Stores()

    def commit(self, committables: Sequence[bytes]) -> None:
        for data in committables:
            part = PartCommittable.from_bytes(data)
            self._commit(self._stores.open(part.folder), part)

    def _commit(self, store: Store, part: PartCommittable) -> None:
        # A commit is repeated after a restore, so each state that it may have left has its answer:
        # not begun, half done, and done.
        under_way = store.info(hidden(part.name))
        final = store.info(part.name)
        if under_way is None:
            if final is None:
                raise _lost(part)
        elif final is not None and final.size == under_way.size:
            # A rename by copy and deletion was interrupted after the copy.
            store.delete([hidden(part.name)])
        else:
            self._rename(store, part)

    def _rename(self, store: Store, part: PartCommittable) -> None:
        try:
            store.rename(hidden(part.name), part.name)
        except FileMissing:
            # An old attempt that has not noticed its end may commit at the same moment.
            if store.info(part.name) is None:
                raise _lost(part) from None

    def close(self) -> None: ...


def _lost(part: PartCommittable) -> CommitFailed:
    return CommitFailed(
        f"The part {part.name} with {part.rows} rows is neither pending nor committed: its rows "
        "are lost, or somebody has moved it",
        where=part.folder,
        remedy=f"Put it back as {part.name}, or as {hidden(part.name)}; if it was taken away on "
        "purpose, put an empty file there.",
    )
