"""Streams united, sent around and cut to a few fields."""

from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.functions import KeySelector, Partitioner


class Modulo(Partitioner):
    def partition(self, key, num_partitions):
        return key % num_partitions


class First(KeySelector):
    def get_key(self, value):
        return value[0]


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
triple = Types.TUPLE([Types.INT(), Types.STRING(), Types.BOOLEAN()])
one = env.from_collection([(1, "a", True), (2, "b", False)], triple)
two = env.from_collection([(3, "c", True)], triple)
both = one.union(two)
both.project(1, 0).print("projected")
both.partition_custom(Modulo(), First()).map(
    lambda row: row[0] * 10, output_type=Types.INT()
).print("custom")
both.rebalance().map(lambda row: row[2], output_type=Types.BOOLEAN()).print("rebalanced")
both.rescale().shuffle().broadcast().filter(lambda row: row[2]).print("kept")
env.execute("partitions")
