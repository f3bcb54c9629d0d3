"""Windows of so many records; those that are not full at the end are dropped."""

from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.functions import WindowFunction
from pyflink.datastream.window import CountTrigger, CountWindow, GlobalWindows, PurgingTrigger

PAIRS = [(1, "hi"), (2, "hello"), (3, "hi"), (4, "hello"), (5, "hello"), (6, "hello"), (7, "hi")]


class Sum(WindowFunction[tuple, tuple, str, CountWindow]):
    def apply(self, key: str, window: CountWindow, inputs):
        return [(key, sum(each[0] for each in inputs))]


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
by_word = env.from_collection(PAIRS, Types.TUPLE([Types.INT(), Types.STRING()])).key_by(
    lambda pair: pair[1], key_type=Types.STRING()
)
out = Types.TUPLE([Types.STRING(), Types.INT()])
by_word.count_window(2).apply(Sum(), out).print("tumbling")
by_word.count_window(3, 1).apply(Sum(), out).print("sliding")
by_word.window(GlobalWindows.create()).trigger(PurgingTrigger.of(CountTrigger.of(3))).apply(
    Sum(), out
).print("global")
env.execute("counts")
