"""Keys as RocksDB finds them: by their bytes."""

from decimal import Decimal
from typing import NamedTuple

import pytest

from tidegate.state.format.encoding import Keys, StoredKeys
from tidegate.typeinfo.types import LONG

ONES = [1, 1.0, True, Decimal(1)]


class Route(NamedTuple):
    origin: object
    target: object


@pytest.mark.parametrize("first", [*ONES, 0.5, Decimal("0.1"), 7], ids=repr)
@pytest.mark.parametrize("namespace", [None, LONG], ids=str)
def test_equal_numbers_have_the_same_bytes_whichever_came_first(
    first: object, namespace: object
) -> None:
    keys = StoredKeys(Keys(None, "here"), LONG if namespace else None, "here")
    given = [first, *ONES]
    [_, *names] = keys.encode_each([(key, 5) for key in given] if namespace else given)
    assert len(set(names)) == 1
    # One by one, as entries are read.
    alone = [keys.encode_each([(one, 5)] if namespace else [one])[0] for one in ONES]
    assert set(alone) == set(names)


@pytest.mark.parametrize("first", [(one, "a") for one in [*ONES, 0.5]], ids=repr)
def test_equal_tuples_have_the_same_bytes_whichever_came_first(first: object) -> None:
    keys = StoredKeys(Keys(None, "here"), None, "here")
    [_, *names] = keys.encode_each([first, *((one, "a") for one in ONES)])
    assert len(set(names)) == 1


@pytest.mark.parametrize("target", [1, "LGA", ("LGA", "EWR")], ids=repr)
@pytest.mark.parametrize("first", [tuple, Route._make], ids=["tuple", "named"])
@pytest.mark.parametrize("namespace", [None, LONG], ids=str)
def test_tuples_with_names_have_the_bytes_of_those_without(
    first: object, target: object, namespace: object
) -> None:
    keys = StoredKeys(Keys(None, "here"), LONG if namespace else None, "here")
    given = [first(("BOS", target)), ("JFK", target), Route("JFK", target)]
    if isinstance(target, tuple):
        given += [("JFK", Route(*target)), Route("JFK", Route(*target))]
    [_, *names] = keys.encode_each([(key, 5) for key in given] if namespace else given)
    assert len(set(names)) == 1
    alone = [keys.encode_each([(one, 5)] if namespace else [one])[0] for one in given[1:]]
    assert set(alone) == set(names)
    expected = (given[0], 5) if namespace else given[0]
    assert keys.decode_each(keys.encode_each([expected])) == [expected]
