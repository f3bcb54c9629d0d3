"""What a function gives that cannot be taken is told with the step, the row and a remedy."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tidegate import (
    AggregateFunction,
    AggregatingStateDescriptor,
    BroadcastProcessFunction,
    CheckpointedFunction,
    CoFlatMapFunction,
    Configuration,
    DataStream,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapFunction,
    MapStateDescriptor,
    OperatorStateDescriptor,
    ProcessFunction,
    ProcessJoinFunction,
    ReduceFunction,
    ReducingStateDescriptor,
    RuntimeContext,
    SnapshotContext,
    StateTtlConfig,
    Time,
    Types,
    UserCodeFailed,
    UserError,
    ValueStateDescriptor,
)
from tidegate.errors import with_article
from tidegate.testing import OperatorHarness

Build = Callable[..., DataStream[Any]]
RULES = MapStateDescriptor("rules")


class Process(ProcessFunction[Any, Any]):
    def __init__(self, result: object) -> None:
        self._result: Any = result

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        return self._result


class Keyed(KeyedProcessFunction[Any, Any]):
    """Gives one result for a record, another for its timer."""

    def __init__(self, result: object, timed: object = None) -> None:
        self._result: Any = result
        self._timed: Any = timed

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        ctx.timer_service().register_event_time_timer(10)
        return self._result

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        return self._timed


class Both(CoFlatMapFunction[Any, Any, Any]):
    def __init__(self, result: object) -> None:
        self._result: Any = result

    def flat_map1(self, value: Any) -> Any:
        return self._result

    def flat_map2(self, value: Any) -> Any:
        return self._result


class Broadcast(BroadcastProcessFunction[Any, Any, Any]):
    def __init__(self, result: object) -> None:
        self._result: Any = result

    def process_element(self, value: Any, ctx: Any) -> Any:
        return self._result

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        return None


class Joined(ProcessJoinFunction[Any, Any, Any]):
    def __init__(self, result: object) -> None:
        self._result: Any = result

    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        return self._result


def one(value: object) -> object:
    return value


def joined(left: DataStream[Any], right: DataStream[Any], result: object) -> DataStream[Any]:
    pairs = left.key_by(one).interval_join(right.key_by(one))
    return pairs.between(Time.milliseconds(0), Time.milliseconds(5)).process(Joined(result))


GIVING: dict[str, tuple[int, Callable[[object], Build]]] = {
    "flat_map": (1, lambda result: lambda s: s.flat_map(lambda value: result)),
    "process": (1, lambda result: lambda s: s.process(Process(result))),
    "keyed flat_map": (1, lambda r: lambda s: s.key_by(one).flat_map(lambda value: r)),
    "keyed process": (1, lambda result: lambda s: s.key_by(one).process(Keyed(result))),
    "on_timer": (1, lambda result: lambda s: s.key_by(one).process(Keyed(None, result))),
    "co_flat_map": (2, lambda result: lambda s, t: s.connect(t).flat_map(Both(result))),
    "keyed co_flat_map": (
        2,
        lambda result: lambda s, t: s.connect(t).key_by(one, one).flat_map(Both(result)),
    ),
    "broadcast": (
        2,
        lambda result: lambda s, t: s.connect(t.broadcast(RULES)).process(Broadcast(result)),
    ),
    "interval join": (2, lambda result: lambda s, t: joined(s, t, result)),
}


@pytest.mark.parametrize("result", [5, 5.5, True, "text", b"bytes", object])
@pytest.mark.parametrize(("inputs", "build"), GIVING.values(), ids=GIVING)
def test_what_is_no_iterable_of_records_is_told(
    inputs: int, build: Callable[[object], Build], result: object
) -> None:
    def named(*streams: DataStream[Any]) -> DataStream[Any]:
        return build(result)(*streams).name("bad")

    with OperatorHarness(named, inputs=inputs) as harness, pytest.raises(UserCodeFailed) as failed:
        for number in range(inputs):
            harness.process(7, timestamp=3, source=number)
        harness.watermark(20)
    message = str(failed.value)
    kind = with_article(type(result))
    assert f"'bad' returned {result!r}, {kind}, and not single records" in message
    assert "at the row 7" in message or "in its on_timer" in message
    assert "Yield each record, or return a list of them" in message


@pytest.mark.parametrize("result", [None, [], (), iter(()), {}, ["yes"]])
@pytest.mark.parametrize(("inputs", "build"), GIVING.values(), ids=GIVING)
def test_none_and_any_other_iterable_are_fine(
    inputs: int, build: Callable[[object], Build], result: Any
) -> None:
    with OperatorHarness(build(result), inputs=inputs) as harness:
        for number in range(inputs):
            harness.process(7, timestamp=3, source=number)
        harness.watermark(20)
        assert set(harness.take()) == ({"yes"} if result == ["yes"] else set())


def test_a_generator_that_fails_is_told_as_it_fails() -> None:
    def broken(value: int) -> Any:
        yield value
        raise TypeError("'int' object is not iterable, said the user")

    told = "raised TypeError: 'int' object is not iterable"
    harness = OperatorHarness(lambda s: s.flat_map(broken).name("bad"))
    with harness, pytest.raises(UserCodeFailed, match=told):
        harness.process(7)


class Lazy:
    """Begins anew each time it is gone through."""

    def __iter__(self) -> Iterator[Any]:
        return mixed()


def mixed() -> Any:
    """What a generator function gives that yields and returns a value."""
    yield "one"
    return ["two"]


@pytest.mark.parametrize(("inputs", "build"), GIVING.values(), ids=GIVING)
@pytest.mark.parametrize("reuse", ["true", "false"])
def test_a_generator_that_also_returns_a_value_is_told(
    inputs: int, build: Callable[[object], Build], reuse: str
) -> None:
    def named(*streams: DataStream[Any]) -> DataStream[Any]:
        return build(Lazy())(*streams).name("bad")

    settings = Configuration.from_dict({"pipeline.object-reuse": reuse})
    harness = OperatorHarness(named, inputs=inputs, configuration=settings)
    with harness, pytest.raises(UserCodeFailed) as failed:
        for number in range(inputs):
            harness.process(7, timestamp=3, source=number)
        harness.watermark(20)
    message = str(failed.value)
    assert "'bad' yields records and also returned ['two'], which would be lost" in message
    assert "at the row 7" in message or "in its on_timer" in message
    assert "Yield what it returns" in message


# State where there are no keys


class Asking(MapFunction[Any, Any]):
    def __init__(self, call: str, descriptor: object) -> None:
        self._call = call
        self._descriptor = descriptor

    def open(self, runtime_context: RuntimeContext) -> None:
        getattr(runtime_context, self._call)(self._descriptor)

    def map(self, value: Any) -> Any:
        return value


class Total(AggregateFunction[Any, Any, Any]):
    """A sum whose ``add`` forgets to return what it has gathered."""

    def create_accumulator(self) -> Any:
        return [0]

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator[0] += value

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0]

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return [acc_a[0] + acc_b[0]]


KINDS: dict[str, object] = {
    "get_state": ValueStateDescriptor("held", Types.LONG()),
    "get_list_state": ListStateDescriptor("held", Types.LONG()),
    "get_map_state": MapStateDescriptor("held", Types.STRING(), Types.LONG()),
    "get_reducing_state": ReducingStateDescriptor("held", lambda old, new: new, Types.LONG()),
    "get_aggregating_state": AggregatingStateDescriptor("held", Total(), Types.LONG()),
}


@pytest.mark.parametrize(("call", "descriptor"), KINDS.items(), ids=KINDS)
def test_keyed_state_without_keys_is_refused_in_open(call: str, descriptor: object) -> None:
    with pytest.raises(UserError) as refused:
        OperatorHarness(lambda stream: stream.map(Asking(call, descriptor)).name("bad"))
    message = str(refused.value)
    assert f"{call} asks for keyed state on a stream without keys" in message
    assert "operator 'bad', state 'held'" in message
    assert "Call key_by before the step" in message


@pytest.mark.parametrize(("call", "descriptor"), KINDS.items(), ids=KINDS)
def test_with_keys_it_is_given(call: str, descriptor: object) -> None:
    with OperatorHarness(lambda s: s.key_by(one).map(Asking(call, descriptor))) as harness:
        harness.process(1)
        assert harness.take() == [1]


# An aggregate that gathers and gives nothing


class Adding(KeyedProcessFunction[int, int]):
    """Adds to an aggregating state, and gives what is in it."""

    def __init__(self, descriptor: Any) -> None:
        self._descriptor = descriptor

    def open(self, runtime_context: RuntimeContext) -> None:
        self._state = runtime_context.get_aggregating_state(self._descriptor)

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Any:
        self._state.add(value)
        yield self._state.get()


TOTAL = AggregatingStateDescriptor("total", Total())


def living(descriptor: Any) -> Any:
    made = copy.copy(descriptor)
    made.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
    return made


@pytest.mark.parametrize("descriptor", [TOTAL, living(TOTAL)], ids=["for ever", "time to live"])
def test_an_add_that_gives_no_accumulator_fails_the_job(descriptor: object) -> None:
    def step(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by(lambda value: 0).process(Adding(descriptor)).name("bad")

    with OperatorHarness(step) as harness, pytest.raises(UserCodeFailed) as failed:
        harness.process_all([1, 2])
    assert "operator 'bad'" in str(failed.value)
    assert "AggregateFunction.add of state 'total' has returned None" in str(failed.value)


class Forgets(ReduceFunction[Any]):
    """Changes a row, and forgets to return it."""

    def reduce(self, value1: Any, value2: Any) -> Any:
        value1["n"] += value2["n"]


class ForgetsByRow(Forgets):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.opened = runtime_context


@pytest.mark.parametrize("forgets", [Forgets, ForgetsByRow])
def test_a_reduce_that_gives_nothing_fails_the_job(forgets: type[ReduceFunction[Any]]) -> None:
    def step(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("k").reduce(forgets()).name("bad")

    with OperatorHarness(step) as harness, pytest.raises(UserCodeFailed) as failed:
        harness.process_all([{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "a", "n": 3}])
    assert failed.value.where == "operator 'bad', at the row {'k': 'a', 'n': 3}"
    assert "the reduce function has returned None" in failed.value.what


# Values of another type than a state's


class Holding(KeyedProcessFunction[Any, Any]):
    """Puts each record into a state."""

    def __init__(self, call: str, descriptor: object, put: Callable[[Any, Any], Any]) -> None:
        self._call = call
        self._descriptor = descriptor
        self._put = put

    def open(self, runtime_context: RuntimeContext) -> None:
        self._state = getattr(runtime_context, self._call)(self._descriptor)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield self._put(self._state, value)


class Listing(MapFunction[Any, Any], CheckpointedFunction):
    """Keeps records in a list of the subtask's."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._held = runtime_context.get_operator_list_state(
            OperatorStateDescriptor("held", Types.LONG())
        )

    def map(self, value: Any) -> Any:
        self._held.add(value)
        return value

    def snapshot_state(self, context: SnapshotContext) -> None:
        pass


