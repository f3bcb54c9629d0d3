"""JSON texts taken apart, changed and written again."""

import json

from pyflink.common import Row, Types
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.functions import FlatMapFunction, MapFunction

ORDERS = [
    (1, '{"name": "hammer", "tel": 123, "addr": {"country": "Germany", "city": "Berlin"}}'),
    (2, '{"name": "saw", "tel": 135, "addr": {"country": "China", "city": "Shanghai"}}'),
    (3, '{"name": "drill", "tel": 124, "addr": {"country": "USA", "city": "NewYork"}}'),
]


class Louder(MapFunction):
    def map(self, value):
        data = json.loads(value.data)
        data["tel"] += 1
        return Row(id=value.id, name=data["name"].upper(), data=json.dumps(data))


class Places(FlatMapFunction):
    def flat_map(self, value):
        address = json.loads(value.data)["addr"]
        yield value.id, address["country"]
        yield value.id, address["city"]


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
orders = env.from_collection(ORDERS, Types.ROW_NAMED(["id", "data"], [Types.INT(), Types.STRING()]))
louder = orders.map(
    Louder(),
    Types.ROW_NAMED(["id", "name", "data"], [Types.INT(), Types.STRING(), Types.STRING()]),
)
louder.print("louder")
orders.flat_map(Places(), Types.TUPLE([Types.INT(), Types.STRING()])).print("place")
orders.filter(lambda row: json.loads(row.data)["tel"] > 123).print("filtered")
env.execute("json")
