"""``tidegate check`` within a program: judges its first job and starts none."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tidegate.errors import TidegateError
from tidegate.upgrade.check import check_upgrade

if TYPE_CHECKING:
    from tidegate.graph.job_graph import JobGraph
    from tidegate.upgrade.report import UpgradeReport


class Checked(BaseException):
    """Raised at the program's first job; programs must not catch it as a failure.

    outcome: the report, or why there is none.
    """

    def __init__(self, outcome: UpgradeReport | TidegateError) -> None:
        super().__init__()
        self._outcome = outcome

    @property
    def report(self) -> UpgradeReport:
        if isinstance(self._outcome, TidegateError):
            raise self._outcome
        return self._outcome


def check_only(graph: JobGraph, snapshot: str) -> NoReturn:
    """Compares a job with a snapshot, in the place of running it. Raises Checked.

    Makes the report now, while the program is still ``__main__``: state may be of its classes.
    """
    try:
        outcome = check_upgrade(graph, snapshot)
    except TidegateError as error:
        outcome = error
    raise Checked(outcome)
