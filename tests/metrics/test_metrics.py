"""What functions count, and what is read of it."""

import io
import math
import pickle
import pickletools
import threading
from typing import Any

import numpy as np
import pytest

from tests.metrics.reading import by_name
from tidegate.errors import GraphError
from tidegate.metrics import GaugeCalls, MetricRegistry, Rate
from tidegate.model.ids import OperatorId
from tidegate.model.metrics import Metered, MetricKey, MetricKind, Spread


def still() -> int:
    return 0


def test_metrics_are_read_by_operator_groups_and_name() -> None:
    operator = OperatorId(bytes(16))
    registry = MetricRegistry(still, operator=operator)
    counter = registry.group().add_group("state").add_group("country", "nl").counter("reads")
    counter.inc()
    counter.inc(3)
    counter.dec(2)
    key = MetricKey("reads", MetricKind.COUNTER, operator, ("state", ("country", "nl")))
    assert registry.read() == {key: 2}
    assert by_name(registry) == {"state.country.nl.reads": 2}


def test_a_name_that_is_given_again_is_the_same_metric() -> None:
    group = MetricRegistry(still).group()
    assert group.counter("rows") is group.counter("rows")
    assert group.counter("rows") is not group.add_group("late").counter("rows")
    group.counter("rows").inc(2)
    assert group.counted("rows") == 2 and group.counted("others") == 0


@pytest.mark.parametrize("name", [7, None, ""])
def test_a_name_that_is_no_text_is_refused(name: Any) -> None:
    group = MetricRegistry(still).group()
    for make in (
        group.counter,
        group.meter,
        group.histogram,
        group.distribution,
        group.add_group,
        lambda name: group.add_group(name, "nl"),
        lambda name: group.gauge(name, lambda: 1),
    ):
        with pytest.raises(GraphError, match="name of a metric or of its group is"):
            make(name)
    assert by_name(group.registry) == {}


def test_metrics_above_the_limit_count_and_are_not_told() -> None:
    registry = MetricRegistry(still, limit=2)
    group = registry.group()
    first, _, third = (group.counter(name) for name in ("a", "b", "c"))
    group.counter("d")
    third.inc()
    assert third.get_count() == 1
    assert by_name(registry) == {"a": 0, "b": 0}
    assert registry.refused == "c"
    assert group.counter("a") is first


def test_what_the_engine_counts_needs_no_place_under_the_limit() -> None:
    now_ms = [0]
    registry = MetricRegistry(lambda: now_ms[0], limit=1)
    rows = [0]
    registry.tell_count("numRecordsIn", lambda: rows[0])
    registry.tell("currentInputWatermark", MetricKind.GAUGE, lambda: None)
    registry.group().counter("mine")
    now_ms[0], rows[0] = 2_000, 500
    assert by_name(registry) == {
        "numRecordsIn": 500,
        "numRecordsInPerSecond": Metered(500, 250.0),
        "mine": 0,
    }


def test_a_metric_may_be_told_by_a_variable_whose_values_come_and_go() -> None:
    registry, pending = MetricRegistry(still), {"a": 1, "b": 2}
    registry.tell_by("pendingRecords", "split", lambda: pending)
    assert by_name(registry) == {"split.a.pendingRecords": 1, "split.b.pendingRecords": 2}
    del pending["a"]
    assert by_name(registry) == {"split.b.pendingRecords": 2}


def test_a_distribution_is_read_as_its_count_mean_least_and_greatest() -> None:
    registry = MetricRegistry(still)
    distribution = registry.group().distribution("latency")
    assert by_name(registry) == {"latency": Spread()}
    for value in (5, -2, 9):
        distribution.update(value)
    assert by_name(registry) == {"latency": Spread(3, -2, 9, 4.0)}


def test_a_histogram_tells_quantiles_of_its_latest_values() -> None:
    registry = MetricRegistry(still)
    histogram = registry.group().histogram("size")
    assert by_name(registry) == {"size": Spread()}
    for value in range(1, 1_001):
        histogram.update(value)
    [found] = by_name(registry).values()
    assert isinstance(found, Spread) and histogram.get_count() == found.count == 1_000
    assert (found.least, found.greatest, found.mean) == (489, 1_000, 744.5)
    assert found.quantiles == (744, 872, 975, 990, 995, 1_000)
    assert found.deviation == pytest.approx(147.8, abs=0.1)


@pytest.mark.parametrize("odd", [None, "1.5", b"1", [1], 1j, np.array([1, 2])])
def test_what_is_no_number_fails_the_call_that_gives_it(odd: Any) -> None:
    registry = MetricRegistry(still)
    group = registry.group()
    for give in (
        group.counter("counter").inc,
        group.counter("counter").dec,
        group.meter("meter").mark_event,
        group.histogram("histogram").update,
        group.distribution("distribution").update,
    ):
        with pytest.raises(TypeError, match="a metric takes numbers, not"):
            give(odd)
    assert by_name(registry) == {
        "counter": 0,
        "meter": Metered(0, 0.0),
        "histogram": Spread(),
        "distribution": Spread(),
    }


