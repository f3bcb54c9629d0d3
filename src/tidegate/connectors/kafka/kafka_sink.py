"""``KafkaSink``: elements into topics of Kafka, once, at least once, or as it happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from tidegate.connectors.kafka.cluster import (
    check_topics,
    checked_properties,
    int_property,
    require_clients,
)
from tidegate.errors import ConfigError
from tidegate.model.topology import Delivery, DeliveryGuarantee

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidegate.api.sink import Committer, SinkWriter, WriterContext
    from tidegate.connectors.kafka.records import KafkaRecordSerializationSchema

WHERE: Final = "KafkaSink"
TRANSACTION_TIMEOUT_MS: Final = 900_000
"""What brokers allow unless they are told otherwise."""

PREFIX_BYTES_MAX: Final = 64_000

_TIMEOUT: Final = "transaction.timeout.ms"
_DEFAULTS: Final = {
    # As Kafka's own client does: a key goes to the same partition whoever writes it.
    "partitioner": "murmur2_random",
}


@frozen
class KafkaSink:
    """Topics of Kafka as a sink; made by ``builder``.

    properties: of librdkafka. prefix: of transactional ids, where the guarantee is EXACTLY_ONCE.
    """

    schema: KafkaRecordSerializationSchema
    guarantee: DeliveryGuarantee
    properties: Mapping[str, str]
    prefix: str
    transaction_timeout_ms: int

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """Builder of a Kafka sink."""
        return KafkaSinkBuilder()

    @property
    def delivery(self) -> Delivery:
        """The guarantee that was asked for."""
        if self.guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
            return Delivery(self.guarantee)
        seconds = self.transaction_timeout_ms / 1_000
        return Delivery(
            self.guarantee,
            (
                "those who read the topic set isolation.level to read_committed",
                f"the job is never down for longer than {_TIMEOUT}, {seconds:g} s",
            ),
        )

    @property
    def commits_within_ms(self) -> int | None:
        """Time after which the brokers abort what is not committed; None without transactions."""
        exactly_once = self.guarantee is DeliveryGuarantee.EXACTLY_ONCE
        return self.transaction_timeout_ms if exactly_once else None

    def check(self) -> None:
        """Checks the cluster and the settings.

        Raises ConfigError for a missing client or topic, where no server answers, and for a timeout
        of transactions that the brokers do not allow.
        """
        require_clients(WHERE)
        named = () if self.schema.topic is None else (self.schema.topic,)
        check_topics(named, self.properties, WHERE)
        if self.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            from tidegate.connectors.kafka.transactions import Transactions, connection_settings

            transactions = Transactions(connection_settings(self.properties, WHERE), WHERE)
            try:
                transactions.abort_all(f"{self.prefix}-check", self.transaction_timeout_ms)
            finally:
                transactions.close()

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> SinkWriter:
        require_clients(WHERE)
        from tidegate.connectors.kafka.transactional import TransactionalWriter
        from tidegate.connectors.kafka.writer import PlainWriter

        if self.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            return TransactionalWriter(
                context,
                self.schema,
                self.properties,
                prefix=self.prefix,
                timeout_ms=self.transaction_timeout_ms,
            )
        flushes = self.guarantee is DeliveryGuarantee.AT_LEAST_ONCE
        return PlainWriter(context, self.schema, self.properties, flushes=flushes)

    def committer(self) -> Committer | None:
        if self.guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
            return None
        require_clients(WHERE)
        from tidegate.connectors.kafka.transactions import TransactionCommitter, connection_settings

        return TransactionCommitter(connection_settings(self.properties, WHERE), WHERE)


class KafkaSinkBuilder:
    """Builds a sink; each call returns the builder."""

    def __init__(self) -> None:
        self._servers: str | None = None
        self._properties: dict[str, str] = {}
        self._guarantee = DeliveryGuarantee.NONE
        self._prefix: str | None = None
        self._schema: KafkaRecordSerializationSchema | None = None

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder:
        """Sets the first servers, ``host:port`` separated by commas."""
        self._servers = bootstrap_servers
        return self

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """Sets the delivery guarantee after a failure; NONE by default."""
        self._guarantee = delivery_guarantee
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """Sets the prefix of transactional ids; EXACTLY_ONCE needs it.

        It has to be this sink's alone in the whole cluster, and stay the same when the job is
        started again: what an earlier run has left open under it is aborted.
        """
        self._prefix = transactional_id_prefix
        return self

    def set_record_serializer(
        self, record_serializer: KafkaRecordSerializationSchema
    ) -> KafkaSinkBuilder:
        """Sets the conversion of elements to records."""
        self._schema = record_serializer
        return self

    def set_property(self, key: str, value: str) -> KafkaSinkBuilder:
        """Sets a property of librdkafka's producer, such as ``transaction.timeout.ms``."""
        self._properties[key] = str(value)
        return self

    def build(self) -> KafkaSink:
        """Makes the sink. Raises ConfigError for missing or contradicting settings."""
        require_clients(WHERE)
        if self._schema is None:
            raise ConfigError(
                "Nothing says how elements become records",
                where=WHERE,
                remedy="Say it: set_record_serializer(KafkaRecordSerializationSchema.builder()…).",
            )
        given = {**_DEFAULTS, **self._properties}
        timeout_ms = int_property(given, _TIMEOUT, WHERE, default=TRANSACTION_TIMEOUT_MS)
        ours: dict[str, str] = {}
        if self._guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            given[_TIMEOUT] = str(timeout_ms)
        else:
            given.pop(_TIMEOUT, None)
        if self._guarantee is not DeliveryGuarantee.NONE:
            # Retried records keep their order and are not duplicated.
            ours["enable.idempotence"] = "true"
        if "transactional.id" in given:
            raise ConfigError(
                "The property 'transactional.id' is set, but each transaction gets its own",
                where=WHERE,
                remedy="Set the prefix instead: set_transactional_id_prefix('…').",
            )
        return KafkaSink(
            schema=self._schema,
            guarantee=self._guarantee,
            properties=checked_properties(self._servers, given, ours, WHERE),
            prefix=self._checked_prefix(),
            transaction_timeout_ms=timeout_ms,
        )

    def _checked_prefix(self) -> str:
        if self._guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
            return ""
        size = len((self._prefix or "").encode())
        if not 0 < size <= PREFIX_BYTES_MAX:
            raise ConfigError(
                f"The prefix of transactional ids has {size} bytes, more than {PREFIX_BYTES_MAX}"
                if size
                else "EXACTLY_ONCE needs a prefix of transactional ids, but none is set",
                where=WHERE,
                remedy="Give one that is this sink's alone: set_transactional_id_prefix('…').",
            )
        return self._prefix or ""
