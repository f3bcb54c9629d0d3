"""State that lives for an hour, with all that its configuration can say."""

from pyflink.common import Time, Types
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.functions import FlatMapFunction, RuntimeContext
from pyflink.datastream.state import StateTtlConfig, ValueStateDescriptor


class CountAndMean(FlatMapFunction):
    def __init__(self):
        self.sum = None

    def open(self, runtime_context: RuntimeContext):
        descriptor = ValueStateDescriptor("mean", Types.TUPLE([Types.LONG(), Types.LONG()]))
        config = (
            StateTtlConfig.new_builder(Time.hours(1))
            .set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)
            .set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)
            .cleanup_full_snapshot()
            .build()
        )
        assert config.get_ttl() == Time.hours(1) and config.is_enabled()
        descriptor.enable_time_to_live(config)
        self.sum = runtime_context.get_state(descriptor)

    def flat_map(self, value):
        count, total = self.sum.value() or (0, 0)
        count, total = count + 1, total + value[1]
        self.sum.update((count, total))
        if count >= 2:
            self.sum.clear()
            yield value[0], total // count


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
(
    env.from_collection([(1, 3), (1, 5), (1, 7), (1, 4), (1, 2)])
    .key_by(lambda row: row[0])
    .flat_map(CountAndMean())
    .print()
)
env.execute("ttl")
