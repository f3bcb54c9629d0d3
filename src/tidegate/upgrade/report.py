"""Findings of a dry run: plain values, as JSON and as a table."""

from __future__ import annotations

from dataclasses import asdict, replace
from enum import Enum
from typing import TYPE_CHECKING

from flinkformat.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.errors import TidegateError

_HEAD = ("operator", "state", "kind", "verdict", "type")


class UpgradeFault(Enum):
    """Kind of an obstacle to an upgrade."""

    OPERATOR_LOST = "operator lost"
    COMMITTABLES_LOST = "committables lost"
    NOT_LOADABLE = "not loadable"
    OPEN_FAILED = "open failed"
    KEY_CHANGED = "key changed"
    STATE_CHANGED = "state changed"
    STATE_TWICE = "state asked for twice"
    STATE_LEFT = "state left"
    STATE_FORM = "form of state"
    MAX_PARALLELISM = "max parallelism"
    FINISHED = "finished operators"
    IN_FLIGHT = "in-flight data"
    COORDINATOR = "coordinator state"
    HOOK = "hook state"
    FILE_MISSING = "file missing"


class UpgradeSeverity(Enum):
    """REFUSED: the job would not start, or fail at once. WARNING: it would run without something.

    A warning also says what could not be judged.
    """

    REFUSED = "refused"
    WARNING = "warning"


@frozen
class UpgradeFinding:
    """One thing that does not fit.

    what, where, remedy: as of an error. operator, state: its uid, or else its name, and the state's
    name; None if it is of no single one.
    """

    kind: UpgradeFault
    severity: UpgradeSeverity
    what: str
    where: str = ""
    remedy: str = ""
    operator: str | None = None
    state: str | None = None


class OperatorMatch(Enum):
    """Presence of an operator: in both program and snapshot, in one alone, or ended."""

    MATCHED = "matched"
    NEW = "new"
    LOST = "lost"
    FINISHED = "finished"


class StateVerdict(Enum):
    """Fate of a state in an upgrade.

    LEFT: nobody asks for it in ``open``; it is kept as it is, unread. LATER: it is asked for while
    the operator works, and judged then.
    """

    AS_IS = "as is"
    MIGRATED = "migrated"
    REFUSED = "refused"
    NEW = "new"
    LEFT = "left"
    LATER = "when it is used"


@frozen
class StateFit:
    """A state of an operator. was, becomes: types, None if there is none.

    Timers have no type of their own: ``by Long`` says that of their keys, and ``by Long and
    TupleTypeInfo(Long, Long)`` that they have windows beside these. sampled: entries that were
    decoded.
    """

    name: str
    kind: str
    verdict: StateVerdict
    was: str | None = None
    becomes: str | None = None
    sampled: int = 0


@frozen
class OperatorFit:
    """An operator. id: hexadecimal. was: parallelism and max parallelism in the snapshot, becomes:
    in the program; None if it is not there. likely: of a lost one, who it may be now. key: type
    of the keys in the snapshot. committables: what its sink has prepared and not committed.
    """

    name: str
    uid: str | None
    id: str
    match: OperatorMatch
    was: tuple[int, int] | None = None
    becomes: tuple[int, int] | None = None
    likely: str | None = None
    key: str | None = None
    size_bytes: int = 0
    committables: int = 0
    coordinator: bool = False
    states: tuple[StateFit, ...] = ()

    @property
    def label(self) -> str:
        """Uid of the operator, or else its name."""
        return self.uid or self.name


@frozen
class UpgradeReport:
    """A program laid over a snapshot; ``print`` shows it as a table.

    snapshot: its folder. kind: as Flink calls it. job_name: None if Flink wrote it.
    """

    snapshot: str
    checkpoint: int
    kind: str
    job_name: str | None
    operators: tuple[OperatorFit, ...]
    findings: tuple[UpgradeFinding, ...]

    @property
    def fits(self) -> bool:
        """True if nothing is refused."""
        return all(finding.severity is not UpgradeSeverity.REFUSED for finding in self.findings)

    def to_dict(self) -> dict[str, object]:
        """The report as values of JSON."""
        return {"fits": self.fits, **asdict(self, dict_factory=_plain)}

    def __str__(self) -> str:
        return _as_table(self)


def finding_of(
    kind: UpgradeFault,
    error: TidegateError,
    *,
    operator: str | None = None,
    state: str | None = None,
    severity: UpgradeSeverity = UpgradeSeverity.REFUSED,
) -> UpgradeFinding:
    return UpgradeFinding(kind, severity, error.what, error.where, error.remedy, operator, state)


def softened(findings: Sequence[UpgradeFinding]) -> list[UpgradeFinding]:
    """A copy of the findings, as warnings."""
    return [replace(finding, severity=UpgradeSeverity.WARNING) for finding in findings]


def _plain(pairs: list[tuple[str, object]]) -> dict[str, object]:
    return {name: value.value if isinstance(value, Enum) else value for name, value in pairs}


def _as_table(report: UpgradeReport) -> str:
    job = "" if report.job_name is None else f" of job '{report.job_name}'"
    lines = [f"{report.kind} {report.checkpoint}{job}: {report.snapshot}", ""]
    rows = [row for operator in report.operators for row in _rows(operator)]
    lines += _columns([_HEAD, *rows])
    for finding in report.findings:
        lines += ["", *_told(finding)]
    lines += ["", "The program fits." if report.fits else "The program does not fit."]
    return "\n".join(lines)


def _rows(operator: OperatorFit) -> list[tuple[str, ...]]:
    verdict = operator.match.value
    if operator.likely is not None:
        verdict += f", now '{operator.likely}'?"
    if operator.committables:
        verdict += f", {operator.committables} committables"
    shape = _both(*(_shape(each) for each in (operator.was, operator.becomes)))
    first = (operator.label, "", f"by {operator.key}" if operator.key else "", verdict)
    return [(*first, f"parallelism {shape}"), *(_state_row(state) for state in operator.states)]


def _shape(parallelism: tuple[int, int] | None) -> str | None:
    return None if parallelism is None else f"{parallelism[0]} of {parallelism[1]}"


def _state_row(state: StateFit) -> tuple[str, ...]:
    return "", state.name, state.kind, state.verdict.value, _both(state.was, state.becomes)


def _both(was: str | None, becomes: str | None) -> str:
    known = dict.fromkeys(each for each in (was, becomes) if each is not None)
    return " -> ".join(known) or "-"


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _told(finding: UpgradeFinding) -> list[str]:
    lines = [f"{finding.severity.value}: {finding.kind.value}: {finding.what}"]
    if finding.where:
        lines.append(f"  where: {finding.where}")
    if finding.remedy:
        lines.append(f"  what to do: {finding.remedy}")
    return lines
