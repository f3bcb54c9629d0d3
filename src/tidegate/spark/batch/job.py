"""A bounded job as one job of Spark: its vertices are stages, its channels are shuffles.

The driver lays the stages together as one DataFrame and collects what the last of them say. Spark
does the rest: it runs the tasks, again where one dies, puts what is shuffled on disk, and asks for
executors and gives them back. Sinks commit here, once all tasks have ended.
"""

from __future__ import annotations

import secrets
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from pyspark import StorageLevel
from pyspark.sql import functions as sql

from tidegate.config.log import process_log
from tidegate.connectors.frames.frame_source import IN_PLACE
from tidegate.errors import SlotLost, TidegateError
from tidegate.model.elements import MIN_TIMESTAMP_MS
from tidegate.model.topology import Partitioner
from tidegate.spark.access.access import JobNames, tries_of
from tidegate.spark.batch.commits import clean_sinks, commit_all
from tidegate.spark.batch.coordinators import Coordinators
from tidegate.spark.batch.final_snapshot import tries
from tidegate.spark.batch.in_place import FramesInPlace, partitioned, sources_of
from tidegate.spark.batch.shuffle import (
    END,
    PLACE,
    SPARK_SCHEMA,
    WORDS,
    Committables,
    Told,
    hear,
    said_in,
)
from tidegate.spark.batch.stage import stage_function
from tidegate.spark.batch.stage_plan import FramePartitions, Stage
from tidegate.spark.batch.start import mark_committed
from tidegate.spark.batch.watched_calls import WatchedCalls
from tidegate.spark.session import MORE_MEMORY, gone, has_gone, lost
from tidegate.storage import paths
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from flinkformat.snapshots import MasterState
    from tidegate.api.operator import Combiner
    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.control import CheckpointAcknowledged, SlotInvitation
    from tidegate.model.elements import Barrier
    from tidegate.model.ids import JobId, OperatorId, SubtaskId, VertexId
    from tidegate.model.settings import JobSettings
    from tidegate.spark.access.access import SparkAccess
    from tidegate.spark.batch.final_snapshot import Ending, FinalSnapshot
    from tidegate.spark.batch.shuffle import Said
    from tidegate.spark.batch.start import BatchStart
    from tidegate.spark.shipping import Shipment

_SETTINGS: Final = {
    # Rows of a shuffle may be batches of a megabyte.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    # A task is a subtask: two of them cannot become one.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.unionOutputPartitioning": "false",
}

_CLEAN_UP_S: Final = 10.0
"""How long a job that was cancelled waits until what it leaves is deleted."""


class Surroundings(Protocol):
    """The driver around a batch, as its stages need it. Blocking.

    invitation: for tasks to tell what they do; None where nobody listens.
    """

    @property
    def invitation(self) -> SlotInvitation | None: ...

    @property
    def ran_again(self) -> bool:
        """Spark has run a task again, as far as tasks could tell."""
        ...

    def hook_states(self, barrier: Barrier) -> tuple[MasterState, ...]:
        """The states of the master hooks for the snapshot at its end."""
        ...

    def confirm(self) -> None:
        """Raises LeadershipLost if another driver leads the job by now."""
        ...

    def saved(self, snapshot: FinalSnapshot, shares: Sequence[CheckpointAcknowledged]) -> None:
        """The snapshot at its end is complete."""
        ...