def holding(call: str, descriptor: object, put: Callable[[Any, Any], object]) -> Build:
    return lambda s: s.key_by(lambda value: "k").process(Holding(call, descriptor, put))


HELD: dict[str, tuple[Build, list[str]]] = {
    "value": (
        holding("get_state", KINDS["get_state"], lambda s, v: s.update(v)),
        ["type, Long: 'five', a str, is not of type Long", "at the entry 'five'"],
    ),
    "value with a time to live": (
        holding(
            "get_state",
            living(ValueStateDescriptor("held", Types.LONG())),
            lambda s, v: s.update(v),
        ),
        ["'five', a str, is not of type Long"],
    ),
    "list": (
        holding("get_list_state", KINDS["get_list_state"], lambda s, v: s.update([v])),
        ["field '[0]': 'five', a str, is not of type Long"],
    ),
    "map": (
        holding("get_map_state", KINDS["get_map_state"], lambda s, v: s.put("a", v)),
        ["'five', a str, is not of type Long", "at the entry {'a': 'five'}"],
    ),
    "reducing": (
        holding("get_reducing_state", KINDS["get_reducing_state"], lambda s, v: s.add(v)),
        ["type, Long: 'five', a str, is not of type Long"],
    ),
    "operator list": (
        lambda s: s.map(Listing()),
        ["operator state 'held'", "a str, is not of type Long"],
    ),
}


