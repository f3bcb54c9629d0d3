"""Jobs from Kafka to Kafka: offsets, state and transactions are one snapshot."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from examples import kafka_to_kafka
from tests.e2e.kafka import KafkaServer
from tests.e2e.restores import RESTORE_PATH
from tests.e2e.runtimes import RETAIN, Jobs, finished
from tests.e2e.watch import kill_slot, until, wait_recovered

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kafka")]

RUN_S = 60.0
LATEST = ["--from", "latest"]
IN_PIECES = {"tidegate.batch.rows": 10}
"""So that barriers find room between the numbers that the example rests at."""


def filled(kafka: KafkaServer) -> str:
    """A topic with the example's numbers."""
    topic = kafka.topic(3)
    kafka.write(topic, range(1, kafka_to_kafka.NUMBERS + 1))
    return topic


def pairs(kafka: KafkaServer, topic: str) -> list[tuple[int, int]]:
    """What a reader of committed records sees."""
    return [tuple(json.loads(value)) for value in kafka.values(topic)]


def check_each_summed_once(found: Sequence[tuple[int, int]]) -> None:
    """Each number is there once, and each sum is the one before it and its number.

    The partitions may be read in any order, so the sums of a key may grow in any.
    """
    assert sorted(number for number, _ in found) == list(range(1, kafka_to_kafka.NUMBERS + 1))
    for key in range(kafka_to_kafka.KEYS):
        sums = sorted(
            (total, number) for number, total in found if number % kafka_to_kafka.KEYS == key
        )
        before = 0
        for total, number in sums:
            assert total == before + number, (key, total, number)
            before = total
        of_key = range(key or kafka_to_kafka.KEYS, kafka_to_kafka.NUMBERS + 1, kafka_to_kafka.KEYS)
        assert before == sum(of_key)


def started(kafka: KafkaServer, folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """The example, by the command line, in a process group of its own."""
    settings = {"execution.checkpointing.dir": folder / "checkpoints", **IN_PIECES}
    options = [option for key, value in settings.items() for option in ("-D", f"{key}={value}")]
    command = [sys.executable, "-m", "tidegate.cli.main", "run", "--runtime", "local", "-p", "2"]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [*command, *options, *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


@pytest.mark.feature("F212")
def test_each_sum_is_there_once_though_the_process_is_killed(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    numbers, sums = filled(kafka), kafka.topic(2)
    program = [kafka_to_kafka.__file__, kafka.servers, numbers, sums]
    seen = 0
    for resume in ([], LATEST):
        process = started(kafka, tmp_path, *resume, *program, "--pause", "0.004")
        try:
            until(
                lambda seen=seen, process=process: (
                    process.poll() is not None or len(pairs(kafka, sums)) > seen
                ),
                "more sums than before",
            )
            assert process.poll() is None, (tmp_path / "log").read_text()
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(RUN_S)
        seen = len(pairs(kafka, sums))
        assert 0 < seen < kafka_to_kafka.NUMBERS
    last = started(kafka, tmp_path, *LATEST, *program)
    assert last.wait(RUN_S) == 0, (tmp_path / "log").read_text()
    check_each_summed_once(pairs(kafka, sums))
    assert sum(kafka.committed_offsets(kafka_to_kafka.PREFIX, numbers).values()) == 3_000


def test_each_sum_is_there_once_though_a_slot_is_killed(jobs: Jobs, kafka: KafkaServer) -> None:
    numbers, sums = filled(kafka), kafka.topic(2)
    env = jobs.checkpointed(2, 200, **IN_PIECES)
    kafka_to_kafka.program(env, kafka.servers, numbers, sums, 0.004)
    client = jobs.start(env, "kafka to kafka")
    until(lambda: pairs(kafka, sums), "some sums")
    kill_slot(client, 0)
    wait_recovered(client, 1)
    finished(client)
    check_each_summed_once(pairs(kafka, sums))


@pytest.mark.feature("F214")
def test_a_job_goes_on_at_its_checkpoint_whatever_the_group_has_committed(
    jobs: Jobs, kafka: KafkaServer
) -> None:
    numbers, sums = filled(kafka), kafka.topic(2)
    env = jobs.checkpointed(2, 200, **RETAIN, **IN_PIECES)
    kafka_to_kafka.program(env, kafka.servers, numbers, sums, 0.004)
    client = jobs.start(env, "the first half")
    until(lambda: pairs(kafka, sums), "some sums")
    pointer = client.trigger_checkpoint().result(timeout=RUN_S).pointer
    client.cancel().result(timeout=RUN_S)
    kafka.commit_offsets(kafka_to_kafka.PREFIX, numbers, [0, 7, 10_000])
    # At another parallelism, so what was prepared and read is dealt out anew.
    env = jobs.checkpointed(3, 200, **RETAIN, **{RESTORE_PATH: pointer})
    kafka_to_kafka.program(env, kafka.servers, numbers, sums)
    finished(jobs.start(env, "the second half"))
    check_each_summed_once(pairs(kafka, sums))
