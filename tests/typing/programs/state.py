"""State is of what its descriptor says."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, assert_type

from tidegate import (
    AggregateFunction,
    AggregatingState,
    AggregatingStateDescriptor,
    BroadcastState,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    OperatorListState,
    OperatorStateDescriptor,
    ReadOnlyBroadcastState,
    ReducingState,
    ReducingStateDescriptor,
    RuntimeContext,
    Types,
    ValueState,
    ValueStateDescriptor,
)


@dataclass
class Sale:
    shop: str
    amount: float


class Mean(AggregateFunction[float, list[float], Decimal]):
    def create_accumulator(self) -> list[float]:
        return [0.0, 0.0]

    def add(self, value: float, accumulator: list[float]) -> list[float]:
        return [accumulator[0] + value, accumulator[1] + 1]

    def get_result(self, accumulator: list[float]) -> Decimal:
        return Decimal(accumulator[0] / accumulator[1])

    def merge(self, acc_a: list[float], acc_b: list[float]) -> list[float]:
        return [a + b for a, b in zip(acc_a, acc_b, strict=True)]


class Totals(KeyedProcessFunction[Sale, tuple[str, float]]):
    def open(self, runtime_context: RuntimeContext) -> None:
        get = runtime_context
        self.total = get.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.newest = get.get_state(ValueStateDescriptor("newest", Sale))
        self.pair = get.get_state(ValueStateDescriptor("pair", tuple[str, int]))
        self.anything = get.get_state(ValueStateDescriptor("anything"))
        self.sales = get.get_list_state(ListStateDescriptor("sales", Sale))
        self.texts = get.get_state(ValueStateDescriptor("texts", Types.LIST(Types.STRING())))
        self.counts = get.get_map_state(MapStateDescriptor("counts", Types.STRING(), int))
        self.most = get.get_reducing_state(ReducingStateDescriptor("most", most, float))
        self.mean = get.get_aggregating_state(AggregatingStateDescriptor("mean", Mean()))
        self.names = get.get_operator_list_state(OperatorStateDescriptor("names", str))

    def process_element(
        self, value: Sale, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[str, float]]:
        assert_type(self.total, ValueState[int])
        assert_type(self.total.value(), int | None)
        assert_type(self.newest, ValueState[Sale])
        assert_type(self.pair.value(), tuple[str, int] | None)
        assert_type(self.anything, ValueState[Any])
        assert_type(self.sales, ListState[Sale])
        assert_type(self.texts, ValueState[list[str]])
        assert_type(self.counts, MapState[str, int])
        assert_type(self.counts["x"], int | None)
        assert_type(self.most, ReducingState[float])
        assert_type(self.mean, AggregatingState[float, Decimal])
        assert_type(self.mean.get(), Decimal | None)
        assert_type(self.names, OperatorListState[str])
        assert_type(ctx.timestamp(), int | None)
        self.total.update("1")  # wrong
        self.sales.add(value.shop)  # wrong
        self.counts.put(1, 1)  # wrong
        self.mean.add("1")  # wrong
        yield value.shop, value.amount


def most(one: float, other: float) -> float:
    return max(one, other)


LIMITS = MapStateDescriptor("limits", str, float)


class Judge(KeyedBroadcastProcessFunction[str, Sale, tuple[str, float], str]):
    def process_element(
        self, value: Sale, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterator[str]:
        limits = ctx.get_broadcast_state(LIMITS)
        assert_type(limits, ReadOnlyBroadcastState[str, float])
        if value.amount > (limits.get(value.shop) or 0):
            yield value.shop

    def process_broadcast_element(
        self, value: tuple[str, float], ctx: KeyedBroadcastProcessFunction.Context
    ) -> None:
        limits = ctx.get_broadcast_state(LIMITS)
        assert_type(limits, BroadcastState[str, float])
        limits.put(*value)
        limits.put(value[0], value[0])  # wrong
