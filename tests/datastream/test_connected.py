"""Connected and broadcast streams through the surface: whole programs, and what is refused."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.datastream.fakes import environment, exchanges, numbers
from tests.datastream.two_streams import at, collected, first, local
from tidegate import (
    BroadcastProcessFunction,
    BroadcastStream,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    GraphError,
    JobFailed,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeySelector,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    StreamExecutionEnvironment,
    TimeDomain,
    Types,
    UnsupportedKey,
    ValueStateDescriptor,
)

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tidegate import RuntimeContext

AT_1_AND_2 = pytest.mark.parametrize("parallelism", [1, pytest.param(2, marks=pytest.mark.slow)])
LIMITS = MapStateDescriptor("limits", Types.STRING(), Types.LONG())
OTHER = MapStateDescriptor("other", Types.STRING(), Types.LONG())

Pair = tuple[str, int]


# --- connected ------------------------------------------------------------------------------------


class Named(CoMapFunction[int, str, str]):
    def map1(self, value: int) -> str:
        return f"number {value}"

    def map2(self, value: str) -> str:
        return f"text {value}"


class Split(CoFlatMapFunction[str, int, str]):
    def flat_map1(self, value: str) -> Iterable[str]:
        return value.split()

    def flat_map2(self, value: int) -> Iterable[str] | None:
        return [str(value)] if value > 0 else None


class Tens(CoProcessFunction[int, int, int]):
    """Multiples of ten go aside; open comes first."""

    tag = OutputTag[int]("tens")

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sign = -1

    def process_element1(self, value: int, ctx: CoProcessFunction.Context) -> Iterator[Any]:
        yield (self.tag, value) if value % 10 == 0 else value

    def process_element2(self, value: int, ctx: CoProcessFunction.Context) -> Iterator[Any]:
        assert ctx.timestamp() is None
        yield (self.tag, self.sign * value) if value % 10 == 0 else self.sign * value


def test_each_stream_has_a_call_of_its_own() -> None:
    env = local()
    mapped = env.from_collection([1, 2]).connect(env.from_collection(["a"])).map(Named())
    assert sorted(collected(mapped)) == ["number 1", "number 2", "text a"]


def test_each_call_may_give_any_number() -> None:
    env = local()
    words = env.from_collection(["to be", ""])
    split = words.connect(env.from_collection([7, -7])).flat_map(Split(), Types.STRING())
    assert sorted(collected(split)) == ["7", "be", "to"]


@pytest.mark.parametrize("side", [True, False])
def test_two_streams_without_keys_have_side_outputs(side: bool) -> None:
    env = local()
    numbers = env.from_collection([1, 10]).connect(env.from_collection([2, 20])).process(Tens())
    found = collected(numbers.get_side_output(Tens.tag) if side else numbers)
    assert sorted(found) == ([-20, 10] if side else [-2, 1])


def test_a_stream_may_be_connected_to_itself() -> None:
    one = local().from_collection([1, 2])
    assert sorted(collected(one.connect(one).process(Tens()))) == [-2, -1, 1, 2]


class SeenBefore(CoMapFunction[Pair, Pair, tuple[str, int]]):
    """How many records of the key came before on both streams: keyed state in a map."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def map1(self, value: Pair) -> tuple[str, int]:
        before = self.seen.value() or 0
        self.seen.update(before + 1)
        return value[0], before

    map2 = map1


class SeenTwice(CoFlatMapFunction[Pair, Pair, str]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def flat_map1(self, value: Pair) -> Iterable[str]:
        self.seen.update((self.seen.value() or 0) + 1)
        if self.seen.value() == 2:
            yield value[0]

    flat_map2 = flat_map1


def two_of_pairs(env: StreamExecutionEnvironment) -> Any:
    left = env.from_collection([("a", 1), ("b", 2), ("a", 3)])
    return left.connect(env.from_collection([("a", 4), ("c", 5)])).key_by(first, first)


def test_maps_of_keyed_streams_share_keyed_state() -> None:
    counted = two_of_pairs(local()).map(SeenBefore())
    assert sorted(collected(counted)) == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0)]
    assert collected(two_of_pairs(local()).flat_map(SeenTwice())) == ["a"]


