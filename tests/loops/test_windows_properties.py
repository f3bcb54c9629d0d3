"""The loop around window functions: compiled it gives the same results, and fails alike."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.loops.both import both_forms
from tests.properties import examples
from tidegate.errors import TidegateError, UserError
from tidegate.loops.forms import Loops
from tidegate.operators.windows.firing import WindowFaults
from tidegate.typeinfo.copies import private_copy

FORMS = both_forms()
KINDS = (
    *("list", "tuple", "none", "text", "number", "raises", "refuses", "stops"),
    *("yields", "yields and raises", "yields and returns"),
)
CONTENTS = st.lists(st.none() | st.tuples(st.sampled_from(KINDS), st.integers(0, 3)), max_size=6)


class Function:
    """Does for each window what its content says; notes what it was given, and where it stood."""

    def __init__(self, loops: Loops) -> None:
        self.cell, self.pair = loops.key_cell(), loops.key_cell()
        self.seen: list[object] = []

    def keyed(self, key: object, second: object, elements: Any) -> object:
        self._note(key, second, elements)
        return self._results(elements[0])

    def of_all(self, second: object, elements: Any) -> object:
        self._note(second, elements)
        return self._results(elements[0])

    def result(self, content: tuple[str, int]) -> tuple[str, int]:
        self._note("result")
        if content[0] == "refuses":
            raise UserError("one of ours", where="here")
        return content

    def after(self) -> None:
        self._note("after")
        if len(self.seen) > 9:
            raise UserError("clear failed", where="here")

    def _note(self, *told: object) -> None:
        cell, pair = self.cell, self.pair
        self.seen.append((told, cell.key, cell.group, pair.key, pair.group))

    def _results(self, content: tuple[str, int]) -> object:
        kind, count = content
        results = [[at] for at in range(count)]
        match kind:
            case "list":
                return results
            case "tuple":
                return tuple(results)
            case "none":
                return None
            case "text":
                return "text"
            case "number":
                return 5
            case "raises":
                raise ValueError("of the user's")
            case "stops":
                raise StopIteration(3)
            case _:
                return self._yielded(results, kind)

    def _yielded(self, results: list[list[int]], kind: str) -> Iterator[object]:
        yield from results
        self._note("drawn")
        if kind == "yields and raises":
            raise ValueError("half-way")
        return 7 if kind == "yields and returns" else None


def told(
    loops: Loops, contents: list[Any], pieces: int, form: str, *, copied: bool, clears: bool
) -> list[object]:
    """What was drawn in pieces, the error, and what the function saw."""
    function = Function(loops)

    calls: dict[str, Callable[..., object] | None] = {"none": None, "all": function.of_all}
    elements = None if form != "list" else (lambda content: [content, content])
    user = loops.window_call(
        calls.get(form, function.keyed),
        form != "all",
        "context" if form == "context" else None,
        function.result if form == "result" else None,
        elements,
        private_copy if copied else None,
        WindowFaults("windows", lambda: TypeError("nothing is there")),
    )
    keys, groups = [f"key {at}" for at in range(len(contents))], list(range(len(contents)))
    after = function.after if clears else None
    results = loops.results_of_window(
        user, "window", (0, 9), function.cell, function.pair, keys, groups, contents, after
    )
    drawn: list[object] = []
    try:
        while len(piece := list(islice(results, pieces))) == pieces:
            drawn += piece
        drawn += piece
    except (TidegateError, TypeError) as error:
        assert list(results) == [], "nothing comes after a failure"
        return [drawn, type(error), str(error), repr(error.__cause__), function.seen]
    return [drawn, function.seen]


@examples(400)
@given(
    contents=CONTENTS,
    pieces=st.integers(1, 5),
    form=st.sampled_from(["window", "context", "all", "result", "list", "none"]),
    copied=st.booleans(),
    clears=st.booleans(),
)
def test_both_forms_fire_alike(
    contents: list[Any], pieces: int, form: str, copied: bool, clears: bool
) -> None:
    plain, fast = (
        told(loops, contents, pieces, form, copied=copied, clears=clears) for loops in FORMS
    )
    assert fast == plain


def test_each_key_has_its_results_and_its_place() -> None:
    contents = [("list", 2), ("yields", 1)]
    for loops in FORMS:
        drawn, seen = told(loops, contents, 2, "window", copied=False, clears=True)
        assert drawn == [[0], [1], [0]]
        assert [each[0][0] for each in seen] == ["key 0", "after", "key 1", "drawn", "after"]
        assert [each[1:] for each in seen[:2]] == [("key 0", 0, ("key 0", (0, 9)), 0)] * 2
