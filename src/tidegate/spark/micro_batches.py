"""Programs under Spark's Structured Streaming: each micro-batch is a batch that goes on.

For clusters that allow no long tasks. Spark reads the source and numbers the batches; state, event
time, timers and sinks are Tidegate's. A micro-batch starts from the checkpoint of the one before
it, and ends with its own, whose number is the batch's and one; sinks commit once that is complete.
So a batch that Spark repeats after a failure starts from where it started before, and where its
checkpoint is complete already it only commits what that holds.

    <directory>/job                          the id under which the checkpoints are kept
    <directory>/query                        the id of the one query whose state this is
    <directory>/<id>/chk-<n>/                a checkpoint, see `tidegate.storage.paths`
    <directory>/<id>/chk-<n>/try-<job id>    a job that has tried to run its batch
    <directory>/<id>/chk-<n>/committed       what it holds has been committed
    <directory>/<id>/shared/                 files of state that several of them name
"""

from __future__ import annotations

import secrets
from os import fspath
from typing import TYPE_CHECKING, Final

from tidegate.config import execution, reporting
from tidegate.config.configuration import Configuration
from tidegate.config.execution import BatchShuffleMode, RuntimeExecutionMode
from tidegate.config.recovery import RESTORE_PATH
from tidegate.datastream.environment import StreamExecutionEnvironment
from tidegate.datastream.process.outside import configuration_from_outside
from tidegate.errors import ConfigError
from tidegate.graph.runtime import load_runtime
from tidegate.model.ids import CheckpointId, JobId
from tidegate.spark.access.access import access_to, is_connect
from tidegate.spark.batch.final_snapshot import CheckpointSeries, only_commits
from tidegate.spark.batch.start import is_file, mark_committed
from tidegate.storage import paths
from tidegate.storage.store import publish
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from typing import Any

    from pyspark.sql import DataFrame, SparkSession

    from tidegate.datastream.stream import DataStream
    from tidegate.spark.batch.final_snapshot import Ending

_JOB: Final = "job"
_QUERY: Final = "query"
_ROWS: Final = "micro-batch"
_MODE: Final = {
    execution.RUNTIME_MODE: RuntimeExecutionMode.BATCH,
    execution.BATCH_SHUFFLE_MODE: BatchShuffleMode.ALL_EXCHANGES_BLOCKING,
}

_TOGETHER: Final = (
    "Each query has a folder of its own for its state, which begins and goes with its "
    "checkpointLocation: put back the one, or begin with new ones of both."
)


