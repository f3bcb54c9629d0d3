"""One run of the latency benchmark: a job between two topics, a paced producer, and a consumer.

First every key comes once, and the run goes on when all of them are out: the job is up, and its
state is whole. Then records come at a steady rate. A record's stamp is taken right before it is
handed to the producer, and compared with the clock when the consumer, which reads committed records
only, gets the output; both are in this process, on its monotonic clock. The last line printed is
the result.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.kafka_latency import KEYS, PARTITIONS
from benchmarks.workload import MASK, MULT

ANSWER_S = 20.0
START_S = 150.0
QUIET_S = 10.0
STOP_S = 20.0
PERCENTILES = (50, 90, 99, 99.9)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--system", required=True)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--rate", type=float, default=1_000)
    parser.add_argument("--warm-s", type=float, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("job", nargs="+", help="its command; topics and a folder are added")
    args = parser.parse_args()
    admin = AdminClient({"bootstrap.servers": args.servers})
    topics = new_topics(admin)
    with tempfile.TemporaryDirectory(prefix="tidegate-kafka-") as folder:
        places = ("--servers", args.servers, "--source", topics[0], "--sink", topics[1])
        log = Path(folder) / "log"
        with log.open("wb") as output:
            job = subprocess.Popen(
                [*args.job, *places, "--folder", folder], stdout=output, stderr=output
            )
        try:
            result = measure(args, job.pid, *topics)
        except Exception:
            sys.stderr.write(log.read_text(errors="replace")[-4000:])
            raise
        finally:
            stop(job)
            # What a broker keeps makes it slower for those that come after.
            for gone in admin.delete_topics(list(topics)).values():
                gone.result(ANSWER_S)
    print(json.dumps(result))
    return 0


def new_topics(admin: AdminClient) -> tuple[str, str]:
    """Two topics of their own for this run."""
    suffix = time.time_ns()
    names = (f"in-{suffix}", f"out-{suffix}")
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        made.result(ANSWER_S)
    return names


def stop(job: subprocess.Popen[bytes]) -> None:
    """Asks it to end, as who has seen enough does."""
    job.send_signal(signal.SIGTERM)
    try:
        job.wait(STOP_S)
    except subprocess.TimeoutExpired:
        job.kill()
        job.wait(STOP_S)


def measure(args: argparse.Namespace, job: int, source: str, sink: str) -> dict[str, object]:
    """The latencies of the records that came after the warm-up."""
    outputs = Outputs(args.servers, sink)
    producer = Producer({"bootstrap.servers": args.servers, "linger.ms": 0, "acks": "all"})
    began = time.monotonic()
    try:
        for key in range(args.keys):
            producer.produce(source, f"{key},0")
            producer.poll(0)
        assert producer.flush(ANSWER_S) == 0, "records were not delivered"
        outputs.wait_keys(args.keys, START_S)
        started_s = time.monotonic() - began
        paced = Paced(producer, source, args)
        before_s, from_s = processor_s(job), time.monotonic()
        paced.start()
        arrived, stamps = outputs.take(paced)
        paced.join()
        cores = (processor_s(job) - before_s) / (time.monotonic() - from_s)
    finally:
        outputs.close()
    counted = stamps >= paced.first_ns
    ms = np.sort(arrived[counted] - stamps[counted]) / 1e6
    return {
        "system": args.system,
        "workload": "kafka-latency",
        "rate": args.rate,
        "keys": args.keys,
        "seconds": args.seconds,
        "records_per_s": round(len(ms) / args.seconds, 1),
        "latencies": len(ms),
        "start_s": round(started_s, 1),
        "cores": round(cores, 3),
        "late_ms": round(paced.late_ms, 3),
        **{f"p{p:g}_ms": round(float(np.percentile(ms, p)), 3) for p in PERCENTILES},
        "max_ms": round(float(ms[-1]), 3),
    }


def processor_s(pid: int) -> float:
    """Processor time so far of a process and of all that it has started."""
    root = psutil.Process(pid)
    total = 0.0
    for process in [root, *root.children(recursive=True)]:
        try:
            used = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += used.user + used.system + used.children_user + used.children_system
    return total


class Paced(threading.Thread):
    """Hands out records at a steady rate, each when it is due."""

    def __init__(self, producer: Producer, topic: str, args: argparse.Namespace) -> None:
        super().__init__(daemon=True)
        self._producer, self._topic, self._args = producer, topic, args
        self.count = int(args.rate * (args.warm_s + args.seconds))
        self.first_ns = self.late_ms = 0

    def run(self) -> None:
        args = self._args
        began, period_s = time.monotonic(), 1 / args.rate
        for number in range(self.count):
            ahead_s = began + number * period_s - time.monotonic()
            if ahead_s > 0:
                time.sleep(ahead_s)
            self.late_ms = max(self.late_ms, -ahead_s * 1e3)
            key, stamp = (number * MULT & MASK) % args.keys, time.monotonic_ns()
            if number == int(args.rate * args.warm_s):
                self.first_ns = stamp
            self._producer.produce(self._topic, f"{key},{stamp}")
            self._producer.poll(0)
        self._producer.flush(ANSWER_S)


class Outputs:
    """What a reader of committed records gets from a topic."""

    def __init__(self, servers: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "latency",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])

    def wait_keys(self, keys: int, timeout_s: float) -> None:
        """Until each key has come. Raises TimeoutError."""
        seen: set[bytes] = set()
        deadline = time.monotonic() + timeout_s
        while len(seen) < keys:
            for message in self._consumer.consume(10_000, 0.1):
                seen.add(value_of(message).split(b",", 1)[0])
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(seen)} of {keys} keys came within {timeout_s:.0f} s")

    def take(self, paced: "Paced") -> tuple[np.ndarray, np.ndarray]:
        """Moments of arrival and stamps, in nanoseconds, of what comes until all have come.

        One output may stand for several records of a key, so it also ends if nothing has come for
        a while after the last record was sent.
        """
        arrived: list[int] = []
        stamps: list[int] = []
        last_s = time.monotonic()
        while len(arrived) < paced.count:
            message = self._consumer.poll(0.1)
            now_ns = time.monotonic_ns()
            if message is None:
                if not paced.is_alive() and time.monotonic() - last_s > QUIET_S:
                    break
                continue
            last_s = now_ns / 1e9
            arrived.append(now_ns)
            stamps.append(int(value_of(message).rsplit(b",", 1)[1]))
        return np.array(arrived, np.int64), np.array(stamps, np.int64)

    def close(self) -> None:
        self._consumer.close()


def value_of(message) -> bytes:
    """The value of an output. Raises RuntimeError for an error of the consumer."""
    if (error := message.error()) is not None:
        raise RuntimeError(error.str())
    return message.value()


if __name__ == "__main__":
    sys.exit(main())
