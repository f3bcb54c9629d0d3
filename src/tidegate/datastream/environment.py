"""Where a program begins: its sources, its settings, and its execution."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidegate.config import changelog, options
from tidegate.config.checkpoint import CheckpointConfig
from tidegate.datastream import checks, python_files
from tidegate.datastream.execution_config import ExecutionConfig
from tidegate.datastream.notices import warn
from tidegate.datastream.outside import configuration_from_outside
from tidegate.datastream.program import Program
from tidegate.datastream.results import cancel
from tidegate.datastream.stream import DataStream
from tidegate.datastream.types import converted, result_type
from tidegate.errors import ConfigError, GraphError
from tidegate.graph.explain import execution_plan, explain_mermaid, explain_text
from tidegate.graph.job_graph import JobGraph, translate
from tidegate.graph.runtime import load_check, load_frames, load_runtime
from tidegate.graph.stream_graph import StreamGraph, build_stream_graph
from tidegate.graph.transformations import NodeKind
from tidegate.typeinfo.hints import declared_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidegate.api.client import JobClient, JobExecutionResult
    from tidegate.api.failures import FailureEnricher
    from tidegate.api.hooks import MasterTriggerRestoreHook
    from tidegate.api.listeners import JobStatusChangedListener
    from tidegate.api.source import Source
    from tidegate.api.watermarks import WatermarkStrategy
    from tidegate.config.configuration import Configuration
    from tidegate.config.options import RuntimeExecutionMode
    from tidegate.config.restart_strategies import RestartStrategyConfiguration
    from tidegate.config.state_backends import StateBackend
    from tidegate.datastream.slot_sharing import SlotSharingGroup
    from tidegate.graph.runtime import Runtime
    from tidegate.graph.transformations import OperatorTransformation
    from tidegate.model.settings import CheckpointingMode
    from tidegate.typeinfo.hints import TypeHint
    from tidegate.typeinfo.types import TypeInformation

T = TypeVar("T")

RUNTIME_VARIABLE: Final = "TIDEGATE_RUNTIME"
"""Name of the runtime that ``get_execution_environment`` takes; set by ``tidegate run``."""

CHECK_VARIABLE: Final = "TIDEGATE_CHECK"
"""Path of the snapshot that programs are only laid over, by ``tidegate check``; nothing is run."""


class StreamExecutionEnvironment:
    """Settings of a job, and the program that it runs.

    >>> env = StreamExecutionEnvironment.local()
    >>> env.from_collection(["to be", "or not"]).flat_map(str.split).print()
    >>> env.execute("words")
    """

    def __init__(
        self,
        make_runtime: Callable[[Configuration], Runtime],
        configuration: Configuration,
        *,
        session: Callable[[int], object] = lambda slots: None,
    ) -> None:
        self._session = session
        self._make_runtime = make_runtime
        self._configuration = configuration
        self._program = Program(configuration)
        self._hooks: dict[str, MasterTriggerRestoreHook[Any]] = {}
        self._enrichers: list[FailureEnricher] = []
        self._listeners: list[JobStatusChangedListener] = []
        self._slot_sharing_groups: dict[str, SlotSharingGroup] = {}

    @staticmethod
    def get_execution_environment(
        configuration: Configuration | None = None,
    ) -> StreamExecutionEnvironment:
        """Runs where ``tidegate run`` or the environment says.

        Else on Spark where this process has an active session, else locally. Two calls give two
        independent environments.
        """
        name = os.environ.get(RUNTIME_VARIABLE)
        if name is None:
            name = "local" if _active_session() is None else "spark"
        if name == "spark":
            return StreamExecutionEnvironment.on_spark(configuration=configuration)
        return StreamExecutionEnvironment(
            load_runtime(name), configuration_from_outside(configuration)
        )

    @staticmethod
    def local(
        parallelism: int | None = None, *, configuration: Configuration | None = None
    ) -> StreamExecutionEnvironment:
        """Runs on this machine, without Spark or Java.

        At parallelism 1 all runs in this process, else each slot in one of its own.
        """
        return _environment(_local_runtime, parallelism, configuration)

    @staticmethod
    def on_spark(
        spark: object = None,
        parallelism: int | None = None,
        *,
        configuration: Configuration | None = None,
    ) -> StreamExecutionEnvironment:
        """Runs on Spark.

        spark: a ``SparkSession``; None takes the active one, else makes one on this machine.
        """
        session = _active_session() if spark is None else spark
        return _environment(
            lambda settings: load_runtime("spark")(settings, spark=session),
            parallelism,
            configuration,
            lambda slots: load_frames().session_for(session, slots),
        )

    @property
    def spark(self) -> Any:
        """The Spark session that jobs run in, made here where none was; None without Spark."""
        return self._session(self.get_parallelism())

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

    def configure(self, configuration: Configuration) -> StreamExecutionEnvironment:
        """Takes over settings; they win over those made before."""
        self._configuration.add_all(configuration)
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
        self, interval: int, mode: CheckpointingMode | None = None
    ) -> StreamExecutionEnvironment:
        """Takes a checkpoint each ``interval`` milliseconds; ``mode`` is exactly-once unless given.

        >>> env.enable_checkpointing(1_000)
        """
        config = self.get_checkpoint_config().set_checkpoint_interval(interval)
        config.set_checkpointing_mode(mode or options.CHECKPOINT_MODE.default)
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
        """Whether barriers overtake batches under way."""
        return self.get_checkpoint_config().is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        """Whether unaligned checkpoints are permitted where they are refused."""
        return self.get_checkpoint_config().is_force_unaligned_checkpoints()

    def set_default_savepoint_directory(self, directory: str) -> StreamExecutionEnvironment:
        """Sets where savepoints go that name no folder."""
        self._configuration.set(options.SAVEPOINT_DIRECTORY, directory)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """Where savepoints go that name no folder."""
        return self._configuration.get(options.SAVEPOINT_DIRECTORY)

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
        self._configuration.set(changelog.ENABLED, enabled)
        return self

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """Whether they are; None where that is not set."""
        if not self._configuration.contains(changelog.ENABLED):
            return None
        return self._configuration.get(changelog.ENABLED)

    def set_buffer_timeout(self, timeout_millis: int) -> StreamExecutionEnvironment:
        """Sets when part-filled batches are sent, in ms: 0 at once, -1 only when full."""
        self._configuration.set(options.BUFFER_TIMEOUT_ENABLED, timeout_millis >= 0)
        if timeout_millis >= 0:
            self._configuration.set(options.BUFFER_TIMEOUT, timeout_millis)
        return self

    def get_buffer_timeout(self) -> int:
        """The age at which part-filled batches are sent; -1 where only full ones are."""
        if not self._configuration.get(options.BUFFER_TIMEOUT_ENABLED):
            return -1
        return self._configuration.get(options.BUFFER_TIMEOUT)

    def disable_operator_chaining(self) -> StreamExecutionEnvironment:
        """Runs each operator in a task of its own; results do not differ."""
        self._configuration.set(options.OPERATOR_CHAINING, False)
        return self

    def is_chaining_enabled(self) -> bool:
        """Whether operators that follow one another run in one task."""
        return self._configuration.get(options.OPERATOR_CHAINING)

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        """Sets how the job runs: STREAMING unless told otherwise.

        In BATCH the input is bounded, no checkpoints are taken, event time stands still until all
        has come, and rolling operations give the last value of each key only. AUTOMATIC is that
        where all sources are bounded.

        >>> env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        """
        self._configuration.set(options.RUNTIME_MODE, execution_mode)
        return self

    def add_python_file(self, file_path: str) -> None:
        """Lets functions import a module, an archive or a folder of modules, wherever they run.

        May be called after the functions were defined, but before execute. Raises ConfigError where
        there is nothing at the path.

        >>> env.add_python_file("helpers/")
        """
        files = self._configuration.get(options.PYTHON_FILES)
        self._configuration.set(options.PYTHON_FILES, (*files, python_files.checked(file_path)))

    def register_slot_sharing_group(
        self, slot_sharing_group: SlotSharingGroup
    ) -> StreamExecutionEnvironment:
        """Keeps a group; without effect, since each slot hosts a subtask of every step."""
        self._slot_sharing_groups[slot_sharing_group.name] = slot_sharing_group
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
        if watermark_strategy is not None:
            checks.check_strategy(watermark_strategy, "from_source", can_rest=True)
        declared = declared_type(type_info, where="from_source")
        return self._read(source, watermark_strategy, source_name, declared)

    def from_collection(
        self, collection: Iterable[T], type_info: TypeHint | None = None
    ) -> DataStream[T]:
        """A bounded stream of these values, in order, at parallelism 1.

        type_info: brings them to a type, such as tuples to rows; left out, they are what they are.
        Raises GraphError for a value that cannot be of the type.

        >>> env.from_collection([("a", 1)], Types.ROW([Types.STRING(), Types.INT()]))
        """
        from tidegate.connectors.collection import CollectionSource

        values = list(collection)
        declared = declared_type(type_info, where="from_collection")
        if declared is not None:
            values = converted(values, declared, "from_collection")
        source = CollectionSource(values, declared)
        return self._read(source, None, "Collection Source", None, parallelism_max=1)

    def from_sequence(self, start: int, end: int) -> DataStream[int]:
        """The numbers from ``start`` to ``end``, both included, in order within a subtask.

        >>> env.from_sequence(1, 1_000_000)
        """
        from tidegate.connectors.generator import NumberSequenceSource

        return self._read(NumberSequenceSource(start, end), None, "Sequence Source", None)

    def generate(
        self,
        generator_function: Callable[[int], T],
        count: int | None = None,
        rate: float | None = None,
        type_info: TypeHint | None = None,
    ) -> DataStream[T]:
        """What a function gives for 0, 1, 2 and so on.

        count: how many records; None goes on for ever. rate: records a second over all subtasks;
        None makes as many as are taken.

        >>> env.generate(lambda n: {"sensor": n % 5, "reading": n / 7}, count=1_000, rate=100)
        """
        from tidegate.connectors.generator import DataGeneratorSource

        declared = result_type(type_info, generator_function, "generate")
        source = DataGeneratorSource(generator_function, count, rate, declared)
        return self._read(source, None, "Data Generator", declared)

    def read_text_file(self, file_path: str) -> DataStream[str]:
        """The lines of a text file, or of all files in a folder, each without its end.

        >>> env.read_text_file("logs/").filter(lambda line: "ERROR" in line)
        """
        from tidegate.connectors.files.source import FileSource

        return self._read(FileSource.text(file_path), None, "Text File Source", None)

    def from_spark(
        self,
        df: object,
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str = "Spark DataFrame",
        *,
        folder: str | None = None,
    ) -> DataStream[Any]:
        """A bounded stream of the rows of a Spark DataFrame: any table, file, JDBC or SQL query.

        Spark writes it as Parquet once, when the job starts and before it takes slots; readers
        keep positions in these files, which are deleted when the job has ended and keeps no
        checkpoint. Rows come as Arrow batches, as dicts in functions of rows.

        folder: where they are written; None is beside the checkpoints, or a temporary folder
        where there are none and Spark runs on this machine. Raises ConfigError, naming all columns
        at fault, for types that would not arrive as they are.

        >>> env.from_spark(spark.table("orders").where("price > 10"))
        """
        from tidegate.connectors.frames import FrameSource

        source = FrameSource(load_frames().StagedFrame(df, folder))
        return self._read(source, watermark_strategy, source_name, None)

    def _read(
        self,
        source: Source[Any],
        watermark_strategy: WatermarkStrategy | None,
        name: str,
        type_info: TypeInformation | None,
        *,
        parallelism_max: int | None = None,
    ) -> DataStream[Any]:
        from tidegate.operators.source import SourceReaderOperator

        operator = SourceReaderOperator(source, watermark_strategy, name, type_info)
        made = self._program.add(
            NodeKind.SOURCE, name, operator, stateful=True, parallelism_max=parallelism_max
        )
        return DataStream(self, self._program, made, type_info or source.produced_type)

    # Execution

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Runs the program built since the last execution, and waits for its end.

        Raises GraphError and ConfigError for a program that cannot run, JobFailed and JobCanceled
        for a job that did not finish. Ctrl-C cancels the job.
        """
        client = self.execute_async(job_name)
        try:
            return client.get_job_execution_result().result()
        except KeyboardInterrupt:
            cancel(client)
            raise

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Starts the program built since the last execution.

        Raises GraphError and ConfigError before anything is started.
        """
        stream_graph, graph = self._translated(self._program.take(), job_name)
        python_files.make_importable(self._configuration.get(options.PYTHON_FILES))
        if CHECK_VARIABLE in os.environ:
            return load_check(os.environ[CHECK_VARIABLE]).submit(graph)
        for node in stream_graph.nodes:
            node.operator.check()
        periodic = graph.settings.checkpoints.periodic
        warn(stream_graph, self._configuration, checkpointing=periodic)
        return self._make_runtime(self._configuration.copy()).submit(graph)

    def add_master_hook(self, hook: MasterTriggerRestoreHook[Any]) -> bool:
        """Let something outside of the jobs take part in their checkpoints.

        False, and nothing changes, where there is a hook of that identifier already. Raises
        ConfigError for a blank identifier.

        >>> env.add_master_hook(RemoteSnapshots())
        """
        name = hook.get_identifier()
        if not name.strip():
            raise ConfigError(
                "A master hook has a blank identifier",
                where="add_master_hook",
                remedy="Return a name from get_identifier; its state is found again by it.",
            )
        if name in self._hooks:
            return False
        self._hooks[name] = hook
        return True

    def add_failure_enricher(self, enricher: FailureEnricher) -> None:
        """Let something put labels on the failures of the jobs, as ``JobView.failures`` shows them.

        Raises ConfigError where it has no key, or one that another one has already.

        >>> env.add_failure_enricher(BlamesStorage())
        """
        keys = enricher.get_output_keys()
        taken = {key for known in self._enrichers for key in known.get_output_keys()}
        if not keys or not all(key.strip() for key in keys) or keys & taken:
            raise ConfigError(
                f"A failure enricher gives the keys {sorted(keys)}",
                where="add_failure_enricher",
                remedy="Return from get_output_keys at least one key, none of them blank"
                f"{f' or among {sorted(taken)}' if taken else ''}.",
            )
        self._enrichers.append(enricher)

    def register_job_listener(self, listener: JobStatusChangedListener) -> None:
        """Have something told each change of the status of the jobs, in order, with its time.

        Raises ConfigError for what is no listener.

        >>> env.register_job_listener(Pager())
        """
        if not callable(getattr(listener, "on_event", None)):
            raise ConfigError(
                f"{listener!r} is no job status listener",
                where="register_job_listener",
                remedy="Give an instance of a class derived from JobStatusChangedListener.",
            )
        self._listeners.append(listener)

    def get_job_graph(self, job_name: str | None = None) -> JobGraph:
        """The job as it would be submitted."""
        return self._translated(self._program.operators, job_name)[1]

    def explain(self, *, format: str = "text") -> str:
        """The job as it would run, for people: ``text``, or ``mermaid`` for a diagram.

        >>> print(env.explain())
        """
        graph = self.get_job_graph()
        match format:
            case "text":
                return explain_text(graph)
            case "mermaid":
                return explain_mermaid(graph)
            case _:
                raise GraphError(
                    f"There is no form {format!r} of explain",
                    where="explain",
                    remedy="Ask for 'text' or 'mermaid'.",
                )

    def get_execution_plan(self) -> str:
        """The operators as JSON in Flink's form (``nodes``), and the ``vertices`` made of them."""
        return execution_plan(*self._translated(self._program.operators, None))

    def _translated(
        self, operators: tuple[OperatorTransformation, ...], job_name: str | None
    ) -> tuple[StreamGraph, JobGraph]:
        max_parallelism = self.get_max_parallelism()
        stream_graph = build_stream_graph(
            operators, max_parallelism if max_parallelism > 0 else None
        )
        fork, named = map(self._configuration.get, (options.FORK_NAME, options.JOB_NAME))
        name = fork or job_name or named or _script_name()
        graph = translate(stream_graph, self._configuration, name)
        return stream_graph, replace(
            graph,
            hooks=tuple(self._hooks.values()),
            enrichers=tuple(self._enrichers),
            listeners=tuple(self._listeners),
        )


def _local_runtime(configuration: Configuration) -> Runtime:
    return load_runtime("local")(configuration)


def _environment(
    make_runtime: Callable[[Configuration], Runtime],
    parallelism: int | None,
    configuration: Configuration | None,
    session: Callable[[int], object] = lambda slots: None,
) -> StreamExecutionEnvironment:
    settings = configuration_from_outside(configuration)
    environment = StreamExecutionEnvironment(make_runtime, settings, session=session)
    return environment if parallelism is None else environment.set_parallelism(parallelism)


def _active_session() -> object:
    """The active Spark session, where this process has loaded PySpark at all."""
    sql: Any = sys.modules.get("pyspark.sql")
    return None if sql is None else sql.SparkSession.getActiveSession()


def _script_name() -> str:
    file: str | None = getattr(sys.modules.get("__main__"), "__file__", None)
    if not file:
        return "job"
    path = Path(file)
    return path.parent.name if path.stem == "__main__" else path.stem
