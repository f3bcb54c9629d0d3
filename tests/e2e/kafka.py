"""A Kafka broker: a single node of its published jars, in a Java process of its own."""

import socket
import subprocess
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.maven import dependencies_of, fetched
from tests.e2e.watch import until
from tests.e2e.zookeeper import LOGGING, SMALL_AND_QUICK, java

VERSION = "4.1.0"
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
FORMAT_S = 60.0
START_S = 60.0
STOP_S = 30.0
ANSWER_S = 20.0

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidegate</groupId><artifactId>kafka-for-tests</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""

PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
transaction.abort.timed.out.transaction.cleanup.interval.ms=200
group.initial.rebalance.delay.ms=0
"""


SMALL = tuple(flag.replace("64m", "256m") for flag in SMALL_AND_QUICK)

AS_DELIVERED = ("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
"""What Kafka's own start script passes to Java."""


class KafkaServer:
    """One broker on a free port of this machine, with its data in a folder."""

    def __init__(self, folder: Path, flags: Sequence[str] = SMALL) -> None:
        self._folder = folder
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None
        self._topics = count(1)
        self.servers = ""

    def start(self) -> None:
        """Returns once it answers."""
        assert self._process is None, "it runs"
        self._folder.mkdir(parents=True, exist_ok=True)
        port, controller = free_ports(2)
        self.servers = f"127.0.0.1:{port}"
        settings = self._folder / "server.properties"
        settings.write_text(
            PROPERTIES.format(port=port, controller=controller, folder=self._folder)
        )
        (self._folder / "log4j2.properties").write_text(LOGGING.replace("info", "warn"))
        subprocess.run(
            self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(settings)),
            check=True,
            timeout=FORMAT_S,
            capture_output=True,
        )
        log = self._folder / "log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(settings)),
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        until(lambda: self._answers(port, log), "Kafka takes connections", START_S)
        self._admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        self._admin.list_topics(timeout=START_S)

    def _java(self, *arguments: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self._folder}/log4j2.properties"
        return [java(), *self._flags, logging, "-cp", f"{jars()}/*", *arguments]

    def _answers(self, port: int, log: Path) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"Kafka has ended:\n{log.read_text()}"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def stop(self) -> None:
        """Ends it, as a crash does."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(STOP_S)

    def topic(self, partitions: int = 1) -> str:
        """A new topic."""
        name = f"topic-{next(self._topics)}"
        self._admin.create_topics([NewTopic(name, partitions, 1)])[name].result(ANSWER_S)
        until(lambda: self._has_leaders(name, partitions), f"leaders of {name}", ANSWER_S)
        return name

    def _has_leaders(self, topic: str, partitions: int) -> bool:
        found = self._admin.list_topics(topic, ANSWER_S).topics[topic].partitions
        return len(found) == partitions and all(each.leader >= 0 for each in found.values())

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have more partitions."""
        from confluent_kafka.admin import NewPartitions

        self._admin.create_partitions([NewPartitions(topic, total)])[topic].result(ANSWER_S)
        # The controller answers before the broker knows: who writes there at once would fail.
        until(lambda: self._has_leaders(topic, total), f"leaders of {topic}", ANSWER_S)

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self._admin.delete_topics([topic])[topic].result(ANSWER_S)

    def write(
        self, topic: str, values: Iterable[object], partition: int = -1, first_ms: int | None = None
    ) -> None:
        """Write values as text; with timestamps that count up, or with the time of day."""
        lost: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                lost.append(error)

        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 0})
        for number, value in enumerate(values):
            times = {} if first_ms is None else {"timestamp": first_ms + number}
            producer.produce(topic, str(value), partition=partition, callback=delivered, **times)
        assert producer.flush(ANSWER_S) == 0, "records were not delivered"
        assert not lost, f"records were not delivered: {lost[0]}"

    def messages(self, topic: str, *, committed: bool = True) -> list[Message]:
        """What a reader sees in a topic, of committed transactions only or of all."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "enable.partition.eof": True,
            }
        )
        partitions = self._admin.list_topics(topic, ANSWER_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        found: list[Message] = []
        ended: set[int | None] = set()

        def read() -> bool:
            for message in consumer.consume(1_000, 0.05):
                error = message.error()
                if error is None:
                    found.append(message)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(message.partition())
            return ended == set(partitions)

        try:
            until(read, f"the end of {topic}", ANSWER_S)
        finally:
            consumer.close()
        return found

    def values(self, topic: str, *, committed: bool = True) -> list[str]:
        """The values of a topic as text."""
        return [(m.value() or b"").decode() for m in self.messages(topic, committed=committed)]

    def committed_offsets(self, group: str, topic: str) -> dict[int, int]:
        """What a group has committed, by partition; those without are left out."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        partitions = self._admin.list_topics(topic, ANSWER_S).topics[topic].partitions
        asked = [TopicPartition(topic, partition) for partition in partitions]
        answer = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, asked)]
        )
        found = answer[group].result(ANSWER_S).topic_partitions
        return {each.partition: each.offset for each in found if each.offset >= 0}

    def commit_offsets(self, group: str, topic: str, offsets: Sequence[int]) -> None:
        """Commit offsets for a group, one a partition."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        places = [TopicPartition(topic, number, offset) for number, offset in enumerate(offsets)]
        answer = self._admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, places)]
        )
        answer[group].result(ANSWER_S)

    def open_transaction(self, topic: str, transactional_id: str, *values: object) -> Producer:
        """Write into a transaction that is left open as long as the producer is not closed."""
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "transactional.id": transactional_id,
                "log_level": 0,
            }
        )
        producer.init_transactions(ANSWER_S)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, str(value))
        assert producer.flush(ANSWER_S) == 0, "records were not delivered"
        return producer


def free_ports(how_many: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(how_many)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def jars() -> Path:
    """Kafka's, fetched by Maven when they are first asked for."""
    return fetched(f"kafka-{VERSION}", dependencies_of(POM))
