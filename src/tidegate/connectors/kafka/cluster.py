"""Clients, properties and checks that Kafka's source and sink share.

The clients are librdkafka's for records (confluent-kafka), whose property names the builders take,
and kafka-python where a transaction has to be ended that another process began.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from tidegate.errors import ConfigError, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import (
        AdminClient,
        TopicMetadata,  # pyright: ignore[reportPrivateImportUsage]
    )

ANSWER_S: Final = 10.0
"""How long a cluster may take for one answer, in seconds."""

_QUIET: Final = {"log_level": "2"}
"""What goes wrong is raised; without this librdkafka prints each lost connection as well."""


def require_clients(where: str) -> None:
    missing = [name for name in ("confluent_kafka", "kafka") if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"Kafka's clients are not installed: there is no module {' and no '.join(missing)}",
            where=where,
            remedy="Install them: pip install 'tidegate[kafka]', here and on the executors.",
        )


def checked_properties(
    servers: str | None, properties: Mapping[str, str], ours: Mapping[str, str], where: str
) -> dict[str, str]:
    """Properties of a client, as given to a builder.

    ours: those that no one may set otherwise. Raises ConfigError for them, and without servers.
    """
    given = dict(properties)
    if servers is not None:
        given["bootstrap.servers"] = servers
    if not given.get("bootstrap.servers"):
        raise ConfigError(
            "No server is given",
            where=where,
            remedy="Give some: set_bootstrap_servers('host:9092,other:9092').",
        )
    for key, value in ours.items():
        if given.get(key, value) != value:
            raise ConfigError(
                f"The property '{key}' is {given[key]!r}, and has to be {value!r} here",
                where=where,
                remedy="Leave it out; it follows from how checkpoints work.",
            )
    return {**_QUIET, **given, **ours}


def int_property(properties: Mapping[str, str], key: str, where: str, *, default: int) -> int:
    """A numeric property. Raises ConfigError for anything else."""
    text = str(properties.get(key, default))
    try:
        return int(text)
    except ValueError:
        raise ConfigError(
            f"The property '{key}' is {text!r}, which is not a number",
            where=where,
            remedy="Write a whole number.",
        ) from None


def admin(properties: Mapping[str, str], where: str) -> AdminClient:
    """A client for looking at the cluster. Raises ConfigError for an unknown property."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        return AdminClient(dict(properties))
    except KafkaException as error:
        raise refused_properties(error, where) from error


def refused_properties(error: KafkaException, where: str) -> ConfigError:
    return ConfigError(
        f"Kafka's client refuses its properties: {fault(error).str()}",
        where=where,
        remedy="The names are librdkafka's: see CONFIGURATION.md of librdkafka.",
    )


def topics_of(client: AdminClient, servers: str, where: str) -> dict[str, TopicMetadata]:
    """Topics of the cluster, by name. Raises StorageFailed if no server answers."""
    from confluent_kafka import KafkaException

    try:
        return client.list_topics(timeout=ANSWER_S).topics
    except KafkaException as error:
        raise StorageFailed(
            f"No server of Kafka has answered within {ANSWER_S:g} s: {fault(error).str()}",
            where=f"{where}, bootstrap.servers '{servers}'",
            remedy="Check set_bootstrap_servers and the security properties, and that driver and "
            "slots can reach the advertised addresses.",
        ) from error


def check_topics(
    topics: Collection[str], properties: Mapping[str, str], where: str
) -> dict[str, TopicMetadata]:
    """Checks that the topics exist; returns all topics of the cluster.

    Raises ConfigError for those that are not, and where no server answers.
    """
    client = admin(properties, where)
    try:
        found = topics_of(client, properties["bootstrap.servers"], where)
    except StorageFailed as error:
        raise ConfigError(error.what, where=error.where, remedy=error.remedy) from error
    refuse_missing(topics, found, f"{where}, bootstrap.servers '{properties['bootstrap.servers']}'")
    return found


def refuse_missing(topics: Collection[str], found: Mapping[str, TopicMetadata], where: str) -> None:
    """Raises ConfigError for topics that are not among those of the cluster."""
    if missing := sorted(set(topics) - found.keys()):
        raise ConfigError(
            f"There is no topic {', '.join(map(repr, missing))}",
            where=where,
            remedy="Create it, or check its name and that this user may describe it.",
        )


def fault(error: KafkaException) -> KafkaError:
    return error.args[0]
