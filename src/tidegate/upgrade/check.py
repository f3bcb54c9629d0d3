"""Compares a program with a snapshot as a restore would, without starting anything.

Each judgement is made by the code that restores: ids, parallelisms and ended operators by
``checkpoint.restore.fitting``, in-flight data by ``checkpoint.restore.assignment``, state by the
operators and backends that take it in, hooks by ``driver.user_code``.

``tidegate check`` runs a program up to its first job with a runtime that judges and starts nothing.
"""

from __future__ import annotations

from itertools import count
from os import fspath
from typing import TYPE_CHECKING, NoReturn, cast

from tidegate.checkpoint.provenance import provenance_of
from tidegate.checkpoint.restore.assignment import assign
from tidegate.checkpoint.restore.fitting import (
    advice,
    lay_over,
    likely_operator,
    operators_without_state,
    state_of,
    unclaimed,
)
from tidegate.clock import SystemClock
from tidegate.datastream.environment import StreamExecutionEnvironment
from tidegate.driver.starting.restore import check_files, check_own, is_whole, read_snapshot
from tidegate.errors import MaxParallelismChanged, RestoreRefused, TidegateError
from tidegate.storage.state_files import StateFiles
from tidegate.upgrade.judging import (
    coordinator_findings,
    ended_operator,
    held_names,
    hook_findings,
    judged_operator,
    lost_operator,
)
from tidegate.upgrade.opening import DryOpening
from tidegate.upgrade.report import OperatorFit, UpgradeFault, UpgradeReport, finding_of, softened
from tidegate.upgrade.sample import OperatorSample, Sampler

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from tidegate.checkpoint.completed import CompletedCheckpoint
    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.topology import OperatorInfo, Topology, Vertex
    from tidegate.upgrade.report import UpgradeFinding


def check_upgrade(
    program: StreamExecutionEnvironment | JobGraph,
    snapshot: str | PathLike[str],
    *,
    allow_non_restored_state: bool | None = None,
    open_timeout_s: float = 30.0,
) -> UpgradeReport:
    """Compares a program with a checkpoint or savepoint, without starting or stopping anything.

    Functions are opened, since they alone know their states; sources and sinks are not. snapshot:
    its folder, or the ``_metadata`` in it. allow_non_restored_state: state that no operator takes
    is a warning; None takes what the program's settings say. open_timeout_s: how long the ``open``
    of one function is waited for, and the making of one coordinator, such as a source's enumerator.
    Raises RestoreRefused and FormatError for a snapshot that cannot be read, and GraphError for a
    program that can be no job.

    >>> report = check_upgrade(env, "savepoints/savepoint-1f2e3d-0123456789ab")
    >>> assert report.fits, report
    """
    if isinstance(program, StreamExecutionEnvironment):
        program = program.get_job_graph()
    if allow_non_restored_state is None:
        allow_non_restored_state = program.settings.restore.allow_non_restored
    numbers = count()
    key_file = program.settings.checkpoints.key_file
    files = StateFiles(signed=key_file is not None)
    read = read_snapshot(files, fspath(snapshot), lambda: f"handle-{next(numbers)}", key_file)
    check_own(read)
    if files.signed and not is_whole(files, read):
        raise RestoreRefused(
            "A file of the snapshot is gone, or is not the one that was signed",
            where=read.pointer,
            remedy="Ask 'tidegate fsck --key-file' which.",
        )
    files = StateFiles()  # files were checked
    return _Check(
        program, read, files, allow_lost=allow_non_restored_state, limit_s=open_timeout_s
    ).report()


class _Check:
    def __init__(
        self,
        graph: JobGraph,
        read: CompletedCheckpoint,
        files: StateFiles,
        *,
        allow_lost: bool,
        limit_s: float,
    ) -> None:
        self._graph = graph
        self._read = read
        self._metadata = read.metadata
        self._files = files
        self._limit_s = limit_s
        self._opening = DryOpening(graph.settings, SystemClock(), read.checkpoint, limit_s=limit_s)
        self._allow_lost = allow_lost
        self._sampler = Sampler(files, graph.settings.slot.rocksdb)
        self._findings: list[UpgradeFinding] = []

    def report(self) -> UpgradeReport:
        topology = self._laid_over()
        operators = [fit for vertex in topology.vertices for fit in self._vertex(vertex)]
        operators += self._lost(topology, operators)
        hooks = hook_findings(self._graph, self._metadata)
        self._findings += softened(hooks) if self._allow_lost else hooks
        provenance = provenance_of(self._metadata)
        name = None if provenance is None else provenance.facts.get("job_name")
        return UpgradeReport(
            self._read.pointer,
            self._read.checkpoint,
            self._read.properties.snapshot_type.name,
            cast("str | None", name),
            tuple(operators),
            tuple(self._findings),
        )

    def _laid_over(self) -> Topology:
        """The topology with the snapshot's max parallelisms; notes what does not fit."""
        topology, faults = lay_over(self._metadata, self._graph.topology)
        for fault in faults:
            limits = isinstance(fault, MaxParallelismChanged)
            kind = UpgradeFault.MAX_PARALLELISM if limits else UpgradeFault.FINISHED
            self._findings.append(finding_of(kind, fault))
        dropped = self._graph.settings.restore.without_in_flight_of == self._read.checkpoint
        if not faults:  # else nobody knows what would be dealt out to whom
            try:
                assign(self._metadata, topology, drop_in_flight=dropped)
            except RestoreRefused as error:
                self._findings.append(finding_of(UpgradeFault.IN_FLIGHT, error))
        try:
            check_files(self._files, self._read)
        except RestoreRefused as error:
            self._findings.append(finding_of(UpgradeFault.FILE_MISSING, error))
        return topology

    def _vertex(self, vertex: Vertex) -> Iterator[OperatorFit]:
        try:
            operators = self._graph.plan(vertex.id).operators
        except TidegateError as error:
            self._findings.append(finding_of(UpgradeFault.NOT_LOADABLE, error))
            return
        for operator, info in zip(operators, vertex.operators, strict=True):
            state = state_of(self._metadata, info)
            if state is not None and state.fully_finished:
                yield ended_operator(info, vertex, state)
                continue
            sample = OperatorSample() if state is None else self._sampler.sample(state)
            opened = self._opening.open(operator, info, vertex, sample)
            fit, findings = judged_operator(
                info, vertex, state, sample, opened, asks_later=operator.asks_later
            )
            self._findings += findings
            if state is not None:
                self._findings += coordinator_findings(
                    self._graph, vertex, info, state, limit_s=self._limit_s
                )
            yield fit

    def _lost(self, topology: Topology, known: list[OperatorFit]) -> Iterator[OperatorFit]:
        new = operators_without_state(self._metadata, topology)
        for state in unclaimed(self._metadata, topology):
            sample = self._sampler.sample(state)
            likely = likely_operator(state, new) or _by_states(sample, new, known)
            remedy = advice(state, likely)
            fit, findings = lost_operator(state, sample, likely, remedy)
            self._findings += softened(findings) if self._allow_lost else findings
            yield fit


def _by_states(
    sample: OperatorSample, new: list[OperatorInfo], known: list[OperatorFit]
) -> OperatorInfo | None:
    """The new operator that asks for most of the states by their names."""
    names = set(held_names(sample))
    asked = {fit.id: names & {state.name for state in fit.states} for fit in known}
    best = max(new, key=lambda info: len(asked.get(info.id.hex(), ())), default=None)
    return best if best is not None and asked.get(best.id.hex()) else None


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
