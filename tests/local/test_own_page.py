"""The job's own page in a browser: what it does to a job, and what it shows of a troubled one."""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from tests.e2e.browser import Browser
from tests.e2e.jobs import running_counts
from tests.e2e.ledger import LedgerSink
from tests.e2e.rest import SERVED, Rest
from tests.e2e.runtimes import Jobs, finished
from tests.e2e.serving import Serving
from tests.e2e.watch import kill_slot, until, view, wait_completed, wait_for, wait_recovered
from tests.rest.left import driver, put_archive
from tests.rest.served import Served
from tests.rest.shown import READ_ID, READER, READS, VIEW
from tests.rest.world import JOB
from tidegate import JobClient, KeyedProcessFunction, RuntimeContext
from tidegate.errors import PeerLost
from tidegate.model.control import JobStatus
from tidegate.model.metrics import MetricKey, MetricKind
from tidegate.rest.routes import key_groups

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TROUBLED_S = 120.0


class Counts(KeyedProcessFunction):
    """Counts what it sees in metrics of its own."""

    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group()
        self._orders = group.counter("orders")
        self._amount = group.histogram("amount")

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        self._orders.inc()
        self._amount.update(value % 100)
        yield value


def counting(jobs: Jobs) -> JobClient:
    savepoints = {"execution.checkpointing.savepoint-dir": str(jobs.folder / "savepoints")}
    env = jobs.checkpointed(2, 500, **SERVED, **savepoints)
    numbers = env.generate(int, rate=300).uid("numbers")
    numbers.key_by(lambda number: number % 7).process(Counts()).uid("counts").sink_to(
        LedgerSink(jobs.folder / "out")
    ).uid("out")
    client = jobs.start(env, "orders")
    wait_completed(client, 1)
    return client


@pytest.mark.feature("F297")
def test_own_metrics_are_charts(jobs: Jobs, browser: Browser) -> None:
    client = counting(jobs)
    rest = Rest.of(client)
    own = f"{rest.job}/own-metrics"

    def told() -> list[dict[str, Any]]:
        return rest.get(own)["metrics"]

    until(lambda: [each["subtasks"] for each in told()] == [2, 2], "both tasks tell their metrics")
    [orders, amount] = told()
    assert (orders["name"], orders["kind"]) == ("orders", "counter")
    assert orders["lines"]["sum"] > 0 and set(amount["lines"]) == {"mean", "p99, largest"}
    browser.open(f"{rest.url}/#/{client.get_job_id()}/metrics", "orders", "amount", "in all")
    until(lambda: drawn(browser, r"a second: \d"), "the rate of a counter is drawn")
    until(lambda: drawn(browser, r"mean: \d+.*, p99, largest: 9\d"), "a histogram is drawn")
    assert browser.errors() == []


@pytest.mark.feature("F297")
def test_state_is_shown_by_step_and_name(jobs: Jobs, browser: Browser) -> None:
    env = jobs.checkpointed(2, 300, **SERVED)
    running_counts(env, None, 500).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "holding")
    wait_completed(client, 3)
    rest = Rest.of(client)

    def states() -> list[dict[str, Any]]:
        return rest.get(f"{rest.job}/state")["steps"][0]["states"]

    until(lambda: states() and states()[0]["bytes"], "entries and bytes are told")
    largest = rest.get(f"{rest.job}/state")["steps"][0]
    assert largest["bytes"] > 0 and largest["states"][0]["entries"] > 0
    browser.open(f"{rest.url}/#/{client.get_job_id()}/state", largest["step"], "times the mean")
    browser.wait("the names", largest["states"][0]["name"], "Entries now", "newest snapshot")
    shown = browser.text
    assert re.search(r"count\s+KeyedProcess\s+\d+\s+[\d.,]+ k?B", shown), shown


@pytest.mark.feature("F301")
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_state_is_counted_by_key_group(jobs: Jobs, browser: Browser, backend: str) -> None:
    kept = {"state.backend.type": backend, "execution.checkpointing.num-retained": "20"}
    env = jobs.checkpointed(2, 500, **SERVED, **kept)
    running_counts(env, None, 500).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "counting")
    wait_completed(client, 3)
    rest = Rest.of(client)
    at = f"{rest.job}/state/key-groups"
    told = rest.outcome(f"{at}/{rest.begin(at, {})}")
    assert told["checkpoint"] >= 3 and told["compared-with"]["checkpoint"] < told["checkpoint"]
    [counts] = [each for each in told["operators"] if each["uid"] == "counts"]
    state = counts["states"][0]
    groups = state["key-groups"]
    largest = groups["largest"][0]
    assert largest["bytes"] > groups["mean-bytes"] > 0 and state["grown_a_minute"] is not None
    assert largest["task"] in {f"{counts['step']} ({number}/2)" for number in (1, 2)}
    browser.open(f"{rest.url}/#/{client.get_job_id()}/state", "Reads the files of the newest")
    browser.click("Analyze newest checkpoint")
    browser.wait("what was counted", state["name"], "The largest", largest["task"], "times")
    assert "Estimated" not in browser.text
    assert browser.errors() == []