class BatchJob:
    """Runs the stages of a job on Spark and commits what they prepared.

    start: what it begins with. ending: begins the snapshot at its end; None for none.
    shipment: what executors get that lack Tidegate.
    """

    def __init__(
        self,
        graph: JobGraph,
        job: JobId,
        access: SparkAccess,
        start: BatchStart,
        ending: Ending | None,
        shipment: Shipment | None,
        around: Surroundings,
    ) -> None:
        self._graph = graph
        self._job = job
        self._access = access
        self._frames = FramesInPlace(graph)
        self._tag = f"tidegate-{secrets.token_hex(6)}"
        self._kept: list[DataFrame] = []
        self._calls = WatchedCalls(graph.name)
        self._start = start
        self._ending = ending
        self._shipment = shipment
        self._around = around
        self._snapshot: FinalSnapshot | None = None
        self._commits = False
        self._staged = StagedInputs(graph, job, self._frames.operators)
        places = self._staged.places | dict.fromkeys(self._frames.operators, IN_PLACE)
        self.coordinators = Coordinators(graph, places, goes_on=ending is not None, start=start)

    def run(self) -> list[Said]:
        """Runs all tasks and commits. Gives what they said; the first failure is raised."""
        said = self._run()
        # Batch after batch, looking through all output would take longer with each.
        if self._ran_again(said) or not self._is_of_series:
            self._free(self._clean_sinks)
        self._free(self._clean_up_tries)
        return said

    def discard(self) -> None:
        """Delete what a job that has failed has left, once its tasks have ended.

        Nothing, once its output is committed, or in a snapshot that may be complete.
        """
        snapshot = self._snapshot
        if self._commits or (snapshot is not None and snapshot.stays):
            return
        self._free(self._clean_sinks, *(() if snapshot is None else (snapshot.discard,)))

    def _ran_again(self, said: Sequence[Said]) -> bool:
        """True if Spark has run a task more than once.

        A task counts its tries anew where Spark runs its stage anew, so the driver has looked too.
        """
        return self._around.ran_again or any(each.again for each in said)

    @property
    def _is_of_series(self) -> bool:
        """True if more batches follow that go on from this one, such as micro-batches."""
        snapshot = self._snapshot
        return self._ending is not None and (snapshot is None or snapshot.job != self._job)

    def _run(self) -> list[Said]:
        try:
            if self._ending is not None:
                begin = partial(self._ending, self._graph, self._job, self._start.snapshot)
                self._snapshot = self._calls.run(begin, "the folder of its snapshot")
            self._staged.write()
            self._calls.run(self.coordinators.start, "what its sources are to read")
            said = self._collected()
        finally:
            self._free(*(frame.unpersist for frame in self._kept), self._staged.delete)
        for each in said:
            if each.failure is not None:
                raise each.failure
        if len(said) != sum(each.parallelism for each in self._graph.topology.vertices):
            raise _unheard(in_place=bool(self._frames.operators))
        held: dict[OperatorId, list[bytes]] = {}
        for each in said:
            for word in each.words:
                match word:
                    case Told(operator, event):
                        self.coordinators.tell(each, operator, event)
                    case Committables(operator, data):
                        held.setdefault(operator, []).extend(data)
        self._calls.check()
        self._around.confirm()
        shares = [each.share for each in said if each.share is not None]
        if self._snapshot is not None:
            barrier = self._snapshot.barrier
            hooks, times = self._around.hook_states(barrier), self._event_times(said)
            states, again = self.coordinators.snapshot(barrier.checkpoint), self._ran_again(said)
            complete = partial(self._snapshot.complete, shares, states, hooks, times, again=again)
            self._snapshot.stays = True  # also where nobody waits for the call any more
            self._calls.run(complete, "the metadata of its snapshot")
        self._commits = True
        try:
            if self._snapshot is not None:
                self._around.saved(self._snapshot, shares)
            commit_all(self._graph, held, self._calls)
        except TidegateError as error:
            error.remedy = f"{error.remedy} {self._uncommitted}".lstrip()
            raise
        self._mark_committed()
        return said

    def _mark_committed(self) -> None:
        """Have the next batch not ask for it again; without the mark it finds what is there."""
        if self._snapshot is None or self._is_of_series:
            return
        mark = partial(mark_committed, self._snapshot.path)
        try:
            self._calls.run(mark, "the mark that all is committed", grace_s=_CLEAN_UP_S)
        except Exception as error:
            log = process_log().bind(job=self._graph.name)
            text = "the savepoint does not say that all is committed: a batch from it commits again"
            log.warning(text, path=self._snapshot.path, error=str(error))

    @property
    def _uncommitted(self) -> str:
        """Help for who has a batch that could not commit all of its output."""
        if self._is_of_series:
            return "Run it again: it commits the rest."
        if self._snapshot is not None:
            return (
                f"The rest of its output is in {self._snapshot.path}: a job that starts from there "
                "commits it. The same batch run anew would write all of it once more."
            )
        return (
            "A part of its output may be committed, and nothing remembers the rest: remove what is "
            "there before you run the batch again. One that ends with a savepoint can go on."
        )

    def close(self) -> None:
        """Close what the driver has of the job's operators. The job is over."""
        self._free(self.coordinators.close)

    def _clean_sinks(self) -> None:
        clean_sinks(self._graph, [self._job])

    def _clean_up_tries(self) -> None:
        """Delete what other tries to run this batch have left: what one of them held is committed.

        Raises StorageFailed.
        """
        jobs: Sequence[JobId] = ()
        if self._snapshot is not None:
            jobs = self._snapshot.former
        elif self._ending is not None and self._start.snapshot is not None:
            jobs = tries(self._start.snapshot.pointer)
        clean_sinks(self._graph, jobs)
        for job in jobs:
            StagedInputs(self._graph, job, self._frames.operators).delete()

    def _free(self, *calls: Callable[[], object]) -> None:
        """Frees what is needed no more; what cannot be freed is left, and no failure of the job."""
        for free in calls:
            try:
                self._calls.run(free, "what it leaves is cleaned up", grace_s=_CLEAN_UP_S)
            except Exception as error:  # Spark's, Py4J's, a store's: they have no kind in common
                log = process_log().bind(job=self._graph.name)
                log.warning("a batch has left files of its own behind", error=str(error))

    @property
    def savepoint(self) -> str | None:
        """Path of the snapshot that it ends with."""
        return None if self._snapshot is None else self._snapshot.path

    def _event_times(self, said: Sequence[Said]) -> dict[VertexId, int]:
        """The least of the tasks of each step that has event time."""
        times: dict[VertexId, int] = {}
        for each in said:
            at_ms = None if each.figures is None else each.figures.watermark_ms
            if at_ms is not None and at_ms > MIN_TIMESTAMP_MS:
                vertex = each.task.subtask.vertex
                times[vertex] = min(at_ms, times.get(vertex, at_ms))
        return times

    def cancel(self, error: TidegateError) -> None:
        """End it before its time, with this error."""
        self._calls.end(error)
        self._staged.cancel()
        self._access.cancel(self._tag)

    def _collected(self) -> list[Said]:
        """Runs the tasks; gives what each said, that of one task once."""
        names = JobNames((self._tag,), f"tidegate batch of '{self._graph.name}'")
        try:
            with (
                self._access.with_settings(_SETTINGS) as session,
                self._access.named(names),
                self._access.python(),
            ):
                self._frames.adopt_settings(session, but=_SETTINGS)
                rows = self._said(session).toArrow()  # collect() drops what Java has no room for
        except Exception as error:  # Spark's, Py4J's: they have no kind in common
            if (ended_by := self._calls.ended_by) is not None:
                raise ended_by from None
            if has_gone(self._access, error):
                raise gone(f"{MORE_MEMORY} Then run the batch again.") from error
            raise lost("Spark could not run the job", str(error)) from error
        said: dict[SubtaskId, Said] = {}
        for data in rows.column(0):
            hear(said, said_in(data.as_py()))
        return list(said.values())

    def _said(self, session: SparkSession) -> DataFrame:
        """The words of the last tasks, which have those of all tasks before them.

        They go through a shuffle too: tasks whose rows the driver has taken could not be run again
        where Spark has to take back all that depends on a lost one.
        """
        topology, frames = self._graph.topology, dict[object, "DataFrame"]()
        for vertex in topology.vertices:
            frames[vertex.id] = self._stage(session, vertex.id, frames)
        for kept in self._kept:
            kept.count()  # or several readers at once would each have it computed
        last = self._frames.in_order(sources_of(topology, None))
        return _united([frames[each] for each in last]).select("data").repartition(1)

    def _stage(
        self, session: SparkSession, vertex: VertexId, frames: Mapping[object, DataFrame]
    ) -> DataFrame:
        topology = self._graph.topology
        path = tuple(sys.path) if self._access.one_machine else ()
        subtasks = topology.vertex(vertex).subtasks()
        stage = Stage(
            self._job,
            topology,
            vertex,
            self._graph.plans[vertex],
            task_settings(self._graph, self._snapshot),
            self.coordinators.events(vertex),
            path,
            None if self._snapshot is None else self._snapshot.barrier,
            self._start.checkpoint,
            {each.index: start for each in subtasks if (start := self._start.subtasks.get(each))},
            self._start.event_times.get(vertex),
            combiners=self._combiners(vertex),
            in_any_order=in_any_order(self._graph, vertex),
            invitation=self._around.invitation,
            kept_for=None if self._snapshot is None else self._snapshot.job,
            only_commits=self._ending is not None and self._snapshot is None,
            tries=tries_of(self._access),
        )
        parallelism = stage.parallelism
        if stage.inputs:
            made = self._made(stage, self._input(stage, frames, parallelism))
        elif vertex in self._frames:
            made = self._read_in_place(session, stage)
        else:
            made = self._made(stage, session.range(0, parallelism, 1, parallelism))
        if len({topology.edges[edge].target for edge in stage.outputs}) > 1:
            made = made.persist(StorageLevel.DISK_ONLY)
            self._kept.append(made)
        return made

    def _combiners(self, vertex: VertexId) -> dict[int, Combiner]:
        """Combiners of rows that are sent, by edge, in a batch that gives each result once.

        A batch that goes on from a snapshot may have late rows, which are counted one by one.
        """
        if self._snapshot is not None or self._start.checkpoint is not None:
            return {}
        return combiners(self._graph, vertex)

    def _made(self, stage: Stage, given: DataFrame) -> DataFrame:
        function = stage_function(stage)
        if self._shipment is not None:
            function = self._shipment.carried(function)
        return given.mapInArrow(function, SPARK_SCHEMA)

    def _read_in_place(self, session: SparkSession, stage: Stage) -> DataFrame:
        staged, parallelism = self._frames.of(stage.vertex), stage.parallelism
        rows, count = partitioned(session, staged.frame, parallelism)
        parts: list[DataFrame] = []
        if count:
            places = FramePartitions(
                staged.schema, self._frames.first_partition(stage.vertex), count
            )
            parts.append(self._made(replace(stage, frame=places), rows))
        if count < parallelism:
            rest = session.range(count, parallelism, 1, parallelism - count)
            parts.append(self._made(stage, rest))
        return _united(parts)

    def _input(
        self, stage: Stage, frames: Mapping[object, DataFrame], parallelism: int
    ) -> DataFrame:
        topology = self._graph.topology
        by_source: dict[VertexId, list[int]] = {}
        for edge in stage.inputs:
            by_source.setdefault(topology.edges[edge].source, []).append(edge)
        parts: list[DataFrame] = []
        for source in self._frames.in_order(list(by_source)):
            part, edges = frames[source], by_source[source]
            if len(edges) < len(topology.outputs(source)):
                part = part.where(sql.col("edge").isin(*edges, WORDS, END))
            parts.append(part)
        rows = _united(parts).repartitionById(parallelism, "target")
        return rows.sortWithinPartitions(sql.col("time").asc_nulls_first(), PLACE).drop(PLACE)