@pytest.mark.parametrize(("build", "told"), HELD.values(), ids=HELD)
def test_a_value_of_another_type_is_refused_at_the_next_snapshot(
    build: Build, told: list[str]
) -> None:
    with OperatorHarness(lambda stream: build(stream).name("bad")) as harness:
        harness.process(5)
        harness.snapshot()
        harness.process("five")
        with pytest.raises(UserError) as refused:
            harness.snapshot()
    message = str(refused.value)
    keyed = [] if "operator state" in told[0] else ["state 'held', key 'k'"]
    for part in ["operator 'bad'", "not of its declared type", *keyed, *told]:
        assert part in message


def test_a_value_that_can_become_the_type_comes_back_as_it_was() -> None:
    def step(stream: DataStream[Any]) -> DataStream[Any]:
        state = ValueStateDescriptor("held", Types.DOUBLE())
        return stream.key_by(lambda value: 0).process(
            Holding("get_state", state, lambda s, v: (s.value(), s.update(v)))
        )

    with OperatorHarness(step) as harness:
        harness.process(5)
        snapshot = harness.snapshot()
    with OperatorHarness(step, restore=snapshot) as harness:
        harness.process(6.5)
        assert harness.take() == [(5, None)]


class InTenMilliseconds(ProcessFunction[Any, Any]):
    """Counts on an event time, which records have only where somebody gives it to them."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        return [(ctx.timestamp() or 0) + 10] if value == "sure" else [ctx.timestamp() + 10]  # type: ignore[operator]


def test_arithmetic_with_an_event_time_that_is_not_there_names_what_gives_one() -> None:
    with OperatorHarness(lambda stream: stream.process(InTenMilliseconds())) as harness:
        harness.process("sure")
        with pytest.raises(UserCodeFailed) as failed:
            harness.process("unsure")
    assert "no event time" in failed.value.remedy
    assert "assign_timestamps_and_watermarks" in failed.value.remedy
