"""Values of each type, as print writes them."""

import datetime
from decimal import Decimal

from pyflink.common import Row, RowKind, Types
from pyflink.datastream import StreamExecutionEnvironment

NUMBERS = [0.1, 1.0, 1e7, 12345678.0, 1e10, 1e-3, 1e-4, 3.4e38, 0.3, float("nan"), -0.0, 100.0]

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.from_collection(NUMBERS, Types.FLOAT()).print("float")
env.from_collection(NUMBERS, Types.DOUBLE()).print("double")
pairs = Types.TUPLE([Types.FLOAT(), Types.DOUBLE()])
env.from_collection([(x, x) for x in NUMBERS], pairs).print("tuple")
rows = Types.ROW_NAMED(["f", "d"], [Types.FLOAT(), Types.DOUBLE()])
env.from_collection([Row(f=x, d=x) for x in NUMBERS], rows).print("row")
env.from_collection([True, False], Types.BOOLEAN()).print("truth")
mixed = Types.ROW([Types.STRING(), Types.BOOLEAN(), Types.INT()])
env.from_collection(
    [Row("a", True, None), Row.of_kind(RowKind.UPDATE_BEFORE, "b", False, 2)], mixed
).print("kinds")
numbers = env.from_collection([1, 2], Types.INT())
numbers.map(lambda n: (n, str(n), None)).print("any")
numbers.map(lambda n: [n, n + 1], Types.LIST(Types.INT())).print("list")
numbers.map(lambda n: {"n": n}, Types.MAP(Types.STRING(), Types.INT())).print("map")
numbers.map(lambda n: [n / 2, 1e8], Types.PRIMITIVE_ARRAY(Types.DOUBLE())).map(
    lambda values: sum(values), Types.DOUBLE()
).print("array")
numbers.map(lambda n: Decimal(n) / 4, Types.BIG_DEC()).print("decimal")
numbers.map(lambda n: datetime.date(2024, 2, n), Types.SQL_DATE()).print("date")
numbers.map(lambda n: datetime.time(1, 2, n), Types.SQL_TIME()).print("time")
numbers.map(
    lambda n: datetime.datetime.fromisoformat(f"2024-01-0{n}T03:04:05.120"), Types.SQL_TIMESTAMP()
).print("timestamp")
env.execute("printed")
