"""Findings of ``tidegate fsck``: faulty files, and the snapshots that need them."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from typing import Final

from flinkformat.frozen import frozen


class Fault(Enum):
    """Kind of fault of a file."""

    METADATA = "metadata damaged"
    INCOMPLETE = "never completed"
    MISSING = "missing"
    UNREADABLE = "unreadable"
    SIZE = "wrong size"
    CHECKSUM = "wrong checksum"
    UNSIGNED = "not signed"
    CONTENTS = "contents damaged"
    OUTSIDE = "not its own"
    RECORD = "record damaged"
    ORPHAN = "orphan"
    FOREIGN = "foreign"

    @property
    def remedy(self) -> str:
        """Advice to whoever reads the finding."""
        return _REMEDIES[self]


_DISK: Final = "Put it back as it was, or start from another snapshot; look after the disk."
_REMEDIES: Final = {
    Fault.METADATA: "Put it back as it was, or start from another snapshot.",
    Fault.INCOMPLETE: "Delete it, unless a job is writing it just now.",
    Fault.MISSING: "Put it back, or start from another snapshot.",
    Fault.UNREADABLE: "Give this process the right to read it, or look after the disk.",
    Fault.SIZE: _DISK,
    Fault.CHECKSUM: _DISK,
    Fault.UNSIGNED: "Give the key of the snapshot; without it, trust it as far as its writers.",
    Fault.CONTENTS: _DISK,
    Fault.OUTSIDE: "Copy it before you delete anything.",
    Fault.RECORD: "Start by path, not with '--from latest'.",
    Fault.ORPHAN: "'tidegate fsck --delete-orphans' deletes it.",
    Fault.FOREIGN: "Move it elsewhere.",
}


@frozen
class Finding:
    """A faulty file.

    path: its place. what: a sentence. snapshots: folders of those that need it. operator: whose
    state it holds; empty if that is not known. size_bytes: of an orphan. deleted: whether it is
    gone now; of orphans alone.
    """

    fault: Fault
    path: str
    what: str
    snapshots: tuple[str, ...] = ()
    operator: str = ""
    size_bytes: int = 0
    deleted: bool = False


@frozen
class CheckedSnapshot:
    """A snapshot that was checked.

    kind: as Flink calls it, such as ``Suspend Savepoint``; empty if it can't be read. job: its
    name; empty if it is not known. files, size_bytes: of state, in files.
    """

    path: str
    checkpoint: int
    kind: str
    job: str
    files: int
    size_bytes: int


@frozen
class FsckReport:
    """Result of a check: snapshots and findings.

    files, size_bytes: that were read. notes: sentences on what could not be judged, and why.
    """

    path: str
    snapshots: tuple[CheckedSnapshot, ...]
    files: int
    size_bytes: int
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        """True if no fault is left; deleted orphans don't count."""
        return all(finding.deleted for finding in self.findings)

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        plain: dict[str, object] = asdict(self)
        findings = [asdict(each) | {"fault": each.fault.value} for each in self.findings]
        return {**plain, "healthy": self.healthy, "findings": findings}
