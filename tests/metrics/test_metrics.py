from __future__ import annotations

from tidegate.metrics import MetricRegistry


def test_metrics_are_read_by_their_full_name() -> None:
    registry = MetricRegistry(lambda: 0)
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
    registry = MetricRegistry(lambda: 0)
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


def test_a_meter_tells_the_rate_of_its_last_seconds() -> None:
    now_ms = [5_000]
    registry = MetricRegistry(lambda: now_ms[0])
    meter = registry.group("a").meter("orders", time_span_in_seconds=60)
    assert registry.read() == {"a.orders": 0.0, "a.orders.count": 0}
    meter.mark_event()
    meter.mark_event(29)
    now_ms[0] += 10_000
    assert meter.get_count() == 30
    assert meter.get_rate() == 3.0
    for _ in range(120):
        now_ms[0] += 1_000
        meter.mark_event(7)
        rate = meter.get_rate()
    assert rate == 7.0
    now_ms[0] += 1_000_000
    assert meter.get_rate() < 1.0
    assert registry.read()["a.orders.count"] == 870


def test_a_group_may_be_of_a_key_and_its_value() -> None:
    registry = MetricRegistry(lambda: 0)
    registry.group("a").add_group("country", "nl").counter("orders").inc()
    assert registry.read() == {"a.country.nl.orders": 1}
