"""What functions log and print in slots reaches the log of the job, and the driver's own output."""

import asyncio
import logging
import sys
import threading

import pytest

from tests.e2e.rest import SERVED, Rest
from tests.e2e.runtimes import Jobs, finished
from tests.e2e.watch import until
from tidegate import AsyncDataStream, JobClient, StreamExecutionEnvironment
from tidegate.jobs import LogFilter, LogRecord

LOGGER = logging.getLogger("chatty")


def chatty(number: int) -> int:
    print("printed", number)
    print("told", number, file=sys.stderr)
    LOGGER.info("logged %s", number)
    return number


def check_functions_are_heard(jobs: Jobs, capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handler, level = logging.StreamHandler(sys.stderr), root.level
    handler.setFormatter(logging.Formatter("%(levelname)s of %(name)s: %(message)s"))
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        env = jobs.env(2, **{"tidegate.print.lines-to-driver": 100})
        env.from_sequence(1, 3).map(chatty).name("chat").print()
        client = jobs.start(env, "chatty")
        finished(client)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    out, err = capsys.readouterr()
    printed = sorted(line.rpartition("> ")[2] for line in out.splitlines())
    assert printed == ["1", "2", "3", "printed 1", "printed 2", "printed 3"]
    heard = {line for line in err.splitlines() if "told" in line or "logged" in line}
    numbers = (1, 2, 3)
    logged = {f"INFO of chatty: logged {n}" for n in numbers}
    assert heard == {f"told {n}" for n in numbers} | logged
    # The line of a record is printed by the driver, and not kept beside the record.
    kept = [(each.logger, each.text) for each in of_step(client, "chat")]
    assert sorted(kept) == [
        *(("chatty", f"logged {n}") for n in numbers),
        *(("stderr", f"told {n}") for n in numbers),
        *(("stdout", f"printed {n}") for n in numbers),
    ]


def of_step(client: JobClient, name: str, **wanted: str) -> list[LogRecord]:
    return [each.record for each in client.log(LogFilter(operator=name, **wanted)).entries]


class Places:
    """Logs from a plain call, a coroutine's task, and a thread."""

    def plain(self, number: int) -> int:
        if number == 1:
            try:
                raise KeyError(number)
            except KeyError:
                LOGGER.exception("cannot look up %s", number)
        return number

    async def awaited(self, number: int) -> int:
        await asyncio.gather(self._inner(number))
        return number

    async def _inner(self, number: int) -> None:
        await asyncio.sleep(0)
        LOGGER.warning("asked for %s", number)

    def threaded(self, number: int) -> int:
        assert threading.current_thread() is not threading.main_thread()
        LOGGER.info("fetched %s", number)
        return number


def logging_job(env: StreamExecutionEnvironment, places: Places) -> None:
    # In turn, for one subtask of the source may have read all.
    numbers = env.from_sequence(1, 4).rebalance().map(places.plain).name("look up")
    asked = AsyncDataStream.unordered_wait(numbers, places.awaited, 20_000).name("ask")
    AsyncDataStream.unordered_wait(asked, places.threaded, 20_000).name("fetch").print()


def check_records_name_their_step(jobs: Jobs) -> None:
    settings = {
        "tidegate.log.levels": "chatty:info",
        "tidegate.warnings.silenced": "no-checkpoints",
    }
    env = jobs.env(2, **SERVED, **settings)
    logging_job(env, Places())
    env.generate(int).name("ticks").filter(lambda number: number < 0).print()
    client = jobs.start(env, "logging")
    until(lambda: len(of_step(client, "fetch")) == 4, "all has been logged")
    [failed] = of_step(client, "look up")
    assert (failed.level, failed.logger, failed.text) == (40, "chatty", "cannot look up 1")
    assert failed.trace.startswith("Traceback") and failed.trace.endswith("KeyError: 1")
    assert failed.attempt == 0 and "look up" in failed.task
    asked = of_step(client, "ask", level="warning")
    assert {each.text for each in asked} == {f"asked for {n}" for n in range(1, 5)}
    slots = {slot.id for slot in client.view().slots}
    assert {each.slot for each in asked} == slots
    assert {each.subtask for each in of_step(client, "fetch")} == {0, 1}
    rest = Rest.of(client)
    [record] = rest.get(f"{rest.job}/log?operator=look+up&level=error")["records"]
    assert record["message"] == "cannot look up 1" and record["subtask"] == failed.subtask
    assert "cannot look up 1" in rest.text(f"/taskmanagers/{failed.slot}/log")
    assert "slot offered itself" in rest.text("/jobmanager/log")
    client.cancel().result(60)
    assert of_step(client, "look up") == [failed], "the log outlives the job in its program"
