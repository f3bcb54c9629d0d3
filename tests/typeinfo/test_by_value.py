"""What cannot be imported elsewhere goes by value, also after it was state."""

import dataclasses
import pickle
from dataclasses import dataclass, fields

from tidegate import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from tidegate.typeinfo.by_value import pickled_by_value
from tidegate.typeinfo.hints import type_of_hint
from tidegate.typeinfo.serializers import serializer_of


def local_class() -> type:
    @dataclass
    class Spent:
        orders: int

    return Spent


def test_a_class_that_was_read_and_written_goes_by_value_and_is_read_and_written_again() -> None:
    spent = local_class()
    for _ in range(2):
        serializer = serializer_of(type_of_hint(spent))
        assert serializer.decode_many(serializer.encode_many([spent(3)])) == [spent(3)]
        assert pickle.loads(pickled_by_value([spent, spent(4)]))[1].orders == 4


def test_a_dataclass_that_goes_by_value_keeps_which_fields_have_no_default() -> None:
    spent = local_class()
    for each in (pickle.loads(pickled_by_value(spent)), spent):
        assert [field.default is dataclasses.MISSING for field in fields(each)] == [True]


def test_a_program_with_a_class_of_its_own_in_state_runs_again_in_one_process() -> None:
    spent = local_class()

    class Totals(KeyedProcessFunction[int, int]):
        def open(self, runtime_context: RuntimeContext) -> None:
            self._spent = runtime_context.get_state(ValueStateDescriptor("spent", spent))

        def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> list[int]:
            orders = getattr(self._spent.value(), "orders", 0) + 1
            self._spent.update(spent(orders))
            return [orders]

    for _ in range(2):
        env = StreamExecutionEnvironment.local()
        numbers = env.from_collection([1, 1, 2], Types.LONG()).key_by(lambda n: n, Types.LONG())
        with numbers.process(Totals()).execute_and_collect() as results:
            assert sorted(results) == [1, 1, 2]
