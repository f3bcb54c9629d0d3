"""Where a program begins: its sources, its settings, and its execution."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from tidegate.config import checkpointing, execution
from tidegate.config.configuration import Configuration
from tidegate.config.spans import millis_of
from tidegate.config.state_backend import CHANGELOG_ENABLED
from tidegate.datastream.checking import checks
from tidegate.datastream.checking.types import result_type
from tidegate.datastream.process.interrupts import running_jobs
from tidegate.datastream.process.outside import (
    RUNTIME_VARIABLE,
    active_session,
    checked_python_file,
    configuration_from_outside,
    is_submitted,
    warn_of_runtime,
)
from tidegate.datastream.program import (
    Observers,
    Program,
    explained,
    submitted,
    tell_of_unexecuted,
    translated,
)
from tidegate.datastream.settings.configs import CheckpointConfig, ExecutionConfig
from tidegate.datastream.spark_frames import spark_session
from tidegate.datastream.steps import ends
from tidegate.errors import ConfigError, Guiding, StorageFailed, UserError
from tidegate.graph.runtime import load_runtime, prepare_local
from tidegate.graph.transformations import NodeKind
from tidegate.typeinfo.hints import declared_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pandas
    import polars
    import pyarrow as pa

    from tidegate.api.job import (
        FailureEnricher,
        JobClient,
        JobExecutionResult,
        JobStatusChangedListener,
        MasterTriggerRestoreHook,
    )
    from tidegate.api.source import Source
    from tidegate.api.watermarks import WatermarkStrategy
    from tidegate.config.execution import RuntimeExecutionMode
    from tidegate.config.spans import Span
    from tidegate.datastream.settings.slot_sharing import SlotSharingGroup
    from tidegate.datastream.settings.strategies import RestartStrategyConfiguration, StateBackend
    from tidegate.datastream.stream import DataStream
    from tidegate.graph.job_graph import JobGraph
    from tidegate.graph.runtime import Runtime
    from tidegate.graph.stream_graph import StreamGraph
    from tidegate.graph.transformations import OperatorTransformation
    from tidegate.model.settings import CheckpointingMode
    from tidegate.typeinfo.hints import TypeHint
    from tidegate.typeinfo.types import TypeInformation

T = TypeVar("T")

_INSTEAD: Final = {
    "add_source": "it takes a Java object: give from_source a Source in Python, or use generate",
    "create_input": "it takes a Java object: give from_source a Source in Python, or use generate",
    "register_cached_file": "read the file in a function's open",
}
"""Calls of PyFlink that are not here."""


class StreamExecutionEnvironment(Guiding):
    """Settings of a job, and the program that it runs.

    >>> env = StreamExecutionEnvironment.local()
    >>> env.from_collection(["to be", "or not"]).flat_map(str.split).print()
    >>> env.execute("words")
    """

    _instead = _INSTEAD

    def __init__(
        self,
        make_runtime: Callable[[Configuration], Runtime],
        configuration: Configuration,
        *,
        session: Callable[[int | None], object] = lambda slots: None,
    ) -> None:
        self._session = session
        self._make_runtime = make_runtime
        self._configuration = configuration
        self._program = Program(configuration)
        tell_of_unexecuted(self._program, configuration)
        self._observers = Observers()
        self._default_local_parallelism = 1

    def __repr__(self) -> str:
        names = ", ".join(f"'{each.name}'" for each in self._program.operators) or "no steps yet"
        parallelism = self._configuration.get(execution.PARALLELISM)
        return f"<StreamExecutionEnvironment, parallelism {parallelism}: {names}>"

    def _repr_html_(self) -> str | None:
        """The job as a drawing, in notebooks; None if there is nothing to run yet."""
        from tidegate.graph.html import job_svg  # a notebook alone asks for it

        try:
            return job_svg(self.get_job_graph())
        except UserError:
            return None

    @staticmethod
    def get_execution_environment(
        configuration: Configuration | Mapping[str, object] | None = None,
    ) -> StreamExecutionEnvironment:
        """Runs where ``tidegate run`` or the environment says.

        Else on Spark where this process has an active session or was started by ``spark-submit``,
        else locally. Two calls give two independent environments.
        """
        name = os.environ.get(RUNTIME_VARIABLE)
        if name is None:
            name = "spark" if active_session() is not None or is_submitted() else "local"
        if name == "spark":
            return StreamExecutionEnvironment.on_spark(configuration=configuration)
        return StreamExecutionEnvironment(
            load_runtime(name), configuration_from_outside(configuration)
        )

    @staticmethod
    def local(
        parallelism: int | None = None,
        *,
        configuration: Configuration | Mapping[str, object] | None = None,
    ) -> StreamExecutionEnvironment:
        """Runs on this machine, without Spark or Java.

        Each slot runs in a process of its own, and prints where this one prints. With
        ``tidegate.local.in-process`` all runs in this process, for debuggers.

        >>> env = StreamExecutionEnvironment.local(configuration={"parallelism.default": 2})
        """
        environment = _environment("local", _local_runtime, parallelism, configuration)
        if not environment._configuration.get(execution.LOCAL_IN_PROCESS):
            prepare_local()
        return environment

    @staticmethod
    def on_spark(
        spark: object = None,
        parallelism: int | None = None,
        *,
        configuration: Configuration | Mapping[str, object] | None = None,
    ) -> StreamExecutionEnvironment:
        """Runs on Spark.

        spark: a ``SparkSession``; None takes the active one, else makes one: where ``spark-submit``
        or ``SPARK_REMOTE`` say, else on this machine.
        Raises ConfigError if PySpark is not installed.
        """
        session = active_session() if spark is None else spark
        make_runtime = load_runtime("spark")
        return _environment(
            "spark",
            lambda settings: make_runtime(settings, spark=session),
            parallelism,
            configuration,
            lambda slots: spark_session(session, slots),
        )

    @property
    def spark(self) -> Any:
        """The Spark session that jobs run in, made here where none was; None without Spark.

        On this machine it has room for as many slots as the parallelism is, or for as many tasks of
        a batch as there are cores.
        """
        mode = self._configuration.get(execution.RUNTIME_MODE)
        shuffle = self._configuration.get(execution.BATCH_SHUFFLE_MODE)
        in_waves = (
            mode is execution.RuntimeExecutionMode.BATCH
            and shuffle is execution.BatchShuffleMode.ALL_EXCHANGES_BLOCKING
        )
        return self._session(None if in_waves else self.get_parallelism())

    # Settings

    def get_config(self) -> ExecutionConfig:
        """The execution settings; changing them changes the job."""
        return ExecutionConfig(self._configuration)

    def get_checkpoint_config(self) -> CheckpointConfig:
        """The checkpointing settings; changing them changes the job."""
        return CheckpointConfig(self._configuration)

    def get_configuration(self) -> Configuration:
        """All that is set, as a copy that cannot be changed."""
        return self._configuration.freeze()

    def configure(
        self, configuration: Configuration | Mapping[str, object]
    ) -> StreamExecutionEnvironment:
        """Takes over settings; they win over those made before.

        >>> env.configure({"execution.checkpointing.interval": "1 s"})
        """
        self._configuration.add_all(Configuration.of(configuration, where="configure"))
        return self

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """Sets the parallelism of operators that are made from now on and set none."""
        self.get_config().set_parallelism(parallelism)
        return self

    def get_parallelism(self) -> int:
        """Parallelism of operators that are made from now on and set none."""
        return self.get_config().get_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        """Sets the number of key groups, the upper bound of any later parallelism."""
        self.get_config().set_max_parallelism(max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """Number of key groups; -1 where it is derived from the parallelism."""
        return self.get_config().get_max_parallelism()

    def enable_checkpointing(
        self, interval: Span, mode: CheckpointingMode | None = None
    ) -> StreamExecutionEnvironment:
        """Takes a checkpoint each ``interval``; ``mode`` is exactly-once unless given.

        interval: milliseconds, or a span such as ``timedelta(seconds=1)`` or ``"1 s"``.

        >>> env.enable_checkpointing(1_000)
        """
        config = self.get_checkpoint_config().set_checkpoint_interval(interval)
        config.set_checkpointing_mode(mode or checkpointing.CHECKPOINT_MODE.default)
        return self

    def get_checkpoint_interval(self) -> int:
        """Milliseconds between two checkpoints; -1 where none are taken."""
        return self.get_checkpoint_config().get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """The guarantee of checkpoints."""
        return self.get_checkpoint_config().get_checkpointing_mode()

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """Newer name of ``get_checkpointing_mode``."""
        return self.get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """True if barriers overtake batches in flight."""
        return self.get_checkpoint_config().is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        """True if unaligned checkpoints are allowed where they are refused."""
        return self.get_checkpoint_config().is_force_unaligned_checkpoints()

    def set_default_savepoint_directory(self, directory: str) -> StreamExecutionEnvironment:
        """Sets the folder of savepoints that are requested without one."""
        self._configuration.set(checkpointing.SAVEPOINT_DIRECTORY, directory)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """Folder of savepoints that are requested without one."""
        return self._configuration.get(checkpointing.SAVEPOINT_DIRECTORY)

    def set_restart_strategy(
        self, restart_strategy: RestartStrategyConfiguration
    ) -> StreamExecutionEnvironment:
        """Sets when a failed job is restarted.

        >>> env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 1_000))
        """
        restart_strategy.apply_to(self._configuration)
        return self

    def set_state_backend(self, state_backend: StateBackend) -> StreamExecutionEnvironment:
        """Sets where the running job keeps its keyed state.

        >>> env.set_state_backend(EmbeddedRocksDBStateBackend())
        """
        state_backend.apply_to(self._configuration)
        return self

    def enable_changelog_state_backend(self, enabled: bool) -> StreamExecutionEnvironment:
        """Sets whether changes of keyed state are logged, so that checkpoints are short."""
        self._configuration.set(CHANGELOG_ENABLED, enabled)
        return self

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """True if changes of keyed state are logged; None if that is not set."""
        if not self._configuration.contains(CHANGELOG_ENABLED):
            return None
        return self._configuration.get(CHANGELOG_ENABLED)

    def set_buffer_timeout(self, timeout_millis: Span) -> StreamExecutionEnvironment:
        """Sets when part-filled batches are sent: 0 at once, -1 only when full.

        timeout_millis: milliseconds, or a span such as ``timedelta(seconds=1)`` or ``"1 s"``.
        """
        timeout_ms = millis_of(timeout_millis, where="set_buffer_timeout")
        self._configuration.set(execution.BUFFER_TIMEOUT_ENABLED, timeout_ms >= 0)
        if timeout_ms >= 0:
            self._configuration.set(execution.BUFFER_TIMEOUT, timeout_ms)
        return self

    def get_buffer_timeout(self) -> int:
        """Age at which partly filled batches are sent; -1 if only full ones are."""
        if not self._configuration.get(execution.BUFFER_TIMEOUT_ENABLED):
            return -1
        return self._configuration.get(execution.BUFFER_TIMEOUT)

    def disable_operator_chaining(self) -> StreamExecutionEnvironment:
        """Runs each operator in a task of its own; results do not differ."""
        self._configuration.set(execution.OPERATOR_CHAINING, False)
        return self

    def is_chaining_enabled(self) -> bool:
        """True if consecutive operators run in one task."""
        return self._configuration.get(execution.OPERATOR_CHAINING)

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        """Sets how the job runs: STREAMING unless told otherwise.

        In BATCH the input is bounded, no checkpoints are taken, event time stands still until all
        has come, and rolling operations give the last value of each key only. AUTOMATIC is that
        where all sources are bounded.

        >>> env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        """
        self._configuration.set(execution.RUNTIME_MODE, execution_mode)
        return self

    def end_with_savepoint(
        self, savepoint_directory: str | os.PathLike[str]
    ) -> StreamExecutionEnvironment:
        """Has a batch on Spark leave its state in a savepoint below a folder, for a live job.

        Event time ends with the last watermark of the input, so that windows and timers beyond stay
        open, and results are those of a stream up to there. The live job starts from the savepoint,
        ``JobExecutionResult.get_savepoint``, with the input behind.

        >>> env.set_runtime_mode(RuntimeExecutionMode.BATCH).end_with_savepoint("savepoints/")
        """
        self._configuration.set(execution.END_WITH_SAVEPOINT, os.fspath(savepoint_directory))
        return self

    def add_python_file(self, file_path: str) -> None:
        """Lets functions import a module, an archive or a folder of modules, wherever they run.

        May be called after the functions were defined, but before execute. Raises ConfigError if
        there is nothing at the path.

        >>> env.add_python_file("helpers/")
        """
        files = self._configuration.get(execution.PYTHON_FILES)
        self._configuration.set(execution.PYTHON_FILES, (*files, checked_python_file(file_path)))

    def set_python_requirements(
        self, requirements_file_path: str, requirements_cache_dir: str | None = None
    ) -> None:
        """Keeps it, with a warning: functions run with what is installed where the slots run."""
        parts = filter(None, (requirements_file_path, requirements_cache_dir))
        self._configuration.set("python.requirements", "#".join(parts))

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Keeps it, with a warning: on Spark, ``spark.archives`` brings archives along."""
        self._append("python.archives", "#".join(filter(None, (archive_path, target_dir))))

    def set_python_executable(self, python_exec: str) -> None:
        """Keeps it, with a warning: functions run in the Python of the slot."""
        self._configuration.set("python.executable", python_exec)

    def add_jars(self, *jars_path: str) -> None:
        """Keeps them, with a warning: there is no JVM that would load them."""
        self._append("pipeline.jars", *jars_path)

    def add_classpaths(self, *classpaths: str) -> None:
        """Keeps them, with a warning, as ``add_jars`` does."""
        self._append("pipeline.classpaths", *classpaths)

    def _append(self, key: str, *texts: str) -> None:
        listed = self._configuration.parse_list_value(self._configuration.get_string(key, ""))
        self._configuration.set(key, [*listed, *texts])

    def set_default_local_parallelism(self, parallelism: int) -> None:
        """Keeps it; without effect, since the parallelism is 1 unless set."""
        self._default_local_parallelism = parallelism

    def get_default_local_parallelism(self) -> int:
        """The parallelism that was set, else 1."""
        return self._default_local_parallelism

    def register_slot_sharing_group(
        self, slot_sharing_group: SlotSharingGroup
    ) -> StreamExecutionEnvironment:
        """Has no effect, since each slot hosts a subtask of every step."""
        return self

    def close(self) -> None:
        """Forgets the steps that were not executed; jobs that run go on."""
        self._program.take()

    # Sources

    def from_source(
        self,
        source: Source[Any],
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str = "Source",
        type_info: TypeHint | None = None,
    ) -> DataStream[Any]:
        """A stream of what a source reads.

        type_info: brings the records to a type; left out, they are of the source's own.

        >>> flights = FileSource.parquet("flights/")
        >>> env.from_source(flights, WatermarkStrategy.no_watermarks(), "flights")
        """
        checks.check_source(source, "from_source")
        if watermark_strategy is not None:
            checks.check_strategy(watermark_strategy, "from_source", can_rest=True)
        declared = declared_type(type_info, where="from_source")
        return self._read(source, watermark_strategy, source_name, declared)

    def from_collection(
        self, collection: Iterable[T], type_info: TypeHint | None = None
    ) -> DataStream[T]:
        """A bounded stream of these values, in order, at parallelism 1.

        type_info: brings them to a type, such as tuples to rows; left out, they are what they are.
        Tables of Arrow, pandas or polars are read as by ``from_arrow``. Raises GraphError for a
        value that cannot be of the type, and for an iterator without an end.

        >>> env.from_collection([("a", 1)], Types.ROW([Types.STRING(), Types.INT()]))
        """
        declared = declared_type(type_info, where="from_collection")
        if declared is None and ends.is_table(collection):
            return self.from_arrow(cast("pa.Table", collection))
        source = ends.collection(collection, declared)
        return self._read(source, None, "Collection Source", None, parallelism_max=1)

    def from_arrow(
        self,
        table: pa.Table | pa.RecordBatch,
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str = "Arrow Table",
    ) -> DataStream[Any]:
        """A bounded stream of the rows of an Arrow table, in order, at parallelism 1.

        Rows come as Arrow batches, as dicts in functions of rows. The table travels with the job:
        read large ones from files. Raises GraphError for what is no table.

        >>> env.from_arrow(pa.table({"shop": ["x", "y"], "amount": [3, 4]})).key_by("shop")
        """
        return self._of_table(table, watermark_strategy, source_name, "from_arrow")

    def from_pandas(
        self,
        df: pandas.DataFrame,
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str = "pandas DataFrame",
    ) -> DataStream[Any]:
        """Rows of a pandas DataFrame; its index is left out, ``df.reset_index()`` keeps it.

        >>> env.from_pandas(pd.DataFrame({"shop": ["x", "y"], "amount": [3, 4]}))
        """
        return self._of_table(df, watermark_strategy, source_name, "from_pandas")

    def from_polars(
        self,
        df: polars.DataFrame,
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str = "polars DataFrame",
    ) -> DataStream[Any]:
        """Rows of a polars DataFrame."""
        return self._of_table(df, watermark_strategy, source_name, "from_polars")

    def from_sequence(self, start: int, end: int) -> DataStream[int]:
        """The numbers from ``start`` to ``end``, both included, in order within a subtask.

        >>> env.from_sequence(1, 1_000_000)
        """
        return self._read(ends.sequence(start, end), None, "Sequence Source", None)

    def generate(
        self,
        generator_function: Callable[[int], T],
        count: int | None = None,
        rate: float | None = None,
        type_info: TypeHint | None = None,
    ) -> DataStream[T]:
        """Results of a function for 0, 1, 2 and so on.

        count: how many records; None goes on for ever. rate: records a second over all subtasks;
        None makes as many as are taken.

        >>> env.generate(lambda n: {"sensor": n % 5, "reading": n / 7}, count=1_000, rate=100)
        """
        checks.check_plain_function(generator_function, "generate")
        if count is not None:
            checks.check_whole_number(count, "the count of generate", 0)
        declared = result_type(type_info, generator_function, "generate")
        source = ends.generated(generator_function, count, rate, declared)
        return self._read(source, None, "Data Generator", declared)

    def read_text_file(self, file_path: str) -> DataStream[str]:
        """The lines of a text file, or of all files in a folder, each without its end.

        >>> env.read_text_file("logs/").filter(lambda line: "ERROR" in line)
        """
        return self._read(ends.lines(file_path), None, "Text File Source", None)

    def from_spark(
        self,
        df: object,
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str = "Spark DataFrame",
        *,
        folder: str | None = None,
    ) -> DataStream[Any]:
        """A bounded stream of the rows of a Spark DataFrame: any table, file, JDBC or SQL query.

        A batch on Spark reads it in place, a partition in a task. Else Spark writes it as Parquet
        once, when the job starts and before it takes slots; readers keep positions in these files,
        which are deleted when the job has ended and keeps no checkpoint. Rows come as Arrow
        batches, as dicts in functions of rows.

        folder: where they are written; None is beside the checkpoints, or a temporary folder
        where there are none and Spark runs on this machine. Raises ConfigError, naming all columns
        at fault, for types that would not arrive as they are.

        >>> env.from_spark(spark.table("orders").where("price > 10"))
        """
        return self._read(ends.frame(df, folder), watermark_strategy, source_name, None)

    # Execution

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Runs the program built since the last execution, and waits for its end.

        Raises GraphError and ConfigError for a program that cannot run, JobFailed, JobCanceled and
        JobSuspended for a job that did not finish. Ctrl-C and SIGTERM suspend the job behind a last
        checkpoint, and end the program with 130 and 143; a second Ctrl-C ends it at once.
        """
        return running_jobs().result_of(self.execute_async(job_name))

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Starts the program built since the last execution.

        If it still runs when this process ends, or is ended by Ctrl-C or SIGTERM, it is suspended
        behind a last checkpoint. Raises GraphError and ConfigError before anything is started.
        """
        if job_name is not None:
            checks.check_text(job_name, "execute")
        try:
            if (folder := self._configuration.get(execution.DEAD_LETTERS)) is not None:
                from tidegate.datastream.steps.dead_letters import send_failed_rows  # loads NumPy

                send_failed_rows(self._program, folder)
            graphs = self._translated(self._program.take_for_execution(), job_name)
            client = submitted(*graphs, self._configuration, self._make_runtime)
        except (UserError, StorageFailed) as error:
            # The error says all; a hundred lines of the engine's frames would hide it.
            raise error.with_traceback(None) from None
        as_it_runs = self._configuration.copy()
        if graphs[1].settings.slot.final_only:
            as_it_runs.set(execution.RUNTIME_MODE, execution.RuntimeExecutionMode.BATCH)
        running_jobs().add(client, as_it_runs)
        return client

    def add_master_hook(self, hook: MasterTriggerRestoreHook[Any]) -> bool:
        """Let something outside of the jobs take part in their checkpoints.

        False, and nothing changes, where there is a hook of that identifier already. Raises
        ConfigError for a blank identifier.

        >>> env.add_master_hook(RemoteSnapshots())
        """
        return self._observers.add_hook(hook)

    def add_failure_enricher(self, enricher: FailureEnricher) -> None:
        """Let something put labels on the failures of the jobs, as ``JobView.failures`` shows them.

        Raises ConfigError if it has no key, or one that another one has already.

        >>> env.add_failure_enricher(BlamesStorage())
        """
        self._observers.add_enricher(enricher)

    def register_job_listener(self, listener: JobStatusChangedListener) -> None:
        """Have something told each change of the status of the jobs, in order, with its time.

        Raises ConfigError for what is no listener.

        >>> env.register_job_listener(Pager())
        """
        self._observers.add_listener(listener)

    def get_job_graph(self, job_name: str | None = None) -> JobGraph:
        """The job as it would be submitted."""
        self._program.shown = True
        return self._translated(self._program.operators, job_name)[1]

    def explain(self, *, format: str = "text") -> str:
        """The job as it would run, for people: ``text``, or ``mermaid`` for a diagram.

        >>> print(env.explain())
        """
        return explained(self.get_job_graph(), format)

    def get_execution_plan(self) -> str:
        """The operators as JSON in Flink's form (``nodes``), and the ``vertices`` made of them."""
        from tidegate.graph.explain import execution_plan  # few programs ask

        self._program.shown = True
        return execution_plan(*self._translated(self._program.operators, None))

    def _of_table(
        self,
        table: object,
        watermark_strategy: WatermarkStrategy | None,
        name: str,
        call: str,
    ) -> DataStream[Any]:
        source = ends.table(table, watermark_strategy, call)
        return self._read(source, watermark_strategy, name, None, parallelism_max=1)

    def _read(
        self,
        source: Source[Any],
        watermark_strategy: WatermarkStrategy | None,
        name: str,
        type_info: TypeInformation | None,
        *,
        parallelism_max: int | None = None,
    ) -> DataStream[Any]:
        # Here, for steps load NumPy, which settings alone should not.
        from tidegate.datastream.stream import DataStream

        checks.check_name_of_source(name)
        if type_info is None and getattr(source, "brings_to_type", False):
            type_info = declared_type(source.produced_type, where="produced_type")
        operator = ends.reading(source, watermark_strategy, name, type_info)
        made = self._program.add(
            NodeKind.SOURCE, name, operator, stateful=True, parallelism_max=parallelism_max
        )
        return DataStream(self, self._program, made, type_info or source.produced_type)

    def _translated(
        self, operators: tuple[OperatorTransformation, ...], job_name: str | None
    ) -> tuple[StreamGraph, JobGraph]:
        stream_graph, graph = translated(operators, self._configuration, job_name)
        return stream_graph, self._observers.attached_to(graph)


def _local_runtime(configuration: Configuration) -> Runtime:
    return load_runtime("local")(configuration)


def _environment(
    runtime: str,
    make_runtime: Callable[[Configuration], Runtime],
    parallelism: int | None,
    configuration: Configuration | Mapping[str, object] | None,
    session: Callable[[int | None], object] = lambda slots: None,
) -> StreamExecutionEnvironment:
    if isinstance(parallelism, Configuration | Mapping):
        raise ConfigError(
            "Settings were passed as the parallelism",
            where="StreamExecutionEnvironment",
            remedy="Give them by name: configuration={...}.",
        )
    settings = configuration_from_outside(configuration)
    warn_of_runtime(runtime, settings)
    environment = StreamExecutionEnvironment(make_runtime, settings, session=session)
    return environment if parallelism is None else environment.set_parallelism(parallelism)
