"""The loop around join functions: compiled it gives the same pairs, and fails alike."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.loops.both import both_forms
from tests.properties import examples
from tidegate.errors import TidegateError
from tidegate.loops.forms import Loops
from tidegate.operators.process.interval_join import JoinContext
from tidegate.operators.row_loop import user_call
from tidegate.typeinfo.copies import private_copy

FORMS = both_forms()
KINDS = ("list", "none", "text", "number", "raises", "yields", "yields and raises", "and returns")
RECORDS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 2), st.integers(0, 9)), max_size=6
)


class Kept:
    """Map state of each key's records, in dicts."""

    def __init__(self, cell: Any) -> None:
        self._cell = cell
        self.held: dict[object, dict[int, list[Any]]] = {}

    def get(self, ms: int) -> Any:
        return self.held.get(self._cell.key, {}).get(ms)

    def put(self, ms: int, records: list[Any]) -> None:
        self.held.setdefault(self._cell.key, {})[ms] = records

    def keys(self) -> Iterator[int]:
        return iter(list(self.held.get(self._cell.key, {})))


def told(
    loops: Loops, batches: list[tuple[bool, list[Any]]], span: tuple[int, int], *, copied: bool
) -> object:
    """The pairs of each batch with what stood in the cell, the errors, and what is kept."""
    cell, pair, seen = loops.key_cell(), JoinContext(), list[object]()

    def joined(left: Any, right: Any, context: JoinContext) -> object:
        seen.append((left, right, cell.key, cell.group, context.left_ms, context.right_ms))
        kind = right[0]
        match kind:
            case "list":
                return [[left, right]]
            case "none":
                return None
            case "text":
                return "text"
            case "number":
                return 5
            case "raises":
                raise ValueError("of the user's")
            case _:
                return yielded(left, kind)

    def yielded(left: Any, kind: str) -> Iterator[object]:
        yield [left]
        if kind == "yields and raises":
            raise ValueError("half-way")
        return 7 if kind == "and returns" else None

    user = user_call(joined, private_copy if copied else None, loops, operator="join")
    low, high = span
    sides = (
        loops.join_side(Kept(cell), low, high),
        loops.join_side(Kept(cell), -high, -low),
    )
    waits: list[int] = []
    for is_right, records in batches:
        ours, theirs = sides[is_right], sides[not is_right]
        keys, groups = [record[1] for record in records], [record[1] + 5 for record in records]
        stamps = [record[2] for record in records]
        results = loops.results_of_pairs(
            user, pair, cell, is_right, ours, theirs, waits.append, records, keys, groups, stamps
        )
        try:
            while piece := list(islice(results, 2)):
                seen.append(piece)
        except TidegateError as error:
            seen.append((str(error), repr(error.__cause__)))
            assert list(results) == [], "nothing comes after a failure"
    return seen, waits, [side.kept.held for side in sides]


@examples(300)
@given(
    batches=st.lists(st.tuples(st.booleans(), RECORDS), max_size=5),
    span=st.tuples(st.integers(-4, 0), st.integers(0, 4)),
    copied=st.booleans(),
)
def test_both_forms_join_alike(
    batches: list[tuple[bool, list[Any]]], span: tuple[int, int], copied: bool
) -> None:
    plain, fast = (told(loops, batches, span, copied=copied) for loops in FORMS)
    assert fast == plain


def test_pairs_come_by_the_time_of_the_partner() -> None:
    lefts = [("list", 1, 6), ("list", 1, 2), ("list", 2, 3), ("list", 1, 9)]
    for loops in FORMS:
        batches = [(False, lefts), (True, [("list", 1, 5)])]
        (seen, waits, _) = told(loops, batches, (-1, 3), copied=False)
        assert [each[0] for each in seen[:2]] == [("list", 1, 2), ("list", 1, 6)]
        assert waits == [6, 2, 3, 9, 5]
