"""Every setting that PyFlink takes can be read back; what has no effect here says so."""

from pathlib import Path

import pytest

from tidegate import (
    BaseBroadcastProcessFunction,
    Configuration,
    EmbeddedRocksDBStateBackend,
    ExecutionConfig,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
    MemorySize,
    PredefinedOptions,
    Row,
    SlotSharingGroup,
    StateTtlConfig,
    StreamExecutionEnvironment,
    Time,
    Types,
)
from tidegate.config import state_backend
from tidegate.config.configuration import configuration_warnings
from tidegate.connectors import (
    BucketAssigner,
    Encoder,
    JdbcConnectionOptions,
    JdbcExecutionOptions,
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
    OutputFileConfig,
)
from tidegate.errors import ConfigError

GETTERS = ("get_", "is_", "has_")


def setters(kind: type) -> list[str]:
    return [name for name in dir(kind) if name.startswith("set_")]


@pytest.mark.parametrize(
    "kind", [ExecutionConfig, EmbeddedRocksDBStateBackend, StreamExecutionEnvironment]
)
def test_every_setter_of_a_value_has_its_getter(kind: type) -> None:
    known = {"set_python_requirements", "set_python_executable", "set_runtime_mode"}
    known |= {"set_restart_strategy", "set_state_backend"}  # asked for by get_configuration
    missing = [
        name
        for name in set(setters(kind)) - known
        if not any(hasattr(kind, f"{get}{name.removeprefix('set_')}") for get in GETTERS)
    ]
    assert missing == []


def test_settings_of_the_jvm_are_kept() -> None:
    config = StreamExecutionEnvironment.local().get_config()
    assert config.get_latency_tracking_interval() == 0
    assert config.set_latency_tracking_interval(7).get_latency_tracking_interval() == 7
    assert config.get_task_cancellation_interval() == 30_000
    assert config.set_task_cancellation_interval(8).get_task_cancellation_interval() == 8
    assert config.get_task_cancellation_timeout() == 180_000
    assert config.set_task_cancellation_timeout(9).get_task_cancellation_timeout() == 9
    assert config.is_closure_cleaner_enabled()
    assert not config.disable_closure_cleaner().is_closure_cleaner_enabled()
    assert config.enable_closure_cleaner().is_closure_cleaner_enabled()
    assert (ExecutionConfig.PARALLELISM_DEFAULT, ExecutionConfig.PARALLELISM_UNKNOWN) == (-1, -2)


def test_a_group_of_slots_tells_its_resources() -> None:
    group = (
        SlotSharingGroup.Builder("heavy")
        .set_cpu_cores(1.5)
        .set_task_heap_memory(MemorySize(1024))
        .set_task_off_heap_memory_mb(2)
        .set_external_resource("gpu", 1.0)
        .build()
    )
    assert group.get_cpu_cores() == 1.5
    assert group.get_task_heap_memory() == MemorySize(1024)
    assert group.get_task_off_heap_memory() == MemorySize.of_mebi_bytes(2)
    assert group.get_managed_memory() == MemorySize(0)
    assert group.get_external_resources() == {"gpu": 1.0}
    assert SlotSharingGroup.builder("light").build().get_managed_memory() is None


def test_a_memory_size_is_told_in_each_unit_and_ordered() -> None:
    size = MemorySize.of_mebi_bytes(3 * 1024)
    assert (size.get_bytes(), size.get_kibi_bytes()) == (3 << 30, 3 << 20)
    assert (size.get_mebi_bytes(), size.get_gibi_bytes(), size.get_tebi_bytes()) == (3072, 3, 0)
    assert size > MemorySize(1) and str(size) == "3 gb" and str(MemorySize(5)) == "5 bytes"


def test_a_rocksdb_backend_tells_its_options() -> None:
    backend = EmbeddedRocksDBStateBackend()
    assert backend.get_predefined_options() is PredefinedOptions.DEFAULT
    backend.set_predefined_options(PredefinedOptions.FLASH_SSD_OPTIMIZED)
    assert backend.get_predefined_options() is PredefinedOptions.FLASH_SSD_OPTIMIZED
    assert backend.get_number_of_transfer_threads() == state_backend.TRANSFER_THREADS.default
    backend.set_number_of_transfer_threads(7)
    configuration = Configuration()
    backend.apply_to(configuration)
    assert configuration.get(state_backend.TRANSFER_THREADS) == 7
    assert backend.get_number_of_transfer_threads() == 7


