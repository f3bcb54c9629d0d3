"""Interval joins against all pairs, over input out of order and through restores."""

from hypothesis import given
from hypothesis import strategies as st

from tests.operators.backed import BackedJob
from tests.operators.world import World
from tests.properties import examples
from tidegate import MapStateDescriptor, ProcessJoinFunction, Types
from tidegate.model.elements import MAX_WATERMARK_MS
from tidegate.operators.process.interval_join import IntervalJoinOperator, IntervalPlan
from tidegate.typeinfo.types import PICKLED

KEYS = ("a", "b", "c")
SIDES = ("left", "right")

Row = tuple[str, int, int]


class Pairs(ProcessJoinFunction):
    def process_element(self, left: Row, right: Row, ctx: ProcessJoinFunction.Context) -> list:
        assert (ctx.get_left_timestamp(), ctx.get_right_timestamp()) == (left[2], right[2])
        return [(left, right, ctx.get_timestamp())]


rows = st.tuples(st.sampled_from(KEYS), st.integers(0, 999), st.integers(-4, 12))
bounds = st.tuples(st.integers(-12, 12), st.integers(-12, 12)).map(lambda b: (min(b), max(b)))
steps = st.one_of(
    st.tuples(st.just("feed"), st.integers(0, 1), st.lists(rows, min_size=1, max_size=6)),
    st.tuples(st.just("watermark"), st.integers(0, 5)),
    st.tuples(st.just("restore"), st.integers(1, 4)),
)


class Joined:
    """A join under test, and what it was given."""

    def __init__(self, world: World, plan: IntervalPlan) -> None:
        self.plan = plan
        self.job = BackedJob(world, lambda: IntervalJoinOperator(Pairs(), plan), 2)
        self.reached = -1
        self.sides: tuple[list[Row], list[Row]] = [], []
        self.found: list[tuple[object, int]] = []
        self.late: list[tuple[object, int]] = []

    def feed(self, port: int, drawn: list[tuple[str, int, int]]) -> None:
        """Rows whose values are all of them, so that pairs say who they are.

        Their times are even and lie around the watermark, which is odd: no record lies at it.
        """
        stamped = [(key, number, self.reached + 1 + 2 * ago) for key, number, ago in drawn]
        self.found += self.job.feed(port, *((row[0], row, row[2]) for row in stamped))
        for row in stamped:
            if row[2] < self.reached:
                self.late.append(((SIDES[port], row), row[2]))
            else:
                self.sides[port].append(row)

    def watermark(self, ms: int) -> None:
        """What is kept after it is what somebody may still be paired with."""
        self.reached = ms
        assert self.job.watermark(ms) == []
        waits = max(0, self.plan.upper_ms), max(0, -self.plan.lower_ms)
        for name, wait_ms in zip(("left-buffer", "right-buffer"), waits, strict=True):
            for kept in self.job.held(MapStateDescriptor(name, Types.LONG())).values():
                assert min(kept) + wait_ms > ms, "what nobody needs any more is kept"

    def restored(self, parallelism: int) -> None:
        self.job = self.job.restored(parallelism)
        self.watermark(self.reached)

    def expected(self) -> list[tuple[object, int]]:
        """By all pairs."""
        pairs = [
            ((left, right, max(left[2], right[2])), max(left[2], right[2]))
            for left in self.sides[0]
            for right in self.sides[1]
            if left[0] == right[0]
            and self.plan.lower_ms <= right[2] - left[2] <= self.plan.upper_ms
        ]
        return [*pairs, *self.late]


@examples(200)
@given(bounds, st.booleans(), st.lists(steps, max_size=25))
def test_each_pair_within_the_bounds_comes_once(
    bounds: tuple[int, int], typed: bool, drawn: list[tuple]
) -> None:
    record = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()]) if typed else PICKLED
    with World() as world:
        joined = Joined(world, IntervalPlan(*bounds, types=(record, record), late_tags=SIDES))
        joined.watermark(-1)
        for kind, *arguments in drawn:
            if kind == "feed":
                joined.feed(*arguments)
            elif kind == "watermark":
                joined.watermark(joined.reached + 2 * arguments[0])
            else:
                joined.restored(arguments[0])
        joined.watermark(MAX_WATERMARK_MS)
    assert sorted(joined.found, key=repr) == sorted(joined.expected(), key=repr)
