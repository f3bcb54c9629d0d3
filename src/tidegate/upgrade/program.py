"""Where ``tidegate check`` has a program's jobs end up: they are judged, and none is started."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tidegate.errors import TidegateError
from tidegate.upgrade.check import check_upgrade

if TYPE_CHECKING:
    from tidegate.graph.job_graph import JobGraph
    from tidegate.upgrade.report import UpgradeReport


class Checked(BaseException):
    """The program has come to its first job. No program is to catch it as a failure.

    outcome: the report, or why there is none.
    """

    def __init__(self, outcome: UpgradeReport | TidegateError) -> None:
        super().__init__()
        self._outcome = outcome

    @property
    def report(self) -> UpgradeReport:
        """The report. Raises as `check_upgrade` where there is none."""
        if isinstance(self._outcome, TidegateError):
            raise self._outcome
        return self._outcome


class ChecksOnly:
    """The ``Runtime`` that lays a job over a snapshot."""

    def __init__(self, snapshot: str) -> None:
        self._snapshot = snapshot

    def submit(self, graph: JobGraph) -> NoReturn:
        """Raises Checked.

        The report is made here, while the program is ``__main__`` still, which state may be of
        classes of.
        """
        try:
            outcome = check_upgrade(graph, self._snapshot)
        except TidegateError as error:
            outcome = error
        raise Checked(outcome)
