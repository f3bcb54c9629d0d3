"""A function with metrics of all kinds, and what REST says of them."""

import threading
from typing import Any

from tests.e2e.jobs import KEYS, Counted, running_counts, same
from tests.e2e.journal import Latch
from tests.e2e.probes import BreakingOnce
from tests.e2e.rest import SERVED, Rest
from tests.e2e.runtimes import Jobs
from tests.e2e.watch import until, view, wait_recovered, wait_running
from tidegate import MapFunction, RuntimeContext, StreamExecutionEnvironment, Types
from tidegate.jobmaster.view import JobView
from tidegate.telemetry.catalogue import CATALOGUE
from tidegate.telemetry.metrics import Scope, metrics_of

STEP = "weigh: it, twice"
PLAIN = "weigh__it__twice"
"""The step's name as it is in names of metrics."""

PAGE = 10
"""Numbers a subtask is given in a loop, so that quantiles are known."""


class Metered(MapFunction[int, int]):
    """Has a metric of each kind. stuck: one of its gauges never returns."""

    def __init__(self, stuck: bool = False) -> None:
        self._stuck = stuck

    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group()
        self._seen = group.counter("seen")
        self._rate = group.meter("pace", 5)
        dutch = group.add_group("shop").add_group("country", "nl")
        self._weights = dutch.histogram("weight")
        self._spread = dutch.distribution("spread")
        self._last = -1
        group.gauge("broken", lambda: 1 // 0)
        if self._stuck:
            group.gauge("stuck", lambda: threading.Event().wait())
        group.gauge("last", lambda: self._last)

    def map(self, value: int) -> int:
        self._seen.inc()
        self._rate.mark_event()
        self._weights.update(value % PAGE)
        self._spread.update(value % PAGE)
        self._last = value
        return value


def nothing(value: int) -> bool:
    return False


def same_count(row: Counted) -> int:
    return row["count"]


def metered(
    env: StreamExecutionEnvironment, rows: int | None, rate: float | None, stuck: bool = False
) -> None:
    """A source, a function with metrics in its chain, and a sink."""
    numbers = env.generate(same, rows, rate, Types.LONG()).uid("numbers").name("numbers")
    numbers.map(Metered(stuck), Types.LONG()).name(STEP).filter(nothing).print()


def vertex_of(rest: Rest) -> str:
    """The path of the only vertex."""
    [vertex] = rest.get(rest.job)["vertices"]
    return f"{rest.job}/vertices/{vertex['id']}"


def values(rest: Rest, path: str) -> dict[str, str]:
    """All metrics of a page, by name."""
    names = ",".join(each["id"] for each in rest.get(path))
    return {each["id"]: each["value"] for each in rest.get(f"{path}?get={names}")}


def check_metrics_arrive(jobs: Jobs) -> None:
    """Metrics of a function come to REST from both subtasks, each under its operator's name."""
    env = jobs.env(2, **SERVED)
    metered(env, None, 2_000)
    client = jobs.start(env, "metered")
    wait_running(client)
    rest = Rest.of(client)
    vertex = vertex_of(rest)

    def told() -> dict[str, str]:
        return values(rest, f"{vertex}/metrics")

    until(
        lambda: all(
            float(told().get(f"{index}.{PLAIN}.{name}", 0)) > 100
            for index in (0, 1)
            for name in ("seen", "last", "pace", "numRecordsIn", "numRecordsOutPerSecond")
        ),
        "both subtasks tell their metrics",
    )
    seen = told()
    at = f"0.{PLAIN}.shop.country.nl"
    least, middle, most = (float(seen[f"{at}.weight_{part}"]) for part in ("min", "median", "max"))
    assert least in (0, 1) and most in (8, 9) and least < middle < most
    assert int(seen[f"{at}.spread_count"]) > 100
    assert f"0.{PLAIN}.broken" not in seen
    # Rows flow on while one figure after the other is read.
    given = int(seen[f"0.{PLAIN}.numRecordsIn"])
    until(
        lambda: int(told()["0.Source__numbers.numRecordsOut"]) >= given,
        "the source has counted what the step was given",
    )
    assert int(seen["0.Filter.numRecordsIn"]) > 100 and seen["0.Filter.numRecordsOut"] == "0"
    assert 0 <= int(seen["0.idleTimeMsPerSecond"]) <= 1_000
    page = f"{vertex}/subtasks/metrics"
    name = f"{PLAIN}.seen"
    assert {"id": name} in rest.get(page)
    [both] = rest.get(f"{page}?get={name},nonsense&agg=min,max,sum,avg")
    assert both["min"] <= both["avg"] <= both["max"] <= both["sum"] and len(both) == 5
    [one] = rest.get(f"{page}?get={name}&subtasks=1&agg=sum,min")
    assert one["sum"] == one["min"] > 100
    assert rest.refused("GET", f"{page}?get={name}&agg=most")[0] == 400
    assert rest.refused("GET", f"{page}?subtasks=one")[0] == 400
    check_slots(rest)
    check_catalogue(view(client))
    client.cancel().result(timeout=60)


def check_slots(rest: Rest) -> None:
    """Slots tell of their processes."""
    page = "/taskmanagers/metrics"
    names = {each["id"] for each in rest.get(page)}
    assert {"Status.Process.Memory.Resident", "Status.Process.CPU.Load"} <= names
    [memory] = rest.get(f"{page}?get=Status.Process.Memory.Resident")
    assert 10 << 20 < memory["min"] <= memory["max"] < 10 << 30


def check_catalogue(seen: JobView) -> None:
    """What the engine tells is what the catalogue says, of kind too, and all of it is told."""
    told = {(each.scope, each.name): each for each in metrics_of(seen, 0) if not each.groups}
    of_function = {(Scope.OPERATOR, name) for name in ("seen", "pace", "last")}
    entries = {(each.scope, each.name): each for each in CATALOGUE}
    assert told.keys() - of_function <= entries.keys()
    for place in told.keys() & entries.keys():
        assert told[place].kind is entries[place].kind, place
    # A chain with a source has no input, its source gives no watermarks, and nothing is cut.
    missing = {name for scope, name in entries.keys() - told.keys() if scope is not Scope.OPERATOR}
    of_checkpoints = {name for name in missing if name.startswith("checkpoint")}
    assert missing - of_checkpoints == {"currentInputWatermark", "currentOutputWatermark"}
    assert len(of_checkpoints) == 4


def check_a_new_attempt_begins_anew(jobs: Jobs) -> None:
    """After a restart metrics of functions begin at nothing, as in Flink."""
    broken = Latch(jobs.folder / "broken")
    env = jobs.checkpointed(1, 200, **SERVED)
    numbers = env.generate(same, None, 1_000, Types.LONG()).uid("numbers")
    numbers.map(Metered(), Types.LONG()).name(STEP).map(BreakingOnce(broken)).filter(
        nothing
    ).print()
    client = jobs.start(env, "metered")
    wait_running(client)
    rest = Rest.of(client)
    path = f"{vertex_of(rest)}/subtasks/0/metrics?get={PLAIN}.seen,{PLAIN}.last"

    def told() -> dict[str, int]:
        return {each["id"].rpartition(".")[2]: int(each["value"]) for each in rest.get(path)}

    until(lambda: told().get("seen", 0) > 2_000, "a few rows are counted")
    broken.set()
    wait_recovered(client, 1)
    until(lambda: told().get("last", 0) > 2_000, "the new attempt tells its metrics")
    after = told()
    assert after["seen"] < after["last"]
    client.cancel().result(timeout=60)


def check_state_is_counted(jobs: Jobs) -> None:
    """Entries and bytes of a keyed state by its name, and bytes between slots."""
    env = jobs.checkpointed(2, 200, **SERVED)
    running_counts(env, None, 2_000).map(same_count).filter(nothing).print()
    client = jobs.start(env, "counted")
    wait_running(client)
    rest = Rest.of(client)
    [_, counts] = rest.get(rest.job)["vertices"]
    page = f"{rest.job}/vertices/{counts['id']}/subtasks/metrics"
    names = "KeyedProcess.state.count.numStateEntries"

    def entries() -> list[float]:
        return [each["sum"] for each in rest.get(f"{page}?get={names}")]

    until(lambda: entries() == [KEYS], "each key has an entry")
    name = "KeyedProcess.state.count.stateSize"

    def sizes() -> list[float]:
        return [each["sum"] for each in rest.get(f"{page}?get={name}")]

    until(lambda: max(sizes(), default=0) > KEYS, "a snapshot tells their bytes")

    def held() -> list[dict[str, Any]]:
        return [one for step in rest.get(f"{rest.job}/state")["steps"] for one in step["states"]]

    until(lambda: all(one["bytes"] is not None for one in held()), "the page's view has them")
    count = held()[0]
    assert (count["name"], count["entries"]) == ("count", KEYS)
    assert KEYS < count["bytes"] < KEYS * 100

    def crossed() -> list[int]:
        source, keyed = rest.get(rest.job)["vertices"]
        return [source["metrics"]["write-bytes"], keyed["metrics"]["read-bytes"]]

    until(lambda: min(crossed()) > 1_000, "half of the rows cross from one slot to the other")
    client.cancel().result(timeout=60)


def check_a_stuck_gauge_hurts_nobody(jobs: Jobs) -> None:
    """Other metrics still arrive."""
    env = jobs.env(1, **SERVED)
    metered(env, None, 1_000, stuck=True)
    client = jobs.start(env, "metered")
    wait_running(client)
    rest = Rest.of(client)
    path = f"{vertex_of(rest)}/subtasks/0/metrics?get={PLAIN}.last,{PLAIN}.seen"

    def told() -> dict[str, int]:
        return {each["id"].rpartition(".")[2]: int(each["value"]) for each in rest.get(path)}

    until(lambda: told().get("last", -1) > 0, "gauges behind the one that is stuck are read")
    before = told()
    until(lambda: told()["last"] > before["last"] and told()["seen"] > before["seen"], "they go on")
    client.cancel().result(timeout=60)
