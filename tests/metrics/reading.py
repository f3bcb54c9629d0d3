"""Values of a registry by full name, for tests."""

from tidegate.metrics import MetricRegistry, full_name
from tidegate.model.metrics import MetricValue


def by_name(registry: MetricRegistry) -> dict[str, MetricValue]:
    """All values; no two metrics have one name."""
    read = registry.read()
    named = {full_name(key): value for key, value in read.items()}
    assert len(named) == len(read)
    return named


def number(registry: MetricRegistry, name: str) -> float:
    """The value of a counter or a gauge."""
    value = by_name(registry)[name]
    assert isinstance(value, int | float)
    return value