def test_numbers_of_numpy_become_numbers_of_python() -> None:
    registry = MetricRegistry(still)
    group = registry.group()
    group.counter("counter").inc(np.uint8(200))
    group.counter("counter").inc(np.uint8(200))
    group.meter("meter").mark_event(np.int64(3))
    group.histogram("histogram").update(np.float32(1.5))
    group.distribution("distribution").update(np.int32(7))
    group.gauge("gauge", lambda: np.int16(5))  # type: ignore[arg-type, return-value]
    until_called(GaugeCalls(still), registry)
    read = by_name(registry)
    assert read == {
        "counter": 400,
        "meter": Metered(3, 3_000.0),
        "histogram": Spread(1, 1.5, 1.5, 1.5, 0.0, (1.5,) * 6),
        "distribution": Spread(1, 7, 7, 7.0),
        "gauge": 5,
    }
    pickletools.dis(pickle.dumps(read), dump := io.StringIO())
    assert "numpy" not in dump.getvalue()


def test_a_metric_that_cannot_be_read_is_named_and_others_are_read() -> None:
    registry = MetricRegistry(still)
    group = registry.group()
    for value in (math.inf, -math.inf):
        group.histogram("both").update(value)
    group.counter("rows").inc()
    assert by_name(registry) == {"rows": 1}
    [(name, cause)] = registry.faults()
    assert name == "both" and cause.startswith("reading it raised ValueError")


def test_a_meter_tells_the_rate_of_its_last_seconds() -> None:
    now_ms = [5_000]
    registry = MetricRegistry(lambda: now_ms[0])
    meter = registry.group().meter("orders", time_span_in_seconds=60)
    assert by_name(registry) == {"orders": Metered(0, 0.0)}
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
    assert by_name(registry)["orders"] == Metered(870, meter.get_rate())


def test_a_rate_looks_back_for_a_while_only() -> None:
    now_ms, number = [0], [0.0]
    rate = Rate(lambda: number[0], lambda: now_ms[0])
    for second in range(1, 11):
        now_ms[0], number[0] = second * 1_000, 1_000.0 * min(second, 4)
        seen = rate.a_second()
    assert seen == 0.0


# --- gauges ---


def test_a_gauge_is_read_when_its_function_was_called() -> None:
    registry = MetricRegistry(still)
    size: list[float | str] = [7]
    registry.group().gauge("size", lambda: size[0])
    calls = GaugeCalls(still)
    assert by_name(registry) == {}
    for told in (7, 0.5, True, "x" * 300):
        size[0] = told
        until_called(calls, registry)
        [seen] = by_name(registry).values()
        assert seen == ("x" * 200 if isinstance(told, str) else told)
        assert type(seen) is (int if told is True else type(told))


def until_called(calls: GaugeCalls, registry: MetricRegistry) -> None:
    calls.call(registry.gauges)
    for thread in gauge_threads():
        thread.join(10)


def gauge_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "tidegate-gauges"]


def test_a_gauge_that_raises_is_named_and_not_called_again() -> None:
    registry = MetricRegistry(still)
    called: list[int] = []

    def broken() -> int:
        called.append(1)
        raise KeyError("nobody")

    registry.group().add_group("mine").gauge("broken", broken)
    registry.group().gauge("odd", lambda: [])  # type: ignore[arg-type, return-value]
    registry.group().gauge("good", lambda: 3)
    calls = GaugeCalls(still)
    for _ in range(3):
        until_called(calls, registry)
    assert by_name(registry) == {"good": 3}
    assert called == [1]
    faults = dict(registry.faults())
    assert faults["mine.broken"] == "it raised KeyError: 'nobody'"
    assert faults["odd"].startswith("it raised TypeError")


def test_a_gauge_that_does_not_return_is_given_up_and_others_are_read() -> None:
    now_ms, release, entered = [0], threading.Event(), threading.Event()
    registry = MetricRegistry(still)

    def stuck() -> int:
        entered.set()
        release.wait(60)
        return 1

    registry.group().gauge("stuck", stuck)
    registry.group().gauge("good", lambda: 3)
    calls = GaugeCalls(lambda: now_ms[0])
    try:
        calls.call(registry.gauges)
        assert entered.wait(60)
        now_ms[0] = 999
        calls.call(registry.gauges)  # it may still come back
        assert by_name(registry) == {} and len(gauge_threads()) == 1
        now_ms[0] = 1_000
        calls.call(registry.gauges)
        assert dict(registry.faults()) == {"stuck": "it took longer than 1000 ms"}
        _, *others = gauge_threads()
        for thread in others:
            thread.join(60)
        assert by_name(registry) == {"good": 3}
    finally:
        release.set()
        for thread in gauge_threads():
            thread.join(60)
