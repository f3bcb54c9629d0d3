from __future__ import annotations

import pytest

from tidegate.errors import ConfigError
from tidegate.graph.runtime import load_runtime


def test_a_runtime_that_nobody_supplies_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="There is no runtime 'mesos'") as raised:
        load_runtime("mesos")
    assert "local, spark" in raised.value.remedy
