"""`tidegate logs` over a job that lives, as somebody at a terminal uses it; and the page."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e.logged import Places, logging_job, of_step
from tests.e2e.rest import SERVED
from tests.e2e.runtimes import WITHOUT_CHECKPOINTS, Jobs
from tests.e2e.watch import until, wait_completed, wait_running

if TYPE_CHECKING:
    from tests.e2e.browser import Browser
    from tidegate import JobClient

pytestmark = [pytest.mark.slow, pytest.mark.feature("F299")]

LIMIT_S = 100
LEVELS = {"tidegate.log.levels": "chatty:info"}


def tick(number: int) -> int:
    import logging

    time.sleep(0.01)
    logging.getLogger("chatty").info("tick %s", number)
    return number


def started(jobs: Jobs) -> JobClient:
    env = jobs.checkpointed(1, 200, **LEVELS)
    env.generate(int).uid("numbers").map(tick).name("tick").filter(lambda n: n < 0).print()
    client = jobs.start(env, "ticking")
    wait_completed(client, 1)
    until(lambda: of_step(client, "tick"), "something has been logged")
    return client


def command(jobs: Jobs, *args: str) -> list[str]:
    command = [sys.executable, "-m", "tidegate.cli.main", "logs", "ticking"]
    return [*command, "-d", str(jobs.checkpoints), *args]


def test_the_log_is_shown_and_chosen_from(jobs: Jobs) -> None:
    started(jobs)

    def said(*args: str) -> list[str]:
        ran = subprocess.run(command(jobs, *args), capture_output=True, text=True, timeout=LIMIT_S)
        assert (ran.returncode, ran.stderr) == (0, "")
        return ran.stdout.splitlines()

    assert any("slot offered itself" in line for line in said())
    ticks = said("--operator", "tick", "-n", "3")
    assert len(ticks) == 3 and all("INFO chatty [tick (1)]: tick " in line for line in ticks)
    assert said("--operator", "tick", "--level", "warning") == []
    [record] = [
        json.loads(line) for line in said("--json", "-n", "1", "-t", "TICK", "--since", "1h")
    ]
    assert (record["logger"], record["operator"], record["subtask"]) == ("chatty", "tick", 0)


def test_a_log_that_is_followed_ends_with_the_job(jobs: Jobs) -> None:
    client = started(jobs)
    args = command(jobs, "-f", "-n", "1")
    with subprocess.Popen(
        args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as follows:
        assert follows.stdout is not None and follows.stdout.readline()
        client.cancel().result(LIMIT_S)
        out, err = follows.communicate(timeout=LIMIT_S)
    assert (follows.returncode, err) == (0, "")
    assert "CANCELED" in out.splitlines()[-1]


def test_head_and_ctrl_c_end_it_quietly(jobs: Jobs) -> None:
    started(jobs)
    args = command(jobs, "--follow")
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as shown:
        assert shown.stdout is not None and shown.stderr is not None
        shown.stdout.readline()
        shown.stdout.close()
        assert (shown.wait(LIMIT_S), shown.stderr.read()) == (141, "")
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as shown:
        assert shown.stdout is not None and shown.stderr is not None
        shown.stdout.readline()
        os.kill(shown.pid, signal.SIGINT)
        _, told = shown.communicate(timeout=LIMIT_S)
        assert (shown.returncode, told) == (130, "")


def test_what_is_asked_wrongly_is_told(jobs: Jobs) -> None:
    started(jobs)
    for args, told in (
        (("--since", "soon"), "no duration"),
        (("--level", "loud"), "loud"),
        (("-d", str(jobs.folder / "none")), "There is no folder"),
    ):
        ran = subprocess.run(command(jobs, *args), capture_output=True, text=True, timeout=LIMIT_S)
        assert ran.returncode == 2 and told in ran.stderr


def test_the_page_shows_the_log_as_it_comes(jobs: Jobs, browser: Browser) -> None:
    env = jobs.env(2, **SERVED, **WITHOUT_CHECKPOINTS, **LEVELS)
    logging_job(env, Places())
    env.generate(int).map(tick).name("tick").filter(lambda number: number < 0).print()
    client = jobs.start(env, "logging")
    wait_running(client)
    browser.open(client.get_web_interface_url() or "", "logging", "Log")
    browser.click("Log")
    browser.wait("records", "cannot look up 1", "look up (", "KeyError: 1", "driver")
    before = len(browser.texts(".record"))
    until(lambda: len(browser.texts(".record")) > before, "more as it comes")
    browser.choose("Level", "errors")
    until(lambda: len(browser.texts(".record")) == 1, "the one error")
    browser.choose("Level", "all")
    browser.choose("Step", "fetch")
    browser.wait("records of a step", "fetched 4")
    browser.click("Pause")
    until(lambda: browser.texts("button[aria-pressed=true]") == ["Pause"], "it is held")
    assert browser.errors() == []


def test_a_job_that_is_over_has_left_its_log(jobs: Jobs) -> None:
    client = started(jobs)
    client.cancel().result(LIMIT_S)
    for args in (command(jobs, "-o", "tick", "-n", "2"), command(jobs, "-f", "-o", "tick")):
        ran = subprocess.run(args, capture_output=True, text=True, timeout=LIMIT_S)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert "INFO chatty [tick (1)]: tick " in ran.stdout.splitlines()[-1]
    by_id = [client.get_job_id() if each == "ticking" else each for each in command(jobs, "--json")]
    ran = subprocess.run(by_id, capture_output=True, text=True, timeout=LIMIT_S)
    records = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.returncode == 0
    assert any("slot offered itself" in each["message"] for each in records)
    assert "CANCELED" in records[-1]["message"]


def test_a_job_whose_driver_was_killed_has_left_its_log_up_to_then(jobs: Jobs) -> None:
    program = textwrap.dedent(
        """
        import logging, sys
        from tidegate import Configuration, StreamExecutionEnvironment
        def tick(number):
            logging.getLogger("chatty").warning("tick %s", number)
            return number
        env = StreamExecutionEnvironment.local(1, configuration=Configuration.from_dict({
            "execution.checkpointing.dir": sys.argv[1],
            "execution.checkpointing.interval": "200 ms"}))
        env.generate(int, rate=50).uid("numbers").map(tick).name("tick").print()
        env.execute("ticking")
        """
    )
    history = jobs.checkpoints / ".history"
    with (jobs.folder / "killed.txt").open("wb") as output:
        killed = subprocess.Popen(
            [sys.executable, "-c", program, str(jobs.checkpoints)], stdout=output, stderr=output
        )
    try:
        until(
            lambda: any("tick 10" in each.read_text() for each in history.glob("*[0-9a-f]")),
            "an archive has some of the log",
        )
    finally:
        killed.kill()
        killed.wait()
    shown = command(jobs, "-o", "tick")
    ran = subprocess.run(shown, capture_output=True, text=True, timeout=LIMIT_S)
    assert ran.returncode == 0 and "The driver is gone" in ran.stderr
    assert "tick 10" in ran.stdout
    # Whoever wants to follow it is told that there is nobody to follow.
    ran = subprocess.run([*shown, "-f"], capture_output=True, text=True, timeout=LIMIT_S)
    assert ran.returncode == 1 and ran.stdout == ""
