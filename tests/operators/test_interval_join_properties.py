"""Interval joins against all pairs, over input out of order and through restores."""

from hypothesis import given
from hypothesis import strategies as st

from tests.operators.backed import BackedJob, Row
from tests.operators.world import World
from tests.properties import examples
from tidegate import MapStateDescriptor, ProcessJoinFunction, Types
from tidegate.model.elements import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from tidegate.operators.interval_join import IntervalJoinOperator, IntervalPlan
from tidegate.typeinfo.types import PICKLED

KEYS = ("a", "b", "c")
SIDES = ("left", "right")


class Pairs(ProcessJoinFunction):
    def process_element(self, left: Row, right: Row, ctx: ProcessJoinFunction.Context) -> list:
        assert (ctx.get_left_timestamp(), ctx.get_right_timestamp()) == (left[2], right[2])
        return [(left, right, ctx.get_timestamp())]


def row(drawn: tuple[str, int, int]) -> Row:
    """A row whose value is all of it, so that pairs say who they are. Times are even."""
    key, number, half = drawn
    return key, (key, number, 2 * half), 2 * half


rows = st.tuples(st.sampled_from(KEYS), st.integers(0, 999), st.integers(-20, 40)).map(row)
bounds = st.tuples(st.integers(-15, 15), st.integers(-15, 15)).map(lambda b: (min(b), max(b)))
steps = st.one_of(
    st.tuples(st.just("feed"), st.integers(0, 1), st.lists(rows, max_size=6)),
    st.tuples(st.just("watermark"), st.integers(-30, 60)),
    st.tuples(st.just("restore"), st.integers(1, 4)),
)


@examples(150)
@given(bounds, st.booleans(), st.lists(steps, max_size=25))
def test_each_pair_within_the_bounds_comes_once(
    bounds: tuple[int, int], typed: bool, drawn: list[tuple]
) -> None:
    record = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()]) if typed else PICKLED
    plan = IntervalPlan(*bounds, types=(record, record), late_tags=SIDES)
    sides: tuple[list[Row], list[Row]] = [], []
    late: list[object] = []
    found: list[tuple[object, int]] = []
    reached = MIN_TIMESTAMP_MS
    with World() as world:
        job = BackedJob(world, lambda: IntervalJoinOperator(Pairs(), plan), 2)
        for kind, *arguments in drawn:
            if kind == "feed":
                port, given_rows = arguments
                found += job.feed(port, *given_rows)
                behind = [r for r in given_rows if r[2] < reached]
                late += [((SIDES[port], value), stamp) for _, value, stamp in behind]
                sides[port].extend(r for r in given_rows if r not in behind)
            elif kind == "watermark":
                # Odd, so that no record lies at the watermark itself.
                reached = max(2 * arguments[0] + 1, reached)
                assert job.watermark(reached) == []
            else:
                job = job.restored(arguments[0])
                assert job.watermark(reached) == []
        assert job.watermark(MAX_WATERMARK_MS) == []
        for name in ("left-buffer", "right-buffer"):
            state = MapStateDescriptor(name, Types.LONG())
            assert job.held(state) == {}, "what nobody needs any more is kept"
    expected = [
        ((left[1], right[1], max(left[2], right[2])), max(left[2], right[2]))
        for left in sides[0]
        for right in sides[1]
        if left[0] == right[0] and bounds[0] <= right[2] - left[2] <= bounds[1]
    ]
    assert sorted(found, key=repr) == sorted([*expected, *late], key=repr)
