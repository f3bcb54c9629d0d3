"""The same in batch mode: one result a key."""

from pyflink.common import Types
from pyflink.datastream import RuntimeExecutionMode, StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
env.set_parallelism(1)
pairs = env.from_collection(
    [("a", 3), ("b", 7), ("a", 1), ("b", 9), ("c", 5)], Types.TUPLE([Types.STRING(), Types.INT()])
)
by_name = pairs.key_by(lambda pair: pair[0])
by_name.reduce(lambda one, other: (one[0], one[1] + other[1])).print("reduced")
by_name.max(1).print("max")
env.execute("batch")