def _unheard(*, in_place: bool) -> SlotLost:
    """The error where not all tasks were heard. in_place: some of them read a DataFrame."""
    if in_place:
        return SlotLost(
            "Not each subtask had its task: a DataFrame had other partitions when Spark "
            "computed it than when the batch was planned",
            remedy="Run the batch again, or give the DataFrame a number of partitions with "
            "repartition().",
        )
    return SlotLost(
        "Spark has not handed over what each task had to say",
        remedy="Its driver may lack memory for the results: give it more with "
        "spark.driver.memory, or write them with a sink.",
    )


class StagedInputs:
    """Files that have to be written before sources read them. places: folders, by operator.

    in_place: operators whose sources are read without.
    """

    def __init__(self, graph: JobGraph, job: JobId, in_place: Collection[OperatorId]) -> None:
        self._written = {
            each: staged for each, staged in graph.staged.items() if each not in in_place
        }
        self._folder = f"tidegate-batch-{job}"
        checkpoints = graph.settings.checkpoints.directory
        self._roots = {each: staged.root(checkpoints) for each, staged in self._written.items()}
        self.places = {
            operator: paths.join(paths.absolute(root), self._folder, operator.hex())
            for operator, root in self._roots.items()
        }

    def write(self) -> None:
        for operator, staged in self._written.items():
            staged.write(self.places[operator])

    def cancel(self) -> None:
        for staged in self._written.values():
            staged.cancel()

    def delete(self) -> None:
        for root in set(self._roots.values()):
            Stores().open(root).delete_folder(self._folder)


