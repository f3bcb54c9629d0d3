"""Transactions of Kafka, which any process that knows their names can end.

A transaction belongs to a transactional id, and is known by that id with the producer id and epoch
that the cluster gave for it. librdkafka can only end what it began itself, and to take an id over
means to abort what is open under it. So a transaction is always ended by a request of our own
(EndTxn), which any process can send: there is one path for the commit behind a checkpoint and for
the one after a restore. The committable is described in docs/formats/kafka-sink.md.

Ids are ``<prefix>-<subtask>-<number>-<job>-<epoch>-<attempt>``, each used for one transaction. The
transactions of records behind the barrier of checkpoint n have numbers above n, those ahead of it
have not. So after a restore from n, whatever is open under a number above n is of no checkpoint,
and is aborted, which shuts out the attempt that may still write it.

To take an id into use aborts what is open under it, and a call on a pool outlives the attempt that
made it: it may reach the broker when the next attempt has already left a transaction to a
checkpoint. So no two attempts have an id in common, and none aborts what a later one has open.
"""

from __future__ import annotations

import json
import re
import threading
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafka import errors
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin.transactions import (
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.metadata.find_coordinator import FindCoordinatorRequest
from kafka.protocol.producer.transaction import EndTxnRequest, InitProducerIdRequest

from flinkformat.frozen import frozen
from tidegate.connectors.kafka.cluster import ANSWER_S
from tidegate.errors import CommitFailed, ConfigError, FormatError, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from tidegate.api.sink import WriterContext

T = TypeVar("T")

_VERSION: Final = 1
_JOB_DIGITS: Final = 8
_TRIES: Final = 100
_PAUSE_S: Final = 0.1
_END_VERSION_MAX: Final = 4
"""From version 5 on each end of a transaction raises the epoch, and a repeated one is no repeat."""

_OF_TRANSACTIONS: Final = 1
"""The kind of coordinator that is asked for."""

_UNKNOWN_BROKER: Final[type[Exception]] = errors.UnknownBrokerIdError  # pyright: ignore[reportAttributeAccessIssue]  # its stubs are older

ONGOING: Final = "Ongoing"
"""The state of a transaction that holds records and is neither committed nor aborted."""

_EXPIRED: Final = (
    "it was open for longer than its timeout, and the broker has aborted it; or another job has "
    "used its id. Its records are lost, unless it was committed before"
)
_LOST: Final[dict[type[Exception], str]] = {
    errors.InvalidTxnStateError: "it was aborted, so its records are lost",
    errors.ProducerFencedError: _EXPIRED,
    errors.InvalidProducerEpochError: _EXPIRED,
    errors.InvalidProducerIdMappingError: (
        "the broker does not know it, or not any more (transactional.id.expiration.ms): nothing "
        "tells whether it was committed before"
    ),
}
"""Answers to a commit that is not possible any more, and what they mean."""

_NAMES: Final = {
    "bootstrap.servers": "bootstrap_servers",
    "client.id": "client_id",
    "security.protocol": "security_protocol",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.crl.location": "ssl_crlfile",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
}
"""librdkafka's names of what is needed to reach a cluster, and kafka-python's."""

_CHECKS_HOST: Final = "ssl.endpoint.identification.algorithm"
_VERIFIES: Final = "enable.ssl.certificate.verification"
_NO: Final = ("false", "f", "0")


def connection_settings(properties: Mapping[str, str], where: str) -> dict[str, object]:
    """Settings of the second client. Raises ConfigError for settings that it lacks."""
    settings: dict[str, object] = {}
    for key, value in properties.items():
        if key in _NAMES:
            settings[_NAMES[key]] = value
        elif key == _CHECKS_HOST:
            settings["ssl_check_hostname"] = value != "none"
        elif key.startswith(("ssl.", "sasl.")) or (key == _VERIFIES and value.lower() in _NO):
            raise ConfigError(
                f"The property '{key}' cannot be used with EXACTLY_ONCE",
                where=where,
                remedy=f"Transactions are ended by a client that knows {', '.join(_NAMES)} and "
                f"{_CHECKS_HOST}; or take AT_LEAST_ONCE.",
            )
    settings["bootstrap_servers"] = [s.strip() for s in properties["bootstrap.servers"].split(",")]
    if "security_protocol" in settings:
        settings["security_protocol"] = str(settings["security_protocol"]).upper()
    return settings


@frozen
class TransactionName:
    """Name of a transaction, by which any process can end it.

    coordinator: the broker that was the id's when last asked; a hint, and no part of the name.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    coordinator: int | None = field(default=None, compare=False)

    def to_bytes(self) -> bytes:
        fields: dict[str, object] = {
            "v": _VERSION,
            "id": self.transactional_id,
            "producer": self.producer_id,
            "epoch": self.epoch,
        }
        if self.coordinator is not None:
            fields["coordinator"] = self.coordinator
        return json.dumps(fields).encode()

    @staticmethod
    def from_bytes(data: bytes) -> TransactionName:
        try:
            fields = json.loads(data)
            if fields["v"] != _VERSION:
                raise ValueError(f"version {fields['v']}")
            return TransactionName(
                fields["id"], fields["producer"], fields["epoch"], fields.get("coordinator")
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise FormatError(
                f"This is not a committable of a Kafka sink: {error}",
                remedy="Give this sink another uid: the snapshot holds the state of another one.",
                found=repr(data[:80]),
            ) from error


@frozen
class TransactionIds:
    """Transactional ids of an attempt at a subtask of a sink. attempt: its epoch and number."""

    prefix: str
    subtask: int
    job: str
    attempt: tuple[int, int]

    @staticmethod
    def of_writer(prefix: str, context: WriterContext) -> TransactionIds:
        _, epoch, attempt, _ = context.attempt_name.split("-")
        job = context.job[:_JOB_DIGITS]
        return TransactionIds(prefix, context.subtask, job, (int(epoch), int(attempt)))

    def of(self, number: int) -> str:
        epoch, attempt = self.attempt
        return f"{self.prefix}-{self.subtask}-{number}-{self.job}-{epoch}-{attempt}"

    def left_behind(self, ids: Iterable[str], parallelism: int, restored: int) -> list[str]:
        """Ids that this subtask must clear after a restore from a checkpoint.

        They are its own and, of subtasks that there are no more, its share; of this job, only
        those of earlier attempts. Ids of 0.1 end behind the number.
        """
        shape = re.compile(
            rf"{re.escape(self.prefix)}-(\d+)-(\d+)(?:-([0-9a-f]{{{_JOB_DIGITS}}})-(\d+)-(\d+))?"
        )
        found: list[str] = []
        for each in ids:
            if match := shape.fullmatch(each):
                subtask, number = int(match[1]), int(match[2])
                # An attempt of this job that began later may have its transaction in a checkpoint.
                earlier = match[3] != self.job or (int(match[4]), int(match[5])) < self.attempt
                if subtask % parallelism == self.subtask and number > restored and earlier:
                    found.append(each)
        return found


class Transactions:
    """Queries and ends transactions of the cluster. Blocking; used on pools.

    Calls take turns. Each raises StorageFailed if the cluster does not answer in time.
    """

    def __init__(self, settings: Mapping[str, object], where: str) -> None:
        self._settings = settings
        self._where = where
        self._turn = threading.Lock()
        self._closed = threading.Event()
        self._manager: Any = None
        self._network: Any = None

    def name_of(
        self, transactional_id: str, *, coordinator: int | None = None
    ) -> tuple[TransactionName, str]:
        """The transaction that an id stands for now, and its state. coordinator: asked first."""
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        with self._asking():
            node, answer = self._ask_coordinator(request, transactional_id, coordinator)
        found = answer.transaction_states[0]
        name = TransactionName(transactional_id, found.producer_id, found.producer_epoch, node)
        return name, found.transaction_state

    def open_ids(self) -> list[str]:
        """Open transactional ids of the cluster, as far as this user may see them."""
        request = ListTransactionsRequest(
            state_filters=[ONGOING], producer_id_filters=[], max_version=0
        )
        with self._asking():
            nodes = [broker.node_id for broker in self._connected().cluster.brokers()]
            answers = [self._ask(request, node) for node in nodes]
        return [each.transactional_id for a in answers for each in a.transaction_states]

    def abort_all(self, transactional_id: str, timeout_ms: int) -> None:
        """Aborts open transactions of an id, and shuts out whoever writes under it.

        Raises ConfigError if the cluster does not allow that timeout, or this user that id.
        """
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
            max_version=4,
        )
        with self._asking():
            try:
                self._ask_coordinator(request, transactional_id)
            except errors.InvalidTransactionTimeoutError as error:
                raise timeout_refused(timeout_ms, self._where) from error
            except errors.TransactionalIdAuthorizationFailedError as error:
                raise ConfigError(
                    f"This user may not write under the transactional id '{transactional_id}'",
                    where=self._where,
                    remedy="Allow it WRITE and DESCRIBE on all ids that begin with the prefix.",
                ) from error

    def commit(self, name: TransactionName) -> None:
        """Commits a transaction; skips one that is committed already.

        Raises CommitFailed if that is not possible any more.
        """
        request = EndTxnRequest(
            transactional_id=name.transactional_id,
            producer_id=name.producer_id,
            producer_epoch=name.epoch,
            committed=True,
            max_version=_END_VERSION_MAX,
        )
        with self._asking():
            try:
                # The broker answers a repeated commit of the same epoch as it did the first.
                self._ask_coordinator(request, name.transactional_id, name.coordinator)
            except tuple(_LOST) as error:
                raise self._lost(name, _LOST[type(error)]) from error

    @contextmanager
    def _asking(self) -> Generator[None]:
        """Serialises calls; unknown errors of the cluster become StorageFailed."""
        with self._turn:
            try:
                yield
            except errors.KafkaError as error:
                raise StorageFailed(
                    f"A request on transactions has failed: {error}",
                    where=self._where,
                    remedy="Check the servers, the security properties, and what this user may do. "
                    "Kafka before 3.0 does not know all requests.",
                ) from error

    def _lost(self, name: TransactionName, reason: str) -> CommitFailed:
        return CommitFailed(
            f"The transaction of '{name.transactional_id}' (producer {name.producer_id}, epoch "
            f"{name.epoch}) cannot be committed: {reason}",
            where=self._where,
            remedy="To go on without its records, give the sink another uid and allow state that "
            "is not restored. Let a job be down for less than transaction.timeout.ms, or stop it "
            "with a savepoint first, which commits.",
        )

    def close(self) -> None:
        self._closed.set()
        if self._manager is not None:
            self._manager.close()
            self._network.close()
            self._manager = None

    def _connected(self) -> Any:
        if self._manager is None:
            self._network = NetworkSelector()
            self._manager = KafkaConnectionManager(self._network, **self._settings)
        if not self._manager.bootstrapped:
            self._manager.bootstrap(ANSWER_S * 1000)
        return self._manager

    def _ask_coordinator(
        self, request: Any, transactional_id: str, known: int | None = None
    ) -> tuple[int, Any]:
        """Sends a request to an id's coordinator; returns that broker and its answer.

        known: asked first, without asking for the coordinator, if the cluster has such a broker.
        """
        if known is not None and self._connected().cluster.broker_metadata(known) is not None:
            try:
                return known, _checked(self._sent(request, known))
            except errors.KafkaError as error:
                if not error.retriable:
                    raise
        find = FindCoordinatorRequest(
            key=transactional_id, key_type=_OF_TRANSACTIONS, max_version=3
        )
        return self._until_answered(
            lambda: self._asked(request, _checked(self._sent(find, None)).node_id)
        )

    def _asked(self, request: Any, node: int) -> tuple[int, Any]:
        return node, _checked(self._sent(request, node))

    def _ask(self, request: Any, node: int) -> Any:
        return self._until_answered(lambda: _checked(self._sent(request, node)))

    def _until_answered(self, ask: Callable[[], T]) -> T:
        """Asks again while the cluster is busy with itself, unless this is closed meanwhile.

        Raises the client's error for an answer that is one, and where there is none in time.
        """
        for left in reversed(range(_TRIES)):
            try:
                return ask()
            except errors.KafkaError as error:
                slow = isinstance(error, errors.KafkaTimeoutError)
                # A broker that has just come is not known to all others yet.
                may_pass = error.retriable or isinstance(error, _UNKNOWN_BROKER)
                if slow or not left or not may_pass or self._closed.wait(_PAUSE_S):
                    raise
        raise AssertionError("the last try ends it")

    def _sent(self, request: Any, node: int | None) -> Any:
        manager = self._connected()
        return manager.run(_send, manager, request, node)


async def _send(manager: Any, request: Any, node: int | None) -> Any:
    if node is not None and manager.cluster.broker_metadata(node) is None:
        await manager.cluster.refresh_metadata()  # it came after the last look at the cluster
    return await manager.send(request, node_id=node, request_timeout_ms=int(ANSWER_S * 1000))


def _checked(answer: Any) -> Any:
    parts: Sequence[Any] = [answer]
    if not hasattr(answer, "error_code"):
        parts = answer.transaction_states
    for part in parts:
        kind: Any = errors.for_code(part.error_code)
        if kind is not errors.NoError:
            raise kind(f"{type(answer).__name__}: {part}")
    return answer


def timeout_refused(timeout_ms: int, where: str) -> ConfigError:
    return ConfigError(
        f"transaction.timeout.ms is {timeout_ms}, and the brokers allow less",
        where=where,
        remedy="Lower it, or raise transaction.max.timeout.ms of the brokers. It has to cover the "
        "time between two checkpoints and the longest time that the job may be down.",
    )


class TransactionCommitter:
    """Commits transactions by their names."""

    def __init__(self, settings: Mapping[str, object], where: str) -> None:
        self._transactions = Transactions(settings, where)

    def commit(self, committables: Sequence[bytes]) -> None:
        for data in committables:
            self._transactions.commit(TransactionName.from_bytes(data))

    def close(self) -> None:
        self._transactions.close()
