"""Slots, threads and parallelism of a running job, as Flink's dashboard asks for them."""

import pytest

from tests.e2e.jobs import running_counts
from tests.e2e.ledger import LedgerSink
from tests.e2e.rest import SERVED, Rest
from tests.e2e.runtimes import END_S, Jobs
from tests.e2e.watch import view, wait_completed, wait_for, wait_running

pytestmark = pytest.mark.slow

JSON = {"Content-Type": "application/json"}


@pytest.mark.feature("F280")
def test_slots_tell_their_threads_and_a_put_rescales_the_job(jobs: Jobs) -> None:
    env = jobs.checkpointed(2, 200, **SERVED)
    running_counts(env, None, 500).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "rescaled")
    wait_completed(client, 1)
    rest = Rest.of(client)
    slots = rest.get("/taskmanagers")["taskmanagers"]
    assert {slot["id"] for slot in slots} == {slot.id for slot in view(client).slots}
    assert all(slot["assignedTasks"] > 0 for slot in slots)
    for slot in slots:
        threads = rest.get(f"/taskmanagers/{slot['id']}/thread-dump")["threadInfos"]
        assert any("slot.py" in thread["stringifiedThreadInfo"] for thread in threads)
    [first, _] = view(client).slots
    stacks = client.thread_dump(first.id).result(END_S)
    assert any("slot.py" in each.stack for each in stacks)
    assert any(each.thread == "tidegate-driver" for each in client.thread_dump().result(END_S))
    given = {each["key"]: each["value"] for each in rest.get("/jobmanager/config")}
    assert given["rest.port"] == "0"
    lines = rest.text("/jobmanager/log")
    assert "slot offered itself" in lines and "rest endpoint listens" in lines
    asked = rest.get(f"{rest.job}/resource-requirements")
    for each in asked.values():
        each["parallelism"]["upperBound"] = 3
    assert rest.ask("PUT", f"{rest.job}/resource-requirements", asked, **JSON) == (200, {})
    wait_for(client, lambda seen: seen.rescales == 1, "another parallelism")
    assert {vertex.parallelism for vertex in wait_running(client).vertices} == {3}
