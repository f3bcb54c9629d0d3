"""Words of a few lines, counted as they come."""

from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment

LINES = ["to be or not to be", "that is the question", "to sleep to dream"]

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
counts = (
    env.from_collection(LINES, Types.STRING())
    .flat_map(lambda line: line.split(), output_type=Types.STRING())
    .map(lambda word: (word, 1), output_type=Types.TUPLE([Types.STRING(), Types.INT()]))
    .key_by(lambda pair: pair[0], key_type=Types.STRING())
    .reduce(lambda one, other: (one[0], one[1] + other[1]))
)
counts.print()
env.execute("word count")