class Match(KeyedCoProcessFunction[tuple[str, int], tuple[str, int], tuple[str, str]]):
    """Orders and payments by id: waits for the other one, ten at most (program 16)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.order = runtime_context.get_state(ValueStateDescriptor("order", Types.LONG()))
        self.payment = runtime_context.get_state(ValueStateDescriptor("payment", Types.LONG()))

    def process_element1(
        self, value: tuple[str, int], ctx: KeyedCoProcessFunction.Context
    ) -> Iterator[tuple[str, str]]:
        return self._met(self.order, self.payment, value, ctx)

    def process_element2(
        self, value: tuple[str, int], ctx: KeyedCoProcessFunction.Context
    ) -> Iterator[tuple[str, str]]:
        return self._met(self.payment, self.order, value, ctx)

    def _met(
        self, mine: Any, other: Any, value: tuple[str, int], ctx: KeyedCoProcessFunction.Context
    ) -> Iterator[tuple[str, str]]:
        waiting = other.value()
        if waiting is None:
            mine.update(value[1])
            ctx.timer_service().register_event_time_timer(value[1] + 10)
            return
        other.clear()
        ctx.timer_service().delete_event_time_timer(waiting + 10)
        yield "joined", value[0]

    def on_timer(
        self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext
    ) -> Iterator[tuple[str, str]]:
        assert ctx.time_domain() is TimeDomain.EVENT_TIME
        yield "unpaid" if self.payment.value() is None else "unordered", str(ctx.get_current_key())
        self.order.clear()
        self.payment.clear()


ORDERS = [("o1", 1), ("o2", 2), ("o3", 3)]
PAYMENTS = [("o2", 4), ("o1", 5), ("o4", 6)]


@AT_1_AND_2
def test_orders_and_payments_meet_by_key(parallelism: int) -> None:
    env = local(parallelism)
    both = at(env, ORDERS).connect(at(env, PAYMENTS)).key_by(first, first, Types.STRING())
    paid, ordered = {name for name, _ in PAYMENTS}, {name for name, _ in ORDERS}
    expected = [("joined", name) for name in paid & ordered]
    expected += [("unpaid", name) for name in ordered - paid]
    expected += [("unordered", name) for name in paid - ordered]
    assert sorted(collected(both.process(Match()))) == sorted(expected)


def test_two_keyed_streams_are_connected_by_their_keys() -> None:
    env = local()
    both = at(env, ORDERS).key_by(first).connect(at(env, PAYMENTS).key_by(first))
    assert Counter(kind for kind, _ in collected(both.process(Match())))["joined"] == 2


class IdOf(KeySelector[tuple[str, int], str]):
    def get_key(self, value: tuple[str, int]) -> str:
        return value[0]


def test_keys_are_found_by_selectors_of_each_kind() -> None:
    env = local()
    orders = at(env, ORDERS).map(lambda row: {"id": row[0], "at": row[1]})
    back = orders.connect(at(env, PAYMENTS)).key_by("id", IdOf())

    class Ids(CoMapFunction[dict[str, Any], Any, str]):
        def map1(self, value: dict[str, Any]) -> str:
            return value["id"]

        def map2(self, value: Any) -> str:
            return value[0]

    assert sorted(collected(back.map(Ids()))) == ["o1", "o1", "o2", "o2", "o3", "o4"]


# --- broadcast ------------------------------------------------------------------------------------


class Judge(KeyedBroadcastProcessFunction[str, Pair, Pair, tuple[str, int]]):
    """Payments wait for all rules, then are held to the limit in force (program 7)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting", Types.LONG()))

    def process_element(
        self, value: Pair, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> None:
        self.waiting.add(value[1])
        ctx.timer_service().register_event_time_timer(1_000)

    def process_broadcast_element(
        self, value: Pair, ctx: KeyedBroadcastProcessFunction.Context
    ) -> None:
        ctx.get_broadcast_state(LIMITS).put(value[0], value[1])

    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext
    ) -> Iterator[tuple[str, int]]:
        assert ctx.timestamp() == timestamp <= ctx.current_watermark()
        limit = ctx.get_broadcast_state(LIMITS)["limit"]
        for amount in self.waiting.get():
            if amount > limit:
                yield str(ctx.get_current_key()), amount


