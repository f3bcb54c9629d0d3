from __future__ import annotations

from tidegate.metrics import MetricRegistry


def test_metrics_are_read_by_their_full_name() -> None:
    registry = MetricRegistry()
    group = registry.group("orders", "0").add_group("state")
    counter = group.counter("reads")
    counter.inc()
    counter.inc(3)
    counter.dec(2)
    size = [7]
    group.gauge("size", lambda: size[0])
    assert registry.read() == {"orders.0.state.reads": 2, "orders.0.state.size": 7}
    size[0] = 8
    assert registry.read()["orders.0.state.size"] == 8


def test_a_distribution_is_read_as_its_count_sum_least_and_greatest() -> None:
    registry = MetricRegistry()
    distribution = registry.group("a").distribution("latency")
    assert set(registry.read().values()) == {0}
    for value in (5, -2, 9):
        distribution.update(value)
    assert registry.read() == {
        "a.latency.count": 3,
        "a.latency.sum": 12,
        "a.latency.min": -2,
        "a.latency.max": 9,
    }
