"""Rolling aggregates by position and by name."""

from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment

SALES = [("a", 3, 1.5), ("b", 7, 0.25), ("a", 1, 2.0), ("b", 9, 0.25), ("a", 3, 0.5)]

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
names = ["shop", "count", "price"]
types = [Types.STRING(), Types.INT(), Types.DOUBLE()]
tuples = env.from_collection(SALES, Types.TUPLE(types)).key_by(lambda sale: sale[0])
tuples.sum(1).print("sum")
tuples.min(1).print("min")
tuples.max(2).print("max")
tuples.min_by(1).print("min_by")
tuples.max_by(2).print("max_by")
rows = env.from_collection(SALES, Types.ROW_NAMED(names, types)).key_by(lambda sale: sale.shop)
rows.sum("count").print("row sum")
rows.max_by("price").print("row max_by")
env.execute("rolling")
