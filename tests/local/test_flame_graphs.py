"""Flame graphs of a running job: the user's lines by operator, with the share of each."""

from typing import Any

import pytest

from tests.e2e.browser import PAGE_S, Browser
from tests.e2e.burning import burned, one_hot_key
from tests.e2e.rest import SERVED, Rest
from tests.e2e.runtimes import WITHOUT_CHECKPOINTS, Jobs
from tests.e2e.watch import until, wait_running

pytestmark = pytest.mark.slow

SAMPLES = 600
SAMPLED_S = 90.0


def samples_of(node: dict[str, Any], function: str) -> int:
    """Samples in frames of a function, however deep."""
    if node["name"].startswith(f"{function} (burning.py:"):
        return int(node["value"])
    return sum(samples_of(child, function) for child in node["children"])


@pytest.mark.feature("F280")
def test_the_line_that_takes_four_fifths_is_shown_with_its_share(jobs: Jobs) -> None:
    env = jobs.env(2, **SERVED, **WITHOUT_CHECKPOINTS)
    burned(env)
    client = jobs.start(env, "burned")
    [vertex] = wait_running(client).vertices
    rest = Rest.of(client)
    at = f"{rest.job}/vertices/{vertex.id.hex()}/flamegraph"
    assert rest.get(f"{at}?type=on_cpu") == {"endTimestamp": -3, "data": None}
    root: dict[str, Any] = {}

    def sampled() -> bool:
        nonlocal root
        root = rest.get(f"{at}?type=on_cpu")["data"] or {"value": 0}
        return int(root["value"]) >= SAMPLES

    until(sampled, "enough samples", SAMPLED_S)
    assert 0.75 < samples_of(root, "dear") / root["value"] < 0.85
    steps = {child["name"]: child for child in root["children"]}
    assert samples_of(steps["dear step"], "dear") >= 0.95 * steps["dear step"]["value"]
    assert samples_of(steps["cheap step"], "burn") >= 0.8 * steps["cheap step"]["value"]
    assert samples_of(steps["cheap step"], "dear") == 0
    widest = steps["dear step"]["children"][0]
    assert widest["name"].startswith("dear (burning.py:"), "nothing of the engine is in between"
    one = rest.get(f"{at}?type=full&subtaskindex=1")["data"]
    assert 0 < one["value"] < root["value"]


def test_the_key_that_takes_most_of_the_time_is_the_hottest(jobs: Jobs, browser: Browser) -> None:
    env = jobs.env(2, **SERVED, **WITHOUT_CHECKPOINTS)
    one_hot_key(env)
    client = jobs.start(env, "hot")
    _, keyed = wait_running(client).vertices
    rest = Rest.of(client)
    at = f"{rest.job}/vertices/{keyed.id.hex()}/hot-keys"
    assert rest.get(at) == {"samples": 0, "keys": []}
    until(lambda: rest.get(at)["samples"] >= SAMPLES, "enough samples", SAMPLED_S)
    first, second, *_ = rest.get(at)["keys"]
    assert (first["key"], first["operator"]) == ("'amsterdam'", "by city")
    assert first["share"] > 0.5 > 0.3 > second["share"]
    browser.open(client.get_web_interface_url() or "", "hot", "State")
    browser.click("State")
    browser.wait("steps to choose from", "Hottest keys")
    browser.choose("Step", keyed.name)
    browser.wait("the hottest key", "'amsterdam'", "samples with a current key")
    assert browser.errors() == []


@pytest.mark.feature("F280")
def test_the_page_shows_the_graph_and_the_hottest_lines(jobs: Jobs, browser: Browser) -> None:
    env = jobs.env(1, **SERVED, **WITHOUT_CHECKPOINTS)
    burned(env)
    client = jobs.start(env, "burned")
    wait_running(client)
    browser.open(client.get_web_interface_url() or "", "burned", "Flame graph")
    browser.click("Flame graph")
    browser.wait("the lines", "Hottest lines", "burn (burning.py:", "dear step", "cheap step")
    assert browser.address.endswith("/time")
    frames = {"root", "dear step", "cheap step"}
    until(lambda: frames <= set(browser.texts(".d3-flame-graph-label")), "the graph", PAGE_S)
    browser.click("Pause")
    until(lambda: browser.texts("button[aria-pressed=true]") == ["Pause"], "it is held")
    assert browser.errors() == []
