"""Two streams with shared state and timers against a model, in any order, through restores."""

from collections import defaultdict
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from tests.operators.backed import BackedJob
from tests.operators.world import World
from tests.properties import examples
from tidegate import KeyedCoProcessFunction, ListStateDescriptor, RuntimeContext, Types
from tidegate.model.elements import MAX_WATERMARK_MS
from tidegate.operators.process.process_functions import KeyedCoProcessOperator

WAIT_MS = 10
KEYS = ("a", "b", "c", "d")

Said = tuple[object, ...]


class Meet(KeyedCoProcessFunction[int, int, Said]):
    """Each value with those of the other stream so far; forgets both sides of a key in time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sides = [
            runtime_context.get_list_state(ListStateDescriptor(name, Types.LONG()))
            for name in ("first", "second")
        ]

    def process_element1(self, value: int, ctx: KeyedCoProcessFunction.Context) -> Iterator[Said]:
        return self._met(0, value, ctx)

    def process_element2(self, value: int, ctx: KeyedCoProcessFunction.Context) -> Iterator[Said]:
        return self._met(1, value, ctx)

    def _met(self, side: int, value: int, ctx: KeyedCoProcessFunction.Context) -> Iterator[Said]:
        self.sides[side].add(value)
        stamp = ctx.timestamp()
        assert stamp is not None
        ctx.timer_service().register_event_time_timer(stamp + WAIT_MS)
        for other in self.sides[1 - side].get():
            yield (value, other) if side == 0 else (other, value)

    def on_timer(
        self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext
    ) -> Iterator[Said]:
        yield "over", ctx.get_current_key(), timestamp, *(len(list(s.get())) for s in self.sides)
        for side in self.sides:
            side.clear()


class Model:
    """The same over dicts, without keys, batches or state."""

    def __init__(self) -> None:
        self.sides: dict[tuple[int, str], list[int]] = defaultdict(list)
        self.due: set[tuple[int, str]] = set()

    def feed(self, port: int, key: str, value: int, stamp: int) -> list[tuple[Said, int]]:
        self.sides[port, key].append(value)
        self.due.add((stamp + WAIT_MS, key))
        others = self.sides[1 - port, key]
        return [((other, value) if port else (value, other), stamp) for other in others]

    def watermark(self, ms: int) -> list[tuple[Said, int]]:
        said: list[tuple[Said, int]] = []
        for time, key in sorted(due for due in self.due if due[0] <= ms):
            self.due.remove((time, key))
            firsts, seconds = self.sides.pop((0, key), []), self.sides.pop((1, key), [])
            said.append((("over", key, time, len(firsts), len(seconds)), time))
        return said


rows = st.tuples(st.sampled_from(KEYS), st.integers(0, 99), st.integers(0, 60))
steps = st.one_of(
    st.tuples(st.just("feed"), st.integers(0, 1), st.lists(rows, max_size=5)),
    st.tuples(st.just("watermark"), st.integers(0, 70)),
    st.tuples(st.just("restore"), st.integers(1, 4)),
)


@examples(100)
@given(st.integers(1, 4), st.lists(steps, max_size=25))
def test_whatever_comes_in_whatever_order(parallelism: int, drawn: list[tuple]) -> None:
    with World() as world:
        job = BackedJob(world, lambda: KeyedCoProcessOperator(Meet()), parallelism)
        model, reached = Model(), -1
        for kind, *arguments in [*drawn, ("watermark", MAX_WATERMARK_MS)]:
            if kind == "feed":
                port, given_rows = arguments
                found = job.feed(port, *given_rows)
                expected = [said for row in given_rows for said in model.feed(port, *row)]
            elif kind == "watermark":
                reached = max(reached, arguments[0])
                found, expected = job.watermark(reached), model.watermark(reached)
            else:
                job = job.restored(arguments[0])
                continue
            assert sorted(found, key=repr) == sorted(expected, key=repr)