def combiners(graph: JobGraph, vertex: VertexId) -> dict[int, Combiner]:
    """Combiners of the operators behind a vertex, by the edge to them."""
    topology, found = graph.topology, dict[int, "Combiner"]()
    for edge in topology.outputs(vertex):
        if topology.edges[edge].partitioner is Partitioner.HASH:
            made = graph.plan(topology.edges[edge].target).operators[0].combiner()
            if made is not None:
                found[edge] = made
    return found


def in_any_order(graph: JobGraph, vertex: VertexId) -> frozenset[int]:
    """Edges from a vertex to operators that need no order of event times."""
    topology = graph.topology
    return frozenset(
        edge
        for edge in topology.outputs(vertex)
        if graph.plan(topology.edges[edge].target).operators[0].takes_any_order
    )


def _united(frames: Sequence[DataFrame]) -> DataFrame:
    first, *others = frames
    for other in others:
        first = first.unionAll(other)
    return first


def task_settings(graph: JobGraph, snapshot: FinalSnapshot | None = None) -> JobSettings:
    """Settings of its tasks: as if a checkpoint came at the end, which sinks wait for.

    snapshot: that it ends with. Its results are those of a stream up to there.
    """
    checkpoints = graph.settings.checkpoints if snapshot is None else snapshot.settings
    checkpoints = replace(checkpoints, interval_ms=1, unaligned=False)
    slot = replace(graph.settings.slot, debloat=None, replay=None, repeatable=True)
    if snapshot is not None:
        slot = replace(slot, final_only=False, watermark_ms=1)
    return replace(graph.settings, checkpoints=checkpoints, slot=slot)
