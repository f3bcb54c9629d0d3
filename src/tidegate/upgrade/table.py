"""A report as text: a table of operators and states, then what was found."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.upgrade.report import OperatorFit, StateFit, UpgradeFinding, UpgradeReport

_HEAD = ("operator", "state", "kind", "verdict", "type")


def as_table(report: UpgradeReport) -> str:
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
