"""Type checks: compiled they accept, convert and refuse what the looks at whole columns do."""

import decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flinkformat.row import Row
from tests.loops.both import both_forms
from tests.properties import examples
from tidegate import Types
from tidegate.loops import checks
from tidegate.loops.forms import Loops
from tidegate.typeinfo.convert import Converter, Misfit
from tidegate.typeinfo.types import TypeInformation

FORMS = both_forms()
SCALARS = [
    Types.LONG(), Types.INT(), Types.BYTE(), Types.DOUBLE(), Types.FLOAT(), Types.STRING(),
    Types.BOOLEAN(), Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.BIG_INT(), Types.BIG_DEC(),
    Types.SQL_DATE(), Types.CHAR(),
]  # fmt: skip
TYPES = st.sampled_from(SCALARS) | st.lists(st.sampled_from(SCALARS), min_size=1, max_size=3).map(
    Types.TUPLE
)


class Whole(int):
    """A subclass, which is not exactly an int."""


LEAVES = (
    st.none() | st.booleans() | st.integers() | st.integers(-200, 200).map(Whole) | st.floats()
    | st.text(max_size=2) | st.binary(max_size=2) | st.dates() | st.decimals(allow_nan=False)
    | st.datetimes() | st.just(decimal.Decimal(1))
)  # fmt: skip
VALUES = (
    LEAVES
    | st.lists(LEAVES, max_size=3)
    | st.lists(LEAVES, max_size=3).map(tuple)
    | st.lists(LEAVES, max_size=3).map(lambda fields: Row(*fields))
)


def fitting(type_info: TypeInformation) -> st.SearchStrategy[Any]:
    """Values that are of the type, mostly."""
    of: dict[TypeInformation, st.SearchStrategy[Any]] = {
        Types.STRING(): st.text(max_size=2), Types.DOUBLE(): st.floats(),
        Types.BOOLEAN(): st.booleans(), Types.BIG_DEC(): st.decimals(allow_nan=False),
        Types.SQL_DATE(): st.dates(), Types.CHAR(): st.text(min_size=1, max_size=1),
        Types.FLOAT(): st.floats(width=32), SCALARS[7]: st.binary(max_size=2),
    }  # fmt: skip
    if type_info.children and type_info not in of:
        return st.tuples(*map(fitting, type_info.children))
    return st.none() | of.get(type_info, st.integers(-128, 127))


BATCHES = TYPES.flatmap(
    lambda of: st.tuples(
        st.just(of),
        st.lists(fitting(of), min_size=1, max_size=5),
        st.lists(st.tuples(st.integers(0, 5), VALUES), max_size=1),
    )
)


def converted(loops: Loops, type_info: TypeInformation, values: list[object]) -> object:
    try:
        done = Converter(type_info, loops).batch(values)
    except Misfit as misfit:
        return misfit.index, misfit.path, str(misfit)
    return done is values, repr(done)


@examples(500)
@given(batch=BATCHES)
def test_both_forms_convert_and_refuse_the_same(batch: Any) -> None:
    type_info, values, wrong = batch
    for at, value in wrong:
        values.insert(at, value)
    plain, fast = (converted(form, type_info, values) for form in FORMS)
    assert fast == plain


KINDS = st.lists(st.sampled_from([int, str, float, bool, bytes]), min_size=1, max_size=3)


@given(values=st.lists(VALUES, max_size=4), kinds=KINDS)
def test_compiled_checks_answer_as_their_source_does(values: list[Any], kinds: list[type]) -> None:
    fast = FORMS[1]
    assert fast.tuples_fit is not None and fast.scalars_fit is not None
    assert fast.tuples_fit(values, kinds) == checks.tuples_fit(values, kinds)
    assert fast.scalars_fit(values, kinds[0]) == checks.scalars_fit(values, kinds[0])