PAID = [("card1", 80, 1), ("card2", 40, 2), ("card1", 60, 3)]
RULES = [("limit", 100, 1), ("limit", 50, 2)]


@AT_1_AND_2
def test_rules_reach_every_subtask_in_order(parallelism: int) -> None:
    env = local(parallelism)
    rules = at(env, RULES).broadcast(LIMITS)
    judged = at(env, PAID).key_by(first, Types.STRING()).connect(rules).process(Judge())
    in_force = RULES[-1][1]
    expected = [(card, amount) for card, amount, _ in PAID if amount > in_force]
    assert sorted(collected(judged)) == sorted(expected) == [("card1", 60), ("card1", 80)]


class JudgeAtOnce(Judge):
    """Payments are held to the rule in force as they come; without one they wait (program 8)."""

    def process_element(
        self, value: Pair, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterator[tuple[str, int]]:
        self.waiting.add(value[1])
        limit = ctx.get_broadcast_state(LIMITS).get("limit")
        if limit is None:
            ctx.timer_service().register_event_time_timer(1_000)
            return
        for amount in self.waiting.get():
            if amount > limit:
                yield value[0], amount
        self.waiting.clear()


@AT_1_AND_2
def test_rules_change_while_payments_run(parallelism: int) -> None:
    chance = random.Random(parallelism)
    paid = [(f"card{n % 7}", chance.randrange(150), 2 * n) for n in range(300)]
    rules = [("limit", 100, 0), ("limit", 50, 300), ("limit", 75, 500)]
    env = local(parallelism)
    keyed = at(env, paid).key_by(first, Types.STRING())
    judged = keyed.connect(at(env, rules).broadcast(LIMITS)).process(JudgeAtOnce())
    found = Counter(collected(judged))
    above = Counter((card, amount) for card, amount, _ in paid if amount > 100)
    assert {pair: count for pair, count in found.items() if pair[1] > 100} == above
    possible = Counter((card, amount) for card, amount, _ in paid if amount > 50)
    assert not found - possible


class Tagged(BroadcastProcessFunction[int, Pair, Any]):
    """Both calls emit, to the main output and aside, and know the time."""

    tag = OutputTag[str]("told")

    def process_element(
        self, value: int, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Iterator[Any]:
        assert ctx.current_processing_time() > 0 and ctx.timestamp() is None
        state = ctx.get_broadcast_state(LIMITS)
        assert list(state) == list(state.keys()) and ("limit" in state) == state.contains("limit")
        yield value

    def process_broadcast_element(
        self, value: Pair, ctx: BroadcastProcessFunction.Context
    ) -> Iterator[Any]:
        state = ctx.get_broadcast_state(LIMITS)
        state.put_all({value[0]: value[1], "gone": 0})
        state.remove("gone")
        yield self.tag, dict(state.items())


@pytest.mark.parametrize("side", [True, False])
def test_a_stream_without_keys_reads_what_is_broadcast(side: bool) -> None:
    env = local()
    rules = env.from_collection([("limit", 1), ("other", 2)]).broadcast(LIMITS, OTHER)
    stream = env.from_collection([1, 2]).connect(rules).process(Tagged())
    found = collected(stream.get_side_output(Tagged.tag) if side else stream)
    assert found == ([{"limit": 1}, {"limit": 1, "other": 2}] if side else [1, 2])


@pytest.mark.slow
def test_every_subtask_says_what_a_broadcast_record_yields() -> None:
    env = local(2)
    rules = env.from_collection([("limit", 1)]).broadcast(LIMITS)
    told = env.from_collection([1]).connect(rules).process(Tagged()).get_side_output(Tagged.tag)
    assert collected(told) == [{"limit": 1}, {"limit": 1}]


# --- what goes wrong while the job runs -----------------------------------------------------------


class Wrong(Judge):
    """Does what it is told, on the side it is told."""

    def __init__(self, act: Callable[[Wrong, Any], object], *, broadcast: bool) -> None:
        self.act, self.broadcast = act, broadcast

    def process_element(
        self, value: Pair, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> None:
        if not self.broadcast:
            self.act(self, ctx)

    def process_broadcast_element(
        self, value: Pair, ctx: KeyedBroadcastProcessFunction.Context
    ) -> None:
        if self.broadcast:
            self.act(self, ctx)


READ_ONLY = r"(?s)read-only.*'judge', broadcast state 'limits', on the side of the stream that"


@pytest.mark.parametrize(
    ("broadcast", "act", "what"),
    [
        (False, lambda _, ctx: ctx.get_broadcast_state(LIMITS).put("limit", 1), READ_ONLY),
        (False, lambda _, ctx: ctx.get_broadcast_state(LIMITS).clear(), READ_ONLY),
        (
            False,
            lambda _, ctx: ctx.get_broadcast_state(OTHER),
            r"(?s)'other' was not named in broadcast: only 'limits'.*'judge'",
        ),
        (True, lambda _, ctx: ctx.get_broadcast_state(OTHER), "'other' was not named"),
        (True, lambda f, _: f.waiting.add(1), "(?s)without a current key.*broadcast record"),
        (True, lambda f, _: list(f.waiting.get()), "(?s)without a current key.*broadcast record"),
        (True, lambda _, ctx: ctx.timer_service(), "(?s)has no timers.*'judge', in process_broad"),
        (True, lambda _, ctx: ctx.get_current_key(), "(?s)has no key.*'judge', in process_broadc"),
    ],
)
def test_what_one_side_may_not_do_fails_the_job(
    broadcast: bool, act: Callable[[Any, Any], object], what: str
) -> None:
    env = local()
    rules = env.from_collection([("limit", 1)]).broadcast(LIMITS)
    keyed = env.from_collection([("a", 1)]).key_by(first).connect(rules)
    stream = keyed.process(Wrong(act, broadcast=broadcast)).name("judge")
    with pytest.raises(JobFailed, match=what):
        collected(stream)


def test_keys_of_two_types_that_meet_fail_the_job() -> None:
    env = local()
    both = env.from_collection([(1, 1)]).connect(env.from_collection([("1", 1)]))
    stream = both.key_by(first, first).process(Match()).name("match")
    with pytest.raises(JobFailed, match=r"(?s)keys of the two streams have two types.*'match'"):
        collected(stream)


def test_a_function_that_raises_is_named_with_its_row() -> None:
    class Broken(CoMapFunction[int, int, float]):
        def map1(self, value: int) -> float:
            return value

        def map2(self, value: int) -> float:
            return 1 / value

    env = local()
    both = env.from_collection([0]).connect(env.from_collection([0]))
    with pytest.raises(JobFailed, match=r"(?s)ZeroDivisionError.*'halves', at the row 0"):
        collected(both.map(Broken()).name("halves"))


def test_timers_need_keys() -> None:
    class Timing(CoProcessFunction[int, int, int]):
        def process_element1(self, value: int, ctx: CoProcessFunction.Context) -> None:
            ctx.timer_service().register_event_time_timer(1)

        def process_element2(self, value: int, ctx: CoProcessFunction.Context) -> None:
            return None

    one = local().from_collection([1])
    with pytest.raises(JobFailed, match=r"(?s)only supported on a keyed stream.*'timing'"):
        collected(one.connect(one).process(Timing()).name("timing"))


# --- what is refused at its line ------------------------------------------------------------------


class Half(KeyedCoProcessFunction[int, int, int]):
    def process_element1(self, value: int, ctx: KeyedCoProcessFunction.Context) -> None:
        return None


def plain(function: Any) -> Callable[[Any, Any], Any]:
    return lambda one, other: one.connect(other).process(function)


def keyed(function: Any) -> Callable[[Any, Any], Any]:
    return lambda one, other: one.connect(other).key_by(first, first).process(function)


@pytest.mark.parametrize(
    ("call", "what", "remedy"),
    [
        (plain(Match()), "takes a CoProcessFunction, not Match", "Key both streams first"),
        (plain(len), "takes a CoProcessFunction", "Derive a class from CoProcessFunction"),
        (keyed(Tens()), "takes a KeyedCoProcessFunction, not Tens", "from KeyedCoProcessFunction"),
        (keyed(Match), "Match is a class", "Make an object of it"),
        (keyed(Half()), "Half has no process_element2 of its own", "Write it"),
        (lambda a, b: a.connect(b).map(Match()), "takes a CoMapFunction", "from CoMapFunction"),
        (lambda a, b: a.connect(b).flat_map(Named()), "takes a CoFlatMapFunction", "CoFlatMap"),
        (lambda a, b: a.connect(b.broadcast(LIMITS)).process(Judge()), "not Judge", "Call key_by"),
        (lambda a, b: a.connect(b.broadcast(LIMITS)).process(len), "takes a Broad", "Derive"),
        (
            lambda a, b: a.key_by(first).connect(b.broadcast(LIMITS)).process(Tagged()),
            "takes a KeyedBroadcastProcessFunction, not Tagged",
            "The stream has keys",
        ),
        (
            lambda a, b: b.broadcast(ValueStateDescriptor("limits")),
            "takes a MapStateDescriptor, not ValueStateDescriptor",
            "Broadcast state is a map",
        ),
        (lambda a, b: b.broadcast(LIMITS, LIMITS), "have the name 'limits'", "a name of its own"),
        (lambda a, b: b.key_by(first).broadcast(LIMITS), "cannot follow key_by", "before it"),
        (
            lambda a, b: a.key_by(first, Types.INT()).connect(b.key_by(first, Types.STRING())),
            "keys of the two streams have two types, Integer and String",
            "declare that one",
        ),
        (lambda a, b: a.connect(numbers(environment())).map(Named()), "two environments", "one e"),
        (
            lambda a, b: a.connect(b).map(Named(), Types.INT()),
            r"Named.map1 is annotated to return String, which cannot be Integer",
            "Declare what the function returns",
        ),
    ],
)
def test_what_cannot_work_is_refused_at_its_line(
    call: Callable[[Any, Any], Any], what: str, remedy: str
) -> None:
    env = environment()
    with pytest.raises(GraphError, match=what) as caught:
        call(numbers(env, "one"), numbers(env, "other"))
    assert caught.value.where and remedy in caught.value.remedy


def test_a_key_type_without_a_stable_hash_is_refused() -> None:
    env = environment()
    with pytest.raises(UnsupportedKey):
        numbers(env).connect(numbers(env)).key_by(first, first, Types.MAP(Types.INT(), Types.INT()))


def test_the_type_that_one_stream_declares_is_that_of_both() -> None:
    env = environment()
    declared = numbers(env).key_by(first, Types.INT())
    for one, other in (
        (declared, numbers(env).key_by(first)),
        (numbers(env).key_by(first), declared),
    ):
        assert [each.key_type for each in one.keys_shared_with(other, "connect")] == [
            Types.INT()
        ] * 2


def test_inputs_stand_in_the_order_of_ports() -> None:
    env = environment()
    one, other = numbers(env, "one"), numbers(env, "other")
    stream = other.key_by(first).connect(BroadcastStream(one, [LIMITS])).process(Judge())
    stream.print()
    graph = env.get_job_graph().topology
    assert exchanges(env) == ["HASH", "BROADCAST"]
    names = [(graph.vertex(edge.source).name, edge.port) for edge in graph.edges]
    assert names == [("Source: other", 0), ("Source: one", 1)]
    assert not any(graph.lets_overtake(index) for index in (0, 1))
