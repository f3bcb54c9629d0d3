"""Kafka to Kafka at 1,000 records/s through a keyed step with one read and one update of state.

50,000 keys, topics of four partitions, a real broker of one node on this machine. A latency runs
from the producer's stamp to the output's arrival at a reader of committed records. With
exactly-once an output is seen once its checkpoint is complete and its transaction committed; at
least once it is seen as it is written, and so are those of Spark's own sink.

Guards the 99th percentile: 180 ms with a checkpoint each 100 ms, 90 ms with one each 25 ms, 10 ms
at least once, on Spark and on the local runtime. Beside them Spark's micro-batches, with the step
in Python and as an aggregation in the JVM, and that aggregation in its real-time mode, in which no
operator in Python is allowed.

Sketch: a record waits for its barrier, half an interval in the mean and a whole one at most; then a
flush takes 4 ms, its metadata 2, the pointer 3, the commit 3. At least once, three hops over a
broker and two turns of the loop are some 1.5 ms.
"""

import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.comparison import peers_cache
from benchmarks.measure import (
    Contender,
    conditions,
    interleaved,
    keep,
    medians,
    quiet_runs,
    run_once,
    whole,
)
from tests.e2e.kafka import AS_DELIVERED, KafkaServer
from tests.e2e.maven import dependencies_of, fetch

WARM_S, SECONDS = 2, 8
FIGURES = ("p50_ms", "p90_ms", "p99_ms", "p99.9_ms", "max_ms", "cores")
FORMS = {
    "exactly-once, 100 ms": (("exactly-once", "100"), 180.0),
    "exactly-once, 25 ms": (("exactly-once", "25"), 90.0),
    "at-least-once": (("at-least-once", "1000"), 10.0),
}
"""Guarantee and milliseconds between checkpoints, and the limit on the 99th percentile."""

CHANGELOG = (
    *("--set", "state.changelog.enabled=true"),
    *("--set", "state.changelog.periodic-materialize.interval=5s"),
)
"""Of the exactly-once forms: a checkpoint writes what changed, as the guide advises for them."""

LIMITS_MS = {
    f"tidegate-{runtime}, {form}": limit
    for runtime in ("spark", "local")
    for form, (_, limit) in FORMS.items()
}
SPARKS = {
    "spark, micro-batches, Python": "python",
    "spark, micro-batches, JVM": "jvm",
    "spark, real-time mode, JVM": "real-time",
}

WARMS, WARM_RUNS = "tidegate-local, exactly-once, 25 ms", 3
"""Unmeasured runs ahead of all others: a broker that has just started takes ten times as long for
a transaction, until its code is compiled."""

SPARK_ROUNDS = 2
"""Spark takes half a minute until its state has all keys."""

CONNECTOR = "4.2.0"
"""Spark's Kafka connector. Maven's servers have none of 4.3.0; this one runs on it in all modes."""

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidegate</groupId><artifactId>spark-kafka-for-benchmarks</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId>
      <version>{CONNECTOR}</version>
      <exclusions>
        <exclusion><groupId>org.apache.hadoop</groupId><artifactId>*</artifactId></exclusion>
        <exclusion><groupId>org.scala-lang</groupId><artifactId>*</artifactId></exclusion>
        <exclusion><groupId>org.scala-lang.modules</groupId><artifactId>*</artifactId></exclusion>
        <exclusion><groupId>org.slf4j</groupId><artifactId>*</artifactId></exclusion>
      </exclusions>
    </dependency>
  </dependencies>
</project>
"""


def main(console: Console, rounds: int, only: str, scale: float) -> bool:
    """Run all, print the table, keep the result; whether the limits hold."""
    with tempfile.TemporaryDirectory() as scratch:
        broker = KafkaServer(Path(scratch) / "broker", AS_DELIVERED)
        broker.start()
        try:
            every = contenders(broker.servers, scale)
            warm = next(one for one in every if one.name == WARMS)
            for _ in range(WARM_RUNS):
                run_once(warm, console)
            chosen = [one for one in every if only in one.name]
            results = interleaved(chosen, rounds, console)
        finally:
            broker.stop()
    found = {figure: medians(results, figure) for figure in FIGURES}
    table = Table("system", *FIGURES, "p99 at most", title="Kafka to Kafka, latency: medians")
    for name in found["p99_ms"]:
        limit = f"{LIMITS_MS[name]:g}" if name in LIMITS_MS else ""
        table.add_row(name, *(f"{found[figure][name]:.2f}" for figure in FIGURES), limit)
    console.print(table)
    console.print(conditions(results))
    held = {
        name: found["p99_ms"][name] <= limit
        for name, limit in LIMITS_MS.items()
        if name in found["p99_ms"]
    }
    if whole(only, scale):
        record = {"rounds": rounds, "medians": found, "held": held}
        record |= {"quiet_runs": quiet_runs(results), "runs": results}
        keep("kafka-latency.jsonl", record)
    return all(held.values())


def contenders(servers: str, scale: float) -> list[Contender]:
    load = (sys.executable, "-m", "benchmarks.kafka_latency.load", "--servers", servers)
    load += ("--warm-s", str(WARM_S), "--seconds", str(SECONDS * scale))
    job = ("--", sys.executable, "-m")
    ours = {
        f"tidegate-{runtime}, {form}": (
            *("benchmarks.kafka_latency.tidegate_job", "--runtime", runtime),
            *("--guarantee", guarantee, "--checkpoint-ms", interval_ms),
            *(CHANGELOG if guarantee == "exactly-once" else ()),
        )
        for runtime in ("spark", "local")
        for form, ((guarantee, interval_ms), _) in FORMS.items()
    }
    theirs = {
        name: ("benchmarks.kafka_latency.spark_job", "--jars", str(jars()), "--mode", mode)
        for name, mode in SPARKS.items()
    }
    return [
        Contender(
            name,
            (*load, "--system", name, *job, *program),
            SPARK_ROUNDS if name in theirs else None,
        )
        for name, program in (ours | theirs).items()
    ]


def jars() -> Path:
    """Spark's Kafka connector, fetched by Maven when it is first asked for."""
    cache = peers_cache()
    folder = cache / f"spark-kafka-{CONNECTOR}"
    cache.mkdir(parents=True, exist_ok=True)
    if not folder.exists():
        fetch(cache, folder, dependencies_of(POM))
    return folder