def test_checkpoint_storages_tell_what_they_were_given() -> None:
    in_memory = JobManagerCheckpointStorage("file:///chk", 1_000)
    assert (in_memory.get_checkpoint_path(), in_memory.get_max_state_size()) == (
        "file:///chk",
        1000,
    )
    assert in_memory.get_savepoint_path() is None
    assert JobManagerCheckpointStorage().get_max_state_size() == 5 * 1024 * 1024
    assert JobManagerCheckpointStorage.DEFAULT_MAX_STATE_SIZE == 5 * 1024 * 1024
    in_files = FileSystemCheckpointStorage("file:///chk", 10, 20)
    assert (in_files.get_min_file_size_threshold(), in_files.get_write_buffer_size()) == (10, 20)
    assert FileSystemCheckpointStorage("file:///chk").get_write_buffer_size() == 4096
    assert FileSystemCheckpointStorage.MAX_FILE_STATE_THRESHOLD == 1024 * 1024


def test_a_configuration_begins_with_another_and_goes_its_own_way() -> None:
    first = Configuration().set_string("my.key", "1")
    second = Configuration(first).set_string("my.key", "2")
    assert first.get_string("my.key", "") == "1" and second.get_string("my.key", "") == "2"


def test_a_configuration_keeps_bytes_and_lists() -> None:
    configuration = Configuration().set_bytearray("my.bytes", bytearray(b"\x00\xff"))
    assert configuration.get_bytearray("my.bytes", bytearray()) == b"\x00\xff"
    assert configuration.get_bytearray("others", bytearray(b"x")) == b"x"
    configuration.set("my.list", ["a", "b"])
    listed = Configuration.parse_list_value(configuration.get_string("my.list", ""))
    assert listed == ["a", "b"]
    with pytest.raises(ConfigError, match="not Base64"):
        configuration.get_bytearray("my.list", bytearray())


def test_files_for_the_workers_of_pyflink_are_kept_and_warned_about(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.local()
    env.set_python_requirements("requirements.txt", "cache")
    env.add_python_archive("venv.zip")
    env.add_python_archive("model.zip", "model")
    env.set_python_executable("venv.zip/bin/python")
    env.add_jars("file:///a.jar", "file:///b.jar")
    env.add_classpaths("file:///c.jar")
    kept = env.get_configuration()
    assert kept.get_string("python.requirements", "") == "requirements.txt#cache"
    assert kept.get_string("python.archives", "") == "venv.zip;model.zip#model"
    assert kept.get_string("pipeline.jars", "") == "file:///a.jar;file:///b.jar"
    warned = " ".join(configuration_warnings(kept))
    for key in ("python.requirements", "python.archives", "python.executable", "pipeline.jars"):
        assert f"{key} is an option of Flink that Tidegate does not read" in warned
    assert env.get_default_local_parallelism() == 1
    env.set_default_local_parallelism(4)
    assert env.get_default_local_parallelism() == 4


def test_builders_have_their_places_and_options_their_getters() -> None:
    ttl = StateTtlConfig.Builder(Time.hours(1)).build()
    assert ttl == StateTtlConfig.new_builder(Time.hours(1)).build()
    named = OutputFileConfig.OutputFileConfigBuilder().with_part_prefix("a").with_part_suffix(".b")
    assert (named.build().get_part_prefix(), named.build().get_part_suffix()) == ("a", ".b")
    row_type = Types.ROW_NAMED(["a"], [Types.INT()])
    written = JsonRowSerializationSchema.Builder().with_type_info(row_type).build()
    read = JsonRowDeserializationSchema.Builder().type_info(row_type).build()
    assert read.deserialize(written.serialize(Row(a=1)) or b"") == Row(a=1)
    batches = JdbcExecutionOptions.Builder().with_batch_size(3).with_max_retries(1).build()
    assert (batches.get_batch_size(), batches.get_max_retries()) == (3, 1)
    assert batches.get_batch_interval_ms() == 0
    builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("jdbc:sqlite:a.db")
    options = builder.with_user_name("u").with_password("p").build()
    assert options.get_db_url() == "jdbc:sqlite:a.db" and options.get_driver_name() is None
    assert (options.get_user_name(), options.get_password()) == ("u", "p")


def test_the_older_file_sink_is_the_file_sink(tmp_path: Path, pyflink: None) -> None:
    from pyflink.datastream.connectors.file_system import StreamingFileSink

    env = StreamExecutionEnvironment.local(1)
    sink = StreamingFileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    sink = sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    env.from_collection(["a", "b"], Types.STRING()).add_sink(sink.build())
    env.execute()
    parts = [path.read_text() for path in tmp_path.iterdir()]
    assert parts == ["a\nb\n"]


def test_contexts_of_broadcast_functions_can_be_named_by_their_base() -> None:
    assert BaseBroadcastProcessFunction.Context and BaseBroadcastProcessFunction.ReadOnlyContext
    assert BaseBroadcastProcessFunction.BaseContext