@pytest.mark.feature("F301")
def test_much_state_is_estimated_and_said_to_be(
    jobs: Jobs, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = jobs.checkpointed(2, 500, **SERVED)
    running_counts(env, None, 500).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "estimating")
    wait_completed(client, 3)
    newest = view(client).checkpoints.latest_completed
    assert newest is not None
    monkeypatch.setattr(key_groups, "BYTES_MAX", newest.state_size // 3)
    rest = Rest.of(client)
    browser.open(f"{rest.url}/#/{client.get_job_id()}/state", "Reads the files of the newest")
    browser.click("Analyze newest checkpoint")
    browser.wait("an estimate", "Estimated: there is much state, so one key group in", "counts all")
    assert browser.errors() == []


def drawn(browser: Browser, told: str) -> bool:
    return any(re.search(told, label) for label in browser.labels(".chart"))


@pytest.mark.feature("F298")
def test_a_job_is_rescaled_and_forked_from_its_page(jobs: Jobs, browser: Browser) -> None:
    client = counting(jobs)
    rest = Rest.of(client)
    browser.open(f"{rest.url}/#/{client.get_job_id()}", "Rescale")
    browser.click("Rescale")
    browser.wait("what it will do", "redistributes keyed state", "New parallelism")
    browser.fill("dialog input", "many")
    browser.click("Rescale", within="dialog")
    browser.wait("what is wrong", "a whole number")
    browser.fill("dialog input", "1")
    browser.click("Rescale", within="dialog")
    browser.wait("that it is under way", "as soon as there are slots")
    browser.click("Close")
    wait_for(client, lambda seen: seen.rescales == 1, "the job is rescaled")
    browser.wait("that it was rescaled", "1 rescale")
    browser.click("Fork")
    browser.wait("what it will do", "Starts a second job")
    browser.click("Fork", within="dialog")
    browser.wait("how to start it", "tidegate run --from", "orders-fork")
    [location] = re.findall(r"--from (\S+)", browser.text)
    assert (Path(location) / "_metadata").is_file()
    assert browser.errors() == []


@pytest.mark.feature("F298")
@pytest.mark.parametrize("many", [False, True], ids=["by its driver", "by tidegate serve"])
def test_the_savepoint_of_a_stop_stays_on_the_page(
    jobs: Jobs, browser: Browser, many: bool
) -> None:
    client = counting(jobs)
    with Serving(jobs.checkpoints) as serving:
        url = serving.url if many else client.get_web_interface_url()
        browser.open(f"{url}/#/{client.get_job_id()}", "Stop with a savepoint")
        browser.click("Take a savepoint")
        browser.click("Take a savepoint", within="dialog")
        browser.wait("that it is written", "Written: ")
        browser.click("Close")
        browser.click("Stop with a savepoint")
        browser.wait("a dialog of its own", "without draining", "Cancel")
        assert "Written" not in browser.text
        browser.click("Stop with a savepoint", within="dialog")
        browser.wait("its savepoint", "The job has ended. Its savepoint: ")
        if many:
            browser.wait("the job, over", "finished", "You see its last recorded state.")
        [location] = re.findall(r"Its savepoint: (\S+)", browser.text)
        assert (Path(location) / "_metadata").is_file()
        browser.click("Close")
        finished(client)


@pytest.mark.feature("F298")
def test_an_outcome_that_comes_after_its_dialog_was_closed_is_shown(browser: Browser) -> None:
    client = Served()
    client.shown = VIEW
    with ExitStack() as stack:
        browser.open(f"{driver(stack, client).url}/#/{JOB}", "Take a savepoint")
        browser.click("Take a savepoint")
        browser.fill("dialog input", "/savepoints/mine")
        browser.click("Take a savepoint", within="dialog")
        browser.wait("that it is under way", "Under way")
        browser.click("Close (continues in the background)")
        browser.click("Cancel the job")
        browser.wait("a dialog of its own", "Ends the job at once", "Keep it running")
        assert "Under way" not in browser.text
        browser.click("Keep it running")
        browser.click("Take a savepoint")
        browser.wait("the one that is under way", "Under way")
        browser.click("Close (continues in the background)")
        client.saved.set_result("/savepoints/mine/savepoint-1")
        browser.wait("its outcome", "Take a savepoint: Written: /savepoints/mine/savepoint-1")
        browser.click("Close")
        until(lambda: "Written" not in browser.text, "it has been seen")
        assert browser.errors() == [] and not client.cancelled


class Odd(Served):
    """A job with figures that neither dates nor JSON have room for; broken: it tells nothing."""

    def __init__(self) -> None:
        super().__init__()
        spread = {MetricKey("ratio", MetricKind.GAUGE, READ_ID): float("inf")}
        figures = replace(READS.figures, watermark_ms=9_000_000_000_000_000)
        task = replace(READS, figures=figures, metrics={**READS.metrics, **spread})
        self.odd = replace(VIEW, vertices=(replace(READER, subtasks=(task,)), VIEW.vertices[1]))
        self.broken = False

    def view(self) -> object:
        if self.broken:
            raise PeerLost("the driver has not said what the job is doing")
        return self.odd


@pytest.mark.feature("F298")
def test_odd_figures_and_a_busy_driver_leave_the_page_usable(browser: Browser) -> None:
    client = Odd()
    with ExitStack() as stack:
        at = f"{driver(stack, client).url}/#/{JOB}"
        browser.open(at, "event time 9000000000000000 ms", "Records a second")
        browser.click("User metrics")
        browser.wait("the gauge", "ratio", "gauge")
        browser.click("State")
        browser.wait("the state", "in checkpoint")
        assert browser.errors() == []
        client.broken = True
        browser.wait("what is wrong, beside the last figures", "has not said", "in checkpoint")


@pytest.mark.feature("F298")
def test_a_task_that_works_more_than_others_and_a_long_call_are_shown(browser: Browser) -> None:
    client = Served()
    idle = {**READS.metrics, MetricKey("busyTimeMsPerSecond", MetricKind.GAUGE): 0}
    tasks = (replace(READS, index=0, metrics=idle), replace(READS, index=1))
    client.shown = replace(VIEW, vertices=(replace(READER, subtasks=tasks), VIEW.vertices[1]))
    with ExitStack() as stack:
        at = f"{driver(stack, client).url}/#/{JOB}"
        browser.open(at, "25 % busy, task 2 50 %", "Where it is", "AsyncDataStream")
        assert browser.text.count("has been in one call") == 1
        assert "/s in, " not in browser.text, "nothing comes into a source"
        browser.open(f"{at}/checkpoints", "has been in one call", "AsyncDataStream")
        assert browser.errors() == []


@pytest.mark.feature("F298")
def test_the_focus_follows_what_is_done_with_keys(browser: Browser) -> None:
    client = Served()
    client.shown = VIEW
    with ExitStack() as stack:
        browser.open(f"{driver(stack, client).url}/#/{JOB}", "Take a savepoint")
        browser.focus("button.danger")
        browser.press(Keys.ENTER)
        until(lambda: browser.focused == "Keep it running", "the dialog has the focus")
        browser.press(Keys.ENTER)
        until(lambda: browser.focused == "Cancel the job", "its button has it again")
        browser.focus(".step")
        step = browser.focused
        browser.press(Keys.ENTER)
        browser.wait("the tasks of a step", "Attempt")
        browser.focus(".close")
        browser.press(Keys.ENTER)
        until(lambda: "Attempt" not in browser.text, "the tasks are closed")
        assert step.startswith(READER.name) and browser.focused.startswith(READER.name)
        assert browser.errors() == [] and not client.cancelled


@pytest.mark.feature("F298")
def test_a_job_that_is_over_is_not_asked_for_what_is_gone(tmp_path: Path, browser: Browser) -> None:
    put_archive(tmp_path, JobStatus.FINISHED)
    with Serving(tmp_path) as serving:
        browser.open(
            f"{serving.url}/#/{JOB}/log",
            "tidegate.log.file",
            "Nothing of the kind",
            "The job has ended.",
        )
        browser.click("Flame graph")
        browser.wait("why there is none", "flame graphs are of tasks that run")
        browser.open(f"{serving.url}/#/", "Completed", "No running jobs.")
    assert browser.errors() == []
    with Serving(tmp_path / "ordres") as serving:
        browser.open(serving.url, "Some jobs may be missing: there is no folder")


@pytest.mark.feature("F298")
def test_the_page_goes_on_while_slots_are_killed_again_and_again(
    jobs: Jobs, browser: Browser
) -> None:
    env = jobs.checkpointed(2, 500, **SERVED)
    running_counts(env, None, 500).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "troubled")
    wait_completed(client, 1)
    rest = Rest.of(client)
    at = f"{rest.url}/#/{client.get_job_id()}"
    browser.open(at, "troubled")
    until_s = time.monotonic() + TROUBLED_S
    kills = 0
    while time.monotonic() < until_s:
        kill_slot(client, kills % 2)
        kills += 1
        for page in ("overview", "checkpoints", "failures", "metrics", "overview"):
            browser.open(f"{at}/{page}", "troubled")
        wait_recovered(client, kills)
        completed = view(client).checkpoints.counts.completed
        wait_completed(client, completed + 1)
        browser.wait("the restarts so far", f"{kills} restart")
        assert "does not answer" not in browser.text
    assert kills > 3
    browser.open(f"{at}/checkpoints", "completed")
    shown = view(client).checkpoints.counts.completed
    until(lambda: completed_shown(browser) > shown, "the page shows checkpoints of now")
    assert browser.errors() == []


def completed_shown(browser: Browser) -> int:
    return int(browser.texts(".figures b")[0])
