from collections.abc import Iterator

import pytest

from tidegate.pyflink import install, uninstall


@pytest.fixture
def pyflink() -> Iterator[None]:
    """`import pyflink` gives what is here while the test runs."""
    install()
    yield
    uninstall()