class MicroBatches:
    """A program for ``DataStreamWriter.foreachBatch``.

    program: builds the job, of an environment and the stream of a batch's rows, dicts that come as
    Arrow batches. directory: keeps the state; its own for each query, beside Spark's
    ``checkpointLocation`` and as reachable for executors. parallelism, configuration: as of
    ``StreamExecutionEnvironment.on_spark``. name: of each batch's job; the directory is in
    it by default.

    >>> batches = MicroBatches(program, "state/totals", parallelism=16)
    >>> orders = spark.readStream.table("orders").writeStream.foreachBatch(batches)
    >>> orders.option("checkpointLocation", "spark/totals").trigger(processingTime="9 s").start()
    """

    def __init__(
        self,
        program: Callable[[StreamExecutionEnvironment, DataStream[Any]], object],
        directory: str | os.PathLike[str],
        *,
        parallelism: int | None = None,
        configuration: Mapping[str, object] | None = None,
        name: str | None = None,
    ) -> None:
        self._program = program
        self._directory = paths.absolute(fspath(directory))
        self._is_relative = paths.is_relative(fspath(directory))
        self._parallelism = parallelism
        # Micro-batches of Spark Connect run in the server's process, which has no command line.
        self._configuration = configuration_from_outside(configuration)
        if reporting.SUMMARY.key not in (configuration or {}):
            self._configuration.set(reporting.SUMMARY, False)
        self._name = name or f"micro-batches in {self._directory}"
        self._next: int | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Runs one micro-batch. Raises what its job ends with; ConfigError without its state.

        Raises ConfigError for a batch of another query than the folder's, for a program that sets
        another mode, and through Spark Connect for a relative folder, too.
        """
        self._refuse_relative(frame.sparkSession)
        self._refuse_other_query(frame.sparkSession)
        job = self._written_once(_JOB, secrets.token_hex(16))
        series, number = CheckpointSeries(self._directory, JobId(job)), CheckpointId(batch_id + 1)
        if batch_id != self._next:
            self._refuse_gone_back(series, batch_id)
        own = series.path(number)
        is_complete = self._is_complete(own)
        if is_complete:
            # Spark's own steps before it may have state, which is kept as they are computed.
            frame.write.format("noop").mode("overwrite").save()
        if not is_file(paths.join(own, paths.COMMITTED)):
            if is_complete:
                self._run(frame.limit(0), own, only_commits)
            else:
                self._run(frame, self._before(series, batch_id), series.next(number))
            mark_committed(own)
        self._next = batch_id + 1

    def _run(self, frame: DataFrame, start: str | None, ending: Ending) -> None:
        settings = Configuration(self._configuration)
        for option, needed in _MODE.items():
            settings.set(option, needed)
        if start is not None:
            settings.set(RESTORE_PATH, start)
        if self._parallelism is not None:
            settings.set(execution.PARALLELISM, self._parallelism)
        session, make_runtime = frame.sparkSession, load_runtime("spark")
        env = StreamExecutionEnvironment(
            lambda configuration: make_runtime(configuration, spark=session, ending=ending),
            settings,
            session=lambda _: session,
        )
        rows = env.from_spark(frame, folder=self._directory).uid(_ROWS)
        self._program(env, rows)
        self._refuse_other_mode(env)
        env.execute(self._name)

    def _refuse_other_mode(self, env: StreamExecutionEnvironment) -> None:
        """A job in another mode takes no checkpoint here, and its state would be lost."""
        for option, needed in _MODE.items():
            if (found := env.get_configuration().get(option)) is not needed:
                raise ConfigError(
                    f"A micro-batch runs with {option.key}: {needed.value}, and its program has "
                    f"set {found.value}",
                    where=self._name,
                    remedy="Leave the mode to who runs the program: set it outside of the function "
                    "that MicroBatches is given.",
                )

    def _refuse_relative(self, session: SparkSession) -> None:
        if self._is_relative and is_connect(session):
            raise ConfigError(
                "The folder of the state is relative, and through Spark Connect it is the server's",
                where=self._directory,
                remedy="Name a path from the root, or a URL, that the server and its executors "
                "reach.",
            )

    def _refuse_other_query(self, session: SparkSession) -> None:
        """Another query counts its batches anew: what this folder has done would be skipped."""
        query = access_to(session).query
        if query is None:
            return
        owner = self._written_once(_QUERY, query)
        if owner != query:
            raise ConfigError(
                f"This state is that of query {owner}, and the micro-batch is of query {query}",
                where=self._directory,
                remedy="A query has its id from its checkpointLocation: go on with the one that "
                "belongs to this folder, or give the new query a new folder.",
            )

    def _refuse_gone_back(self, series: CheckpointSeries, batch_id: int) -> None:
        """A query that counts anew, or goes on from an old copy, would write rows once more."""
        newest = series.newest()
        if newest is not None and newest > batch_id + 1:
            raise ConfigError(
                f"This state is that of micro-batch {newest - 1}, and the micro-batch is "
                f"{batch_id}",
                where=self._directory,
                remedy=_TOGETHER,
            )

    def _written_once(self, name: str, text: str) -> str:
        """Text in a file of the folder, which is made with the text given where there is none."""
        store = Stores().open(self._directory)
        if store.info(name) is None:
            publish(store, name, text.encode())
        return store.read(name).decode()

    def _before(self, series: CheckpointSeries, batch_id: int) -> str | None:
        """The checkpoint of the batch before; None for the first one."""
        if batch_id == 0:
            return None
        before = series.path(CheckpointId(batch_id))
        if not self._is_complete(before):
            raise ConfigError(
                f"There is no state of micro-batch {batch_id - 1}, so {batch_id} cannot go on",
                where=self._directory,
                remedy=_TOGETHER,
            )
        return before

    def _is_complete(self, checkpoint: str) -> bool:
        return is_file(paths.join(checkpoint, paths.METADATA))
