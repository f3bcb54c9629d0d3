"""A job's settings, read where the functions run, and results collected by the program."""

from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import (
    CheckpointingMode,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    MemorySize,
    SlotSharingGroup,
    StreamExecutionEnvironment,
)
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.functions import MapFunction, RuntimeContext

configuration = Configuration()
configuration.set_string("pipeline.name", "configured").set_integer("parallelism.default", 1)
copied = Configuration(configuration)
copied.set_boolean("my.flag", True).set_bytearray("my.bytes", bytearray(b"ab"))
print(copied.get_boolean("my.flag", False), copied.get_bytearray("my.bytes", bytearray()))
print(copied.contains_key("pipeline.name"), sorted(copied.key_set() - {"my.bytes"}))

env = StreamExecutionEnvironment.get_execution_environment(configuration)
env.set_parallelism(1).set_max_parallelism(64)
env.get_config().set_global_job_parameters({"factor": "3"})
env.get_config().set_auto_watermark_interval(100).set_latency_tracking_interval(5)
config = env.get_config()
print(config.get_auto_watermark_interval(), config.get_latency_tracking_interval())
print(config.get_task_cancellation_interval(), config.get_task_cancellation_timeout())
print(config.is_closure_cleaner_enabled(), config.is_object_reuse_enabled())
checkpoints = env.get_checkpoint_config()
checkpoints.set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE).set_checkpoint_timeout(5_000)
print(checkpoints.get_checkpoint_timeout(), checkpoints.get_checkpointing_mode().name)
print(env.get_parallelism(), env.get_max_parallelism(), checkpoints.is_checkpointing_enabled())
group = SlotSharingGroup.builder("heavy").set_cpu_cores(1.0).set_task_heap_memory_mb(100).build()
print(group.get_name(), group.get_cpu_cores(), group.get_task_heap_memory().get_mebi_bytes())
print(MemorySize.of_mebi_bytes(512), MemorySize.of_mebi_bytes(1) < MemorySize.of_mebi_bytes(2))
print(isinstance(HashMapStateBackend(), EmbeddedRocksDBStateBackend))
print(Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.INT()]))
print(Types.TUPLE([Types.STRING(), Types.LIST(Types.LONG())]) == Types.TUPLE([Types.STRING()]))


class Times(MapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.factor = int(runtime_context.get_job_parameter("factor", "1"))
        self.where = (
            runtime_context.get_index_of_this_subtask(),
            runtime_context.get_number_of_parallel_subtasks(),
            runtime_context.get_max_number_of_parallel_subtasks(),
        )

    def map(self, value):
        return f"{value * self.factor} {self.where}"


numbers = env.from_source(
    NumberSequenceSource(1, 4), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
)
with numbers.map(Times(), Types.STRING()).execute_and_collect("collected") as results:
    print(sorted(results))
