from collections.abc import Iterator

import pytest

from tests.operators.world import World


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world
