"""Programs under Spark's Structured Streaming: each micro-batch is a batch that goes on.

For clusters that allow no long tasks. Spark reads the source and numbers the batches; state, event
time, timers and sinks are Tidegate's. A micro-batch starts from the snapshot of the one before it,
and ends with its own; sinks commit once that is complete. So a batch that Spark repeats after a
failure starts from where it started before, and where its snapshot is complete already it only
commits what that holds.
"""

from __future__ import annotations

from os import fspath
from typing import TYPE_CHECKING, Final

from tidegate.config import execution, reporting
from tidegate.config.configuration import Configuration
from tidegate.config.recovery import RESTORE_PATH
from tidegate.datastream.environment import StreamExecutionEnvironment
from tidegate.errors import ConfigError
from tidegate.snapshots.folders import list_savepoints
from tidegate.storage import paths
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from typing import Any

    from pyspark.sql import DataFrame

    from tidegate.datastream.stream import DataStream

_DONE: Final = "committed"
_ROWS: Final = "micro-batch"
RETAINED: Final = 2
"""Snapshots that are kept: Spark repeats the last batch at most."""


class MicroBatches:
    """A program for ``DataStreamWriter.foreachBatch``.

    program: builds the job, of an environment and the stream of a batch's rows, dicts that come as
    Arrow batches. directory: keeps the state; its own for each query, beside Spark's
    ``checkpointLocation`` and as reachable for executors. parallelism, configuration: as of
    ``StreamExecutionEnvironment.on_spark``. name: of each batch's job.

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
        name: str = "micro-batches",
    ) -> None:
        self._program = program
        self._directory = paths.absolute(fspath(directory))
        self._parallelism = parallelism
        self._configuration = configuration or {}
        self._name = name

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Runs one micro-batch. Raises what its job ends with; ConfigError without its state."""
        store = Stores().open(self._directory)
        done = paths.join(_folder(batch_id), _DONE)
        if store.info(done) is not None:
            return
        if (own := self._snapshot(batch_id)) is not None:
            self._run(frame.limit(0), own, paths.join(_folder(batch_id), "again"))
        else:
            self._run(frame, self._before(batch_id), _folder(batch_id))
        store.open_new(done).close()
        if batch_id >= RETAINED:
            store.delete_folder(_folder(batch_id - RETAINED))

    def _run(self, frame: DataFrame, start: str | None, folder: str) -> None:
        configuration = Configuration.from_dict(self._configuration)
        if reporting.SUMMARY.key not in self._configuration:
            configuration.set(reporting.SUMMARY, False)
        if start is not None:
            configuration.set(RESTORE_PATH, start)
        env = StreamExecutionEnvironment.on_spark(
            frame.sparkSession, self._parallelism, configuration=configuration
        )
        env.set_runtime_mode(execution.RuntimeExecutionMode.BATCH)
        env.end_with_savepoint(paths.join(self._directory, folder))
        rows = env.from_spark(frame, folder=self._directory).uid(_ROWS)
        self._program(env, rows)
        env.execute(self._name)

    def _before(self, batch_id: int) -> str | None:
        """The snapshot of the batch before; None for the first one."""
        if batch_id == 0:
            return None
        if (found := self._snapshot(batch_id - 1)) is None:
            raise ConfigError(
                f"There is no state of micro-batch {batch_id - 1}, so {batch_id} cannot go on",
                where=self._directory,
                remedy="Each query has a folder of its own for its state, which begins and goes "
                "with its checkpointLocation: put back the one, or begin with new ones of both.",
            )
        return found

    def _snapshot(self, batch_id: int) -> str | None:
        folder = paths.join(self._directory, _folder(batch_id))
        store, name = Stores().locate(folder)
        found = list_savepoints(folder) if store.is_folder(name) else []
        return found[0].path if found else None


def _folder(batch_id: int) -> str:
    return f"batch-{batch_id}"
