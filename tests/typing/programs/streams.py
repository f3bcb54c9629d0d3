"""Streams keep the type of their records from step to step."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import assert_type

from tidegate import (
    AggregateFunction,
    CountTrigger,
    DataStream,
    FilterFunction,
    FlatMapFunction,
    JobClient,
    JobView,
    KeyedStream,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    PurgingTrigger,
    StreamExecutionEnvironment,
    Time,
    TimeWindow,
    TriggerContext,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WindowedStream,
)


@dataclass
class Sale:
    shop: str
    amount: float


class Amount(MapFunction[Sale, float]):
    def map(self, value: Sale) -> float:
        return value.amount


class Words(FlatMapFunction[Sale, str]):
    def flat_map(self, value: Sale) -> Iterator[str]:
        yield value.shop


class Dear(FilterFunction[Sale]):
    def filter(self, value: Sale) -> bool:
        return value.amount > 10


class Cheap(FilterFunction[Sale]):
    """Parameters may have names of one's own."""

    def filter(self, sale: Sale) -> bool:
        return sale.amount < 1


class Total(AggregateFunction[Sale, float, float]):
    def create_accumulator(self) -> float:
        return 0.0

    def add(self, sale: Sale, total: float) -> float:
        return total + sale.amount

    def get_result(self, total: float) -> float:
        return total

    def merge(self, one: float, other: float) -> float:
        return one + other


class Wrong(MapFunction[Sale, float]):
    def map(self, value: Sale) -> str:  # wrong
        return value.shop


class Shops(ProcessFunction[Sale, str]):
    def process_element(self, value: Sale, ctx: ProcessFunction.Context) -> Iterator[str]:
        yield value.shop


class Count(AggregateFunction[Sale, int, str]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Sale, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> str:
        return str(accumulator)

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Largest(ProcessWindowFunction[Sale, float, str, TimeWindow]):
    def process(
        self,
        key: str,
        context: ProcessWindowFunction.Context[TimeWindow],
        elements: Iterable[Sale],
    ) -> Iterator[float]:
        assert_type(context.window(), TimeWindow)
        yield max(sale.amount for sale in elements)


def larger(one: Sale, other: Sale) -> Sale:
    return max(one, other, key=lambda sale: sale.amount)


def shop_of(sale: Sale) -> str:
    return sale.shop


def first(key: str, window: TimeWindow, sales: Iterable[Sale]) -> Iterable[int]:
    return [window.start]


def program(env: StreamExecutionEnvironment) -> None:
    sales = env.from_collection([Sale("x", 1.0)])
    assert_type(sales, DataStream[Sale])
    assert_type(sales.map(Amount()), DataStream[float])
    assert_type(sales.map(shop_of), DataStream[str])
    assert_type(sales.map(lambda sale: sale.amount), DataStream[float])
    assert_type(sales.filter(Dear()), DataStream[Sale])
    assert_type(sales.flat_map(Words()), DataStream[str])
    assert_type(sales.process(Shops()), DataStream[str])
    assert_type(sales.union(sales), DataStream[Sale])
    sales.map(lambda sale: sale.amout)  # wrong
    sales.union(sales.map(shop_of))  # wrong
    sales.map(shop_of).map(Amount())  # wrong

    keyed = sales.key_by(shop_of)
    assert_type(keyed, KeyedStream[Sale])
    assert_type(keyed.reduce(larger), DataStream[Sale])

    hours = keyed.window(TumblingEventTimeWindows.of(Time.hours(1)))
    assert_type(hours, WindowedStream[Sale])
    assert_type(hours.trigger(CountTrigger.of(3)), WindowedStream[Sale])
    assert_type(hours.trigger(PurgingTrigger.of(CountTrigger.of(3))), WindowedStream[Sale])
    assert_type(hours.reduce(larger), DataStream[Sale])
    assert_type(hours.reduce(larger, Largest()), DataStream[float])
    assert_type(hours.aggregate(Count()), DataStream[str])
    assert_type(hours.process(Largest()), DataStream[float])
    assert_type(hours.apply(first), DataStream[int])
    hours.reduce(shop_of)  # wrong
    every: CountTrigger[Sale] = CountTrigger.of(3)
    hours.trigger(every)

    for sale in keyed.reduce(larger).execute_and_collect():
        assert_type(sale, Sale)


def at_work(client: JobClient, ctx: TriggerContext) -> None:
    assert_type(client.view(), JobView)
    fired = ctx.get_partitioned_state(ValueStateDescriptor("fired", Types.BOOLEAN()))
    assert_type(fired.value(), bool | None)


def side_outputs(sales: DataStream[Sale]) -> None:
    cheap = OutputTag("cheap", Types.STRING())
    assert_type(cheap, OutputTag[str])
    assert_type(sales.process(Shops()).get_side_output(cheap), DataStream[str])
    sales.get_side_output(cheap).map(lambda shop: shop.amount)  # wrong
    assert_type(sales.filter(Cheap()), DataStream[Sale])
